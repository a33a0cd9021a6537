//! vmio's own static programs that go into an image, checked that guests of its processor can run them.

use std::fs;
use std::path::{Path, PathBuf};

use vmio_look::require::Missing;
use vmio_model::cell::Arch;
use vmio_node::{Node, Reader};

use super::{Error, Result, elf, file_error};
use crate::ours::{self, AGENT, Own};

/// The agent, checked that it can be the first process of a guest, where there is no library yet.
pub fn agent(node: &dyn Node, arch: Arch) -> Result<Vec<u8>> {
    read_static(&path(node, AGENT, arch)?, arch)
}

/// Whether the agent of this host's guests is there and can be the first process.
pub fn check(node: &dyn Reader) -> std::result::Result<(), Missing> {
    let arch = Arch::default();
    let path = AGENT.find_for(arch, node).map_err(|_| Missing::OwnProgram(AGENT.name))?;
    is_fit(&path, &node.read(&path)?, arch).map_err(|e| Missing::Unlike(e.to_string()))
}

/// Where a program of vmio's own is for a processor.
pub fn path(node: &dyn Node, own: Own, arch: Arch) -> Result<PathBuf> {
    own.find_for(arch, node.reader()).map_err(|tried| Error::NoAgent {
        name: own.name,
        arch,
        variable: own.variable_for(arch),
        tried: tried.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", "),
    })
}

/// A static program for a processor.
pub fn read_static(path: &Path, arch: Arch) -> Result<Vec<u8>> {
    let program = fs::read(path).map_err(file_error("read", path))?;
    is_fit(path, &program, arch).map(|()| program)
}

/// Whether a program is a static one for a processor.
fn is_fit(path: &Path, program: &[u8], arch: Arch) -> Result<()> {
    if let Some(is) = elf::arch(program).filter(|is| *is != arch) {
        let mend = format!("build it with `{}`", ours::make(arch));
        return Err(Error::WrongArch { path: path.into(), is, wanted: arch, mend });
    }
    if elf::is_static(program) { Ok(()) } else { Err(Error::AgentNotStatic { path: path.into(), arch }) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_static_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("agent");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let said = |arch: Arch| read_static(&script, arch).unwrap_err().to_string();
        assert!(said(Arch::X86_64).contains("static") && said(Arch::X86_64).contains("`make agent`"));
        assert!(said(Arch::Aarch64).contains("`make agent-arm64`"));
    }

    /// The running program is one of this host, whatever that is.
    #[test]
    fn a_program_for_another_processor_is_no_init() {
        let own = std::env::current_exe().unwrap();
        let said = read_static(&own, Arch::Aarch64).unwrap_err().to_string();
        assert!(said.contains("is for x86_64, and the guest's processor is aarch64: build it"), "{said}");
    }
}
