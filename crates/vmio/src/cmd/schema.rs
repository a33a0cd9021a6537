//! `vmio schema`: the JSON Schema of everything that vmio prints as JSON.

mod made;
mod outputs;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use schemars::JsonSchema;
use serde::Serialize;
use vmio_model::failure::{Exit, Failure};
use vmio_model::words::nearest;

use crate::context::{Context, Outcome};
use crate::fit::WIDTH;
use crate::report::document::{Block, Document, In, Name, Pairs, Text};
use crate::term::{self, Style};

pub use made::DIALECT;
pub use outputs::{ALL, Output};

const EXAMPLES: &str = "\
Examples:
  vmio schema                  every output with the command that prints it
  vmio schema scan             the schema of vmio scan --json
  vmio schema top > top.json   of one line of vmio top --json

Fields are only added within a major version of an output (schema_version),
so the schemas allow fields that they do not name. More in docs/schema.md.";

/// Print the JSON Schema of what another command prints with --json
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Name of the output; without it all are listed
    #[arg(value_parser = Names, hide_possible_values = true)]
    name: Option<String>,
}

/// Any word, which [`named`] judges; completions offer the names of [`ALL`].
#[derive(Debug, Clone)]
struct Names;

impl TypedValueParser for Names {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(ALL.iter().map(|output| PossibleValue::new(output.name).help(output.about))))
    }
}

/// The output of that name. For the name of a command (`runs-show`) the error names the output.
fn named(word: &str) -> Result<&'static Output, Failure> {
    if let Some(output) = ALL.iter().find(|output| output.name == word) {
        return Ok(output);
    }
    let all: Vec<(String, &str)> = ALL.iter().flat_map(|o| o.words().map(|known| (known, o.name))).collect();
    let near = nearest(word, all.iter().map(|(known, _)| known.as_str()));
    let near = near.and_then(|near| all.iter().find(|(known, _)| known == near));
    let failure = Failure::new(Exit::Usage, format!("unknown JSON output {word}"));
    Err(failure.help(match near {
        Some((_, name)) => format!("did you mean {name}? `vmio schema` lists all"),
        None => "`vmio schema` lists all".to_owned(),
    }))
}

/// The outputs that have a schema.
#[derive(Serialize, JsonSchema)]
pub struct Listed {
    /// Version of this document.
    schema_version: &'static str,
    /// The outputs.
    outputs: Vec<ListedOutput>,
}

/// An output in the list.
#[derive(Serialize, JsonSchema)]
struct ListedOutput {
    /// Its name, for `vmio schema NAME`.
    name: &'static str,
    /// What it says.
    about: &'static str,
    /// Commands that print it.
    commands: Vec<String>,
    /// Whether it is JSON Lines; the schema is that of one line then.
    lines: bool,
}

impl Listed {
    fn all() -> Self {
        let entry = |output: &Output| ListedOutput {
            name: output.name,
            about: output.about,
            commands: output.commands.iter().map(|command| format!("vmio {command}")).collect(),
            lines: output.layout.lines,
        };
        Self { schema_version: "1.0", outputs: ALL.iter().map(entry).collect() }
    }
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    match &args.name {
        Some(name) => term::print_exact(&named(name)?.text())?,
        None if context.json => term::json(&Listed::all())?,
        None => term::print(&list())?,
    }
    Ok(Exit::Done)
}

/// A line an output, and below it the commands that print it.
fn list() -> String {
    let widest = ALL.iter().map(|output| output.name.len()).max().unwrap_or(0);
    let entry = |output: &Output| {
        let commands: Vec<String> = output.commands.iter().map(|command| format!("vmio {command}")).collect();
        let lines = if output.layout.lines { " (one object a line)" } else { "" };
        (In::ALL, Text::from(output.name), format!("{}{lines}", commands.join(", ")))
    };
    let pairs = ALL.iter().map(entry).collect();
    let mut doc = Document::new("");
    doc.put(Block::Pairs(Pairs { indent: 0, width: widest + 2, long: Name::Pushes, pairs }));
    doc.text(Style::PLAIN, WIDTH)
}
