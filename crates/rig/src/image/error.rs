//! Why there is no image.

use std::io;
use std::path::{Path, PathBuf};

use vmio_model::cell::Arch;
use vmio_node::{Exec, Node};

use crate::ours::make;

/// Makes the error of a file operation.
pub(crate) fn file_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let path = path.to_owned();
    move |source| Error::File { what, path, source }
}

/// Runs a program that must succeed; returns what it printed.
pub(crate) fn run(node: &dyn Node, cmd: &Exec) -> Result<String> {
    let output = node.exec(cmd)?;
    if output.ok() {
        return Ok(output.out());
    }
    Err(Error::Tool { command: cmd.shown(), how: format!("{:?}", output.end), said: output.err().trim().to_owned() })
}

/// Result of this module.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The node failed.
    #[error(transparent)]
    Node(#[from] vmio_node::Error),
    /// A file operation failed.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A program failed.
    #[error("{command} failed ({how}): {said}")]
    Tool {
        /// As typed.
        command: String,
        /// How it ended.
        how: String,
        /// Its standard error.
        said: String,
    },
    /// A program is missing.
    #[error("no program {name} on this host: install it (vmio doctor names the package)")]
    NoProgram {
        /// Its name.
        name: &'static str,
    },
    /// A library of a program is missing.
    #[error("{}: its library {library} is not found; reinstall the package that holds the program", program.display())]
    NoLibrary {
        /// The program.
        program: PathBuf,
        /// What ldd did not find.
        library: String,
    },
    /// A file lies where the guest has no place for it.
    #[error("{} cannot be carried into a guest: only files below /usr, /bin, /lib and the like can; use the distribution's package", file.display())]
    Misplaced {
        /// The file.
        file: PathBuf,
    },
    /// Something cannot be unpacked.
    #[error("cannot unpack {}: {reason}", what.display())]
    Unpack {
        /// What.
        what: PathBuf,
        /// Why.
        reason: String,
    },
    /// A kernel module is missing.
    #[error("no module {name}{wanted_by}")]
    NoModule {
        /// Its name.
        name: String,
        /// Who needs it, as a phrase.
        wanted_by: String,
    },
    /// What the user wants guests to run is no kernel.
    #[error("{} cannot be the guests' kernel: {reason}", file.display())]
    NotAKernel {
        /// The file.
        file: PathBuf,
        /// Why.
        reason: String,
    },
    /// There are no modules where the user said so.
    #[error(
        "{} has no modules of {release}: it needs modules.builtin and kernel/, as /lib/modules/RELEASE has; leave \
         --guest-modules out where all is built in",
        dir.display()
    )]
    NoModules {
        /// The directory.
        dir: PathBuf,
        /// The kernel's release.
        release: String,
    },
    /// apt does not know the kernel package.
    #[error("apt has no package {name} (run apt-get update; vmio's guests need Debian's kernel)")]
    NoPackage {
        /// Package.
        name: String,
    },
    /// No kernel that fits.
    #[error(
        "no kernel for the guests: {refused}. On a host without network, put Debian's package \
         (linux-image-VERSION-{deb}, not the cloud one) into {} from a host that can run \
         `apt-get download`{or}",
        kept.display(),
        deb = arch.debian(),
        or = if arch.is_own() { ", or install linux-image-amd64 here" } else { "" }
    )]
    NoKernel {
        /// What was tried, with reasons.
        refused: String,
        /// For which processor.
        arch: Arch,
        /// Directory for packages.
        kept: PathBuf,
    },
    /// Packages are missing.
    #[error(
        "no packages for the {what}: {reason}. They are downloaded by apt on Debian or a derivative (run apt-get \
         update first); on a host without network, copy {} from one on which `{by}` ran",
        kept.display()
    )]
    NoPackages {
        /// For what.
        what: &'static str,
        /// The command that downloads them.
        by: &'static str,
        /// What failed.
        reason: String,
        /// Directory for packages.
        kept: PathBuf,
    },
    /// The agent is not found.
    #[error("{name} for {arch} is not found (looked for {tried}): build it with `{}`, or name it by {variable}", make(*arch))]
    NoAgent {
        /// The program.
        name: &'static str,
        /// For which processor.
        arch: Arch,
        /// The variable that names its file.
        variable: String,
        /// Paths that were tried.
        tried: String,
    },
    /// The agent cannot be an init.
    #[error("{} is not a static program and cannot be the init of a guest: build it with `{}`", path.display(), make(*arch))]
    AgentNotStatic {
        /// The file.
        path: PathBuf,
        /// For which processor.
        arch: Arch,
    },
    /// A kernel or a program is for another processor than the guest's.
    #[error("{} is for {is}, and the guest's processor is {wanted}: {mend}", path.display())]
    WrongArch {
        /// The file.
        path: PathBuf,
        /// For what it is.
        is: Arch,
        /// The guest's.
        wanted: Arch,
        /// What to do.
        mend: String,
    },
}
