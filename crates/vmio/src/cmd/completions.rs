//! `vmio completions`: tab completion for a shell, on standard output.

use clap_complete::Shell;
use vmio_model::failure::Exit;

use super::study;
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
    shell: Shell,
}

/// Prints the completion script.
pub fn run(args: &Args, context: &Context) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut (context.command_line)(), "vmio", &mut script);
    term::print_exact(&with_studies(args.shell, String::from_utf8(script)?))?;
    Ok(Exit::Done)
}

/// Adds what the generated scripts leave out: to fish's the names of studies, since it knows no words that follow a
/// verb; to zsh's the files where a study's path may stand beside its name.
fn with_studies(shell: Shell, mut script: String) -> String {
    let names = study::bundled().join(" ");
    match shell {
        Shell::Fish => {
            let on = |verb: &str| format!("__fish_vmio_using_subcommand study; and __fish_seen_subcommand_from {verb}");
            let of_papers = study::of_papers().join(" ");
            for (verb, files, words) in [("show", " -f", &names), ("run", "", &names), ("compare", " -f", &of_papers)] {
                script += &format!("complete -c vmio -n \"{}\"{files} -a \"{words}\"\n", on(verb));
            }
            script
        }
        Shell::Zsh => {
            let place = format!("path of a TOML file:({names})'");
            let Some((before, after)) = script.split_once(&place) else { return script };
            let Some((functions, last)) = after.split_once("\nif [ \"$funcstack[1]\"") else { return script };
            format!(
                "{before}path of a TOML file:_vmio_study_or_file'{functions}\n\
                 (( $+functions[_vmio_study_or_file] )) ||\n\
                 _vmio_study_or_file() {{\n    \
                 _alternative 'studies:study:({names})' 'files:TOML file:_files'\n}}\n\n\
                 if [ \"$funcstack[1]\"{last}"
            )
        }
        _ => script,
    }
}
