//! `vmio completions`: tab completion for a shell, on standard output.

use vmio_model::failure::Exit;

use crate::context::{Context, Outcome};
use crate::term;

/// Print tab completion for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  vmio completions bash > /etc/bash_completion.d/vmio
  vmio completions zsh  > ~/.zfunc/_vmio
  vmio completions fish > ~/.config/fish/completions/vmio.fish")]
pub struct Args {
    /// The shell
    shell: clap_complete::Shell,
}

/// Prints the completion script.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut (context.command_line)(), "vmio", &mut script);
    term::print_exact(&String::from_utf8(script)?)?;
    Ok(Exit::Done)
}
