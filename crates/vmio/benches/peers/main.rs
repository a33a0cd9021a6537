//! vmio's guard beside the limiters that operators use, in one bed, interleaved (`mod.rs`). As root, 6 to 8 minutes:
//!
//! `cargo bench -p vmio --bench peers [-- [--capacity RATE] [--quick] [--rounds N] [--limiters NAME,…] [--json F]]`
//!
//! prints a page in Markdown and judges nothing. `--quick` is one round with short windows; `--capacity` is the
//! uplink's, where the machine does not carry 200 Mbit/s (`scale.rs`); `--schema` prints the JSON Schema of what
//! `--json` writes. It changes nothing of the host: all is in namespaces that end with it. In a lab host: docs/lab.md.
#![allow(clippy::print_stdout, missing_docs)]

#[path = "mod.rs"]
mod peers;

use std::error::Error;

use peers::figures::Results;
use peers::rounds::Times;
use peers::scale::Scale;
use peers::{Options, limiters, table};
use vmio_model::policy::units;

fn main() -> Result<(), Box<dyn Error>> {
    let mut options = Options { rounds: 3, limiters: Vec::new(), times: Times::USUAL, scale: Scale::USUAL };
    let mut json = None;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            // What cargo adds.
            "--bench" => {}
            "--quick" => (options.rounds, options.times) = (1, Times::SHORT),
            "--capacity" => options.scale = Scale::of(units::rate(&value()?)?.bits())?,
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
    // First, so that a file that cannot be written costs no results.
    print!("{}", table::markdown(&results));
    if let Some(file) = json {
        std::fs::write(file, format!("{:#}\n", serde_json::to_value(&results)?))?;
    }
    Ok(())
}
