//! The machine that has the control groups: this one, or a test's.

use std::io;
use std::path::Path;

use vmio_node::group::ControlGroup;
use vmio_node::held::Identity;
use vmio_node::{Local, Reader};

/// A machine with control groups.
pub trait Host {
    /// A group of it.
    type Group: Group;

    /// Its other files.
    fn reader(&self) -> &dyn Reader;

    /// The group of a directory.
    ///
    /// # Errors
    /// When there is none, or it is no group.
    fn open(&self, dir: &Path) -> io::Result<Self::Group>;

    /// Bytes of a page: limits of memory are whole pages.
    fn page_bytes(&self) -> u64;
}

/// An open control group.
pub trait Group: Sized {
    /// Its device and inode.
    fn identity(&self) -> Identity;
    /// Content of a file.
    ///
    /// # Errors
    /// When it is not there, or the group is gone.
    fn read(&self, file: &str) -> io::Result<String>;
    /// Writes a limit.
    ///
    /// # Errors
    /// The kernel's.
    fn write(&self, file: &str, value: &str) -> io::Result<()>;
    /// Names of the groups in it.
    ///
    /// # Errors
    /// When it is gone.
    fn children(&self) -> io::Result<Vec<String>>;
    /// One of them.
    ///
    /// # Errors
    /// When it is gone.
    fn child(&self, name: &str) -> io::Result<Self>;
}

/// This machine.
#[derive(Debug)]
pub struct Here(Local);

impl Here {
    /// This machine.
    pub fn new() -> Self {
        Self(Local::new())
    }
}

impl Default for Here {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for Here {
    type Group = ControlGroup;

    fn reader(&self) -> &dyn Reader {
        &self.0
    }

    fn open(&self, dir: &Path) -> io::Result<ControlGroup> {
        ControlGroup::open(dir)
    }

    fn page_bytes(&self) -> u64 {
        rustix::param::page_size() as u64
    }
}

impl Group for ControlGroup {
    fn identity(&self) -> Identity {
        ControlGroup::identity(self)
    }
    fn read(&self, file: &str) -> io::Result<String> {
        ControlGroup::read(self, file)
    }
    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        ControlGroup::write(self, file, value)
    }
    fn children(&self) -> io::Result<Vec<String>> {
        ControlGroup::children(self)
    }
    fn child(&self, name: &str) -> io::Result<Self> {
        ControlGroup::child(self, name)
    }
}
