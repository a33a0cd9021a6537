//! `vmio study`: the studies that come with vmio, and one's own.

use crate::cli::{Context, Exit, Outcome};
use crate::report::Forms;
use crate::run::{self, Mode, Wishes, studies};
use crate::term;

/// List, show and run studies: whole experiments from a TOML file
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  vmio study list
  vmio study show sparse > mine.toml   a file to start one's own from
  vmio study run sparse --yes          sparse against preallocated first write
  vmio study run ./mine.toml --dry-run")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List the studies that come with vmio
    List,
    /// Print a study's TOML
    Show {
        /// Name of a study
        name: String,
    },
    /// Run a study
    Run {
        /// Name of a study, or path of a TOML file
        study: String,
        #[command(flatten)]
        wishes: Box<Wishes>,
        #[command(flatten)]
        forms: Forms,
    },
}

/// Runs the verb.
pub fn run(args: &Args, context: &Context) -> Outcome {
    match &args.verb {
        Verb::List => list(context),
        Verb::Show { name } => {
            let text = match studies::ALL.iter().find(|(known, _)| known == name) {
                Some((_, text)) => (*text).to_owned(),
                None => studies::named(name)?.to_toml(),
            };
            term::print(&text)?;
            Ok(Exit::Done)
        }
        Verb::Run { study, wishes, forms } => {
            run::start(&studies::named(study)?, Mode::Study, wishes, forms, None, context)
        }
    }
}

fn list(context: &Context) -> Outcome {
    let all: Vec<_> = studies::ALL.iter().map(|(name, _)| studies::named(name)).collect::<Result<_, _>>()?;
    if context.json {
        let entry = |s: &vmio_model::study::Study| serde_json::json!({ "name": s.name, "title": s.title, "cites": s.cites, "cells": s.cells().len() });
        let document =
            serde_json::json!({ "schema_version": "1.0", "studies": all.iter().map(entry).collect::<Vec<_>>() });
        term::print(&format!("{document:#}\n"))?;
        return Ok(Exit::Done);
    }
    let lines: Vec<String> =
        all.iter().map(|s| format!("{:<8} {:>3} cells  {}\n", s.name, s.cells().len(), s.title)).collect();
    term::print(&lines.concat())?;
    Ok(Exit::Done)
}
