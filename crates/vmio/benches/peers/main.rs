//! vmio's guard beside the limiters that operators use, in one bed, interleaved (`peers/mod.rs`). As root, 5 minutes:
//!
//! `cargo bench -p vmio --bench peers [-- [--rounds N] [--quick] [--limiters NAME,…] [--json FILE]]`
//!
//! prints a page in Markdown and judges nothing. `--quick` is one round with short windows; `--schema` prints the JSON
//! Schema of what `--json` writes. It changes nothing of the host: all is in namespaces that end with it.
#![allow(clippy::print_stdout, missing_docs)]

#[path = "mod.rs"]
mod peers;

use std::error::Error;

use peers::figures::Results;
use peers::rounds::Times;
use peers::{Options, limiters, table};

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options { rounds: 3, limiters: Vec::new(), times: Times::USUAL };
    let mut json = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            // What cargo adds.
            "--bench" => {}
            "--quick" => (options.rounds, options.times) = (1, Times::SHORT),
            "--rounds" => options.rounds = value()?.parse()?,
            "--limiters" => options.limiters = value()?.split(',').map(str::to_owned).collect(),
            "--json" => json = Some(value()?),
            "--schema" => {
                println!("{:#}", serde_json::to_value(schemars::schema_for!(Results))?);
                return Ok(());
            }
            other => return Err(format!("unknown argument {other}").into()),
        }
    }
    let known: Vec<&str> = limiters::ALL.iter().map(|limiter| limiter.name).collect();
    if let Some(name) = options.limiters.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(format!("no limiter is called {name}: one of {}", known.join(", ")).into());
    }
    let results = peers::run(&options);
    if let Some(file) = json {
        std::fs::write(file, format!("{:#}\n", serde_json::to_value(&results)?))?;
    }
    print!("{}", table::markdown(&results));
    Ok(())
}
