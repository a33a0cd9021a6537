//! What vmio prints as JSON, a line an output: its name, its layout, its type, the commands that print it.
//!
//! A further output is a type with `Serialize` and `JsonSchema`, whose doc comments say what its fields mean,
//! and its line in `outputs!`; then `term::json` prints it. `tests/schema.rs` wants a real output of each.

use schemars::{Schema, SchemaGenerator};
use vmio_guard::manager::document::Status;
use vmio_model::paper::Compared;
use vmio_model::policy::plan::Plan;
use vmio_model::summary::Comparison;

use super::{Listed, made};
use crate::cmd::{doctor, guard, image, runs, study, volume};
use crate::document::{Document, Layout};
use crate::report::plan;
use crate::report::{self, experiment, export, scan, simulation};
use crate::run::noise;
use crate::top::screen::Screen;

/// An output with its schema.
pub struct Output {
    /// Its name, for `vmio schema NAME`.
    pub name: &'static str,
    /// What it says, in a few words.
    pub about: &'static str,
    /// Commands that print it, without the leading `vmio`.
    pub commands: &'static [&'static str],
    /// How it is laid out.
    pub layout: Layout,
    root: fn(&mut SchemaGenerator) -> Schema,
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Output({})", self.name)
    }
}

impl Output {
    /// Its JSON Schema.
    pub fn schema(&self) -> serde_json::Value {
        let commands: Vec<String> = self.commands.iter().map(|command| format!("`vmio {command}`")).collect();
        let printed = if self.layout.lines { "A line of the JSON Lines printed" } else { "Printed" };
        made::schema(self.root, format!("vmio {}", self.name), &format!("{printed} by {}.", commands.join(", ")))
    }

    /// Words that a user may name it by: its name, and the commands that print it (`runs-show`).
    pub(super) fn words(&self) -> impl Iterator<Item = String> {
        let verbs =
            |command: &str| command.split(' ').take_while(|w| !w.starts_with('-')).collect::<Vec<_>>().join("-");
        std::iter::once(self.name.to_owned()).chain(self.commands.iter().map(move |command| verbs(command)))
    }

    /// The same as it is printed.
    pub fn text(&self) -> String {
        made::text(&self.schema())
    }
}

/// One document, keys as the type has them.
const DOCUMENT: Layout = Layout { lines: false, sorted: false };
/// One document, keys in the order of the alphabet.
const SORTED: Layout = Layout { lines: false, sorted: true };
/// An object a line.
const LINES: Layout = Layout { lines: true, sorted: false };
/// An object a line, keys in the order of the alphabet.
const SORTED_LINES: Layout = Layout { lines: true, sorted: true };

macro_rules! outputs {
    ($($name:literal: $layout:ident $type:ty = $about:literal by [$($command:literal),+],)*) => {
        /// Every JSON output.
        pub const ALL: &[Output] = &[$(Output {
            name: $name,
            about: $about,
            commands: &[$($command),+],
            layout: $layout,
            root: |generator| generator.root_schema_for::<$type>(),
        },)*];

        $(impl Document for $type {
            const LAYOUT: Layout = $layout;
        })*
    };
}

outputs! {
    "scan": DOCUMENT scan::Document<'_> = "guests that run, and what slows them down" by ["scan --json", "--json"],
    "top": LINES Screen = "one interval: who uses what" by ["top --json"],
    "explain": DOCUMENT report::explain::Document<'_> = "the time of a request, layer by layer" by ["explain --json"],
    "tax": DOCUMENT report::Document<'_> = "a run with findings and proofs"
        by ["tax --json", "study run --json", "runs show --json"],
    "tax-plan": SORTED plan::Document<'_> = "what a run would do" by ["tax --dry-run --json", "study run --dry-run --json"],
    "tax-noise": SORTED noise::Document<'_> = "how small a difference counts" by ["tax --noise --json"],
    "study-list": SORTED study::Listed = "the studies that come with vmio" by ["study list --json"],
    "study-compare": DOCUMENT Compared = "which effects of a paper show here" by ["study compare --json"],
    "guard-check": SORTED guard::Checked<'_> = "what is wrong with a policy" by ["guard check --json"],
    "guard-plan": DOCUMENT Plan = "what each interface would get" by ["guard plan --json"],
    "guard-simulate": SORTED simulation::Document<'_> = "simulated runs of the guard" by ["guard simulate --json"],
    "guard-set": DOCUMENT guard::Changed<'_> = "what was changed over the files" by ["guard set --json"],
    "guard-status": DOCUMENT Status = "what the guard's daemon has in force"
        by ["guard status --json", "guard run --observe --json"],
    "doctor": SORTED doctor::Document<'_> = "what this host has and lacks" by ["doctor --json"],
    "runs-list": SORTED runs::Listed<'_> = "the stored runs" by ["runs list --json"],
    "study-experiment": DOCUMENT experiment::Document = "a published experiment as it was measured, and as it is simulated"
        by ["study compare --html --json"],
    "runs-compare": DOCUMENT Comparison = "what changed between two runs" by ["runs compare --json"],
    "runs-export": SORTED export::Whole<'_> = "all that is stored of a run" by ["runs export"],
    "runs-export-pkb": SORTED_LINES export::Published<'_> = "its figures for PerfKit Benchmarker"
        by ["runs export --format pkb"],
    "runs-export-github": SORTED export::Benchmark = "its figures for github-action-benchmark"
        by ["runs export --format github-action-benchmark"],
    "runs-import": SORTED runs::Taken = "which runs were taken over" by ["runs import --json"],
    "image": SORTED image::Document<'_> = "an image that guests boot from" by ["image build --json", "lab build --json"],
    "image-transfer": DOCUMENT image::transfer::Document<'_> = "an image that was stored or fetched"
        by ["image push --json", "image pull --json"],
    "volume": DOCUMENT volume::Changed<'_> = "a volume that was made or changed"
        by [
            "volume create --json",
            "volume attach --json",
            "volume detach --json",
            "volume snapshot --json",
            "volume resize --json"
        ],
    "volume-list": DOCUMENT volume::Listed<'_> = "the volumes of a pool" by [
            "volume list --json",
            "volume attach --from --json"
        ],
    "schema": DOCUMENT Listed = "these outputs" by ["schema --json"],
}
