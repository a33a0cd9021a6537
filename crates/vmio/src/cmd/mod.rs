//! The verbs, a file each: its clap arguments (with `about` and examples) and `run`.
//!
//! A further verb is one file with `pub struct Args` (`clap::Args`) and
//! `pub fn run(args: &Args, context: &Context) -> Outcome`, its `mod` line, and one line in
//! `verbs!`. Help, completions and man pages follow from that list.

mod completions;
mod doctor;
pub mod explain;
mod guard;
mod image;
mod lab;
mod man;
pub mod runs;
pub mod scan;
pub mod schema;
mod study;
mod tax;
mod top;
mod volume;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use vmio_model::rules::Severity;

use crate::context::{Context, Outcome};

macro_rules! verbs {
    ($($name:ident => $module:ident,)*) => {
        /// Every verb with its arguments, in the order in which help shows them.
        #[derive(Debug, clap::Subcommand)]
        pub enum Verb {
            $(#[allow(missing_docs)] $name($module::Args),)*
        }

        impl Verb {
            /// Runs the verb.
            pub fn run(&self, context: &Context) -> Outcome {
                match self {
                    $(Verb::$name(args) => $module::run(args, context),)*
                }
            }
        }
    };
}

verbs! {
    Scan => scan,
    Tax => tax,
    Top => top,
    Explain => explain,
    Study => study,
    Guard => guard,
    Doctor => doctor,
    Runs => runs,
    Image => image,
    Volume => volume,
    Lab => lab,
    Schema => schema,
    Completions => completions,
    Man => man,
}

/// A severity on the command line.
fn severity() -> impl TypedValueParser<Value = Severity> {
    let of = |word: String| Severity::ALL.into_iter().find(|s| s.name() == word).ok_or("no such severity");
    PossibleValuesParser::new(Severity::ALL.map(Severity::name)).try_map(of)
}
