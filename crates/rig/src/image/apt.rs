//! apt, for packages that are unpacked and never installed. Those of another processor are read from lists of their own
//! in the state directory: this host's apt knows nothing of them, before or after.

use std::fs;
use std::path::Path;
use std::time::Duration;

use vmio_model::cell::Arch;
use vmio_node::{Exec, Node};

use super::{Result, file_error, run};

const LOOK_LIMIT: Duration = Duration::from_secs(300);
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(600);

/// apt for one kind of processor.
pub(super) struct Apt {
    options: Vec<String>,
}

impl Apt {
    /// This host's own as it is, or one with fresh lists for another processor.
    pub fn ready(node: &dyn Node, arch: Arch, state_dir: &Path) -> Result<Self> {
        if arch.is_own() {
            return Ok(Self { options: Vec::new() });
        }
        let dir = state_dir.join(format!("apt-{}", arch.debian()));
        for below in ["lists/partial", "archives/partial"] {
            let dir = dir.join(below);
            fs::create_dir_all(&dir).map_err(file_error("make", &dir))?;
        }
        let settings = [
            format!("APT::Architecture={}", arch.debian()),
            format!("APT::Architectures={}", arch.debian()),
            format!("Dir::State::Lists={}", dir.join("lists").display()),
            format!("Dir::Cache={}", dir.display()),
            "Dir::State::status=/dev/null".to_owned(),
            // The user of downloads cannot write into the state directory.
            "APT::Sandbox::User=".to_owned(),
            "Debug::NoLocking=1".to_owned(),
        ];
        let this = Self { options: settings.into_iter().flat_map(|set| ["-o".to_owned(), set]).collect() };
        run(node, &this.command("apt-get").args(["-q", "update"]).limit(DOWNLOAD_LIMIT))?;
        Ok(this)
    }

    fn command(&self, program: &str) -> Exec {
        Exec::new(program).args(&self.options)
    }

    /// What `apt-cache depends` says of a package.
    pub fn depends(&self, node: &dyn Node, package: &str) -> Result<String> {
        run(node, &self.command("apt-cache").args(["depends", package]).limit(LOOK_LIMIT))
    }

    /// What `apt-get install` of these would do to a machine on which nothing is installed.
    pub fn simulate(&self, node: &dyn Node, packages: &[&str]) -> Result<String> {
        let empty =
            ["-o", "Dir::State::status=/dev/null", "-o", "APT::Install-Recommends=0", "-o", "Debug::NoLocking=1"];
        let ask = self.command("apt-get").args(empty).args(["--simulate", "install"]).args(packages.iter().copied());
        run(node, &ask.limit(LOOK_LIMIT))
    }

    /// Downloads packages into a directory.
    pub fn download(&self, node: &dyn Node, into: &Path, packages: &[String]) -> Result<()> {
        // apt-get writes into the current directory.
        let fetch = Exec::new("sh").args(["-c", "cd \"$1\" && shift && exec apt-get \"$@\"", "sh"]);
        let fetch = fetch.args([into.to_string_lossy()]).args(&self.options).args(["-q", "download"]).args(packages);
        run(node, &fetch.limit(DOWNLOAD_LIMIT)).map(drop)
    }
}
