//! The forms of a report on the command line: what is printed, and which files are written.

use std::path::{Path, PathBuf};

use vmio_model::cell::Cell;
use vmio_model::failure::{Exit, Failure};

use super::{Report, html, json, markdown, qm, short, text, xml};
use crate::context::Context;
use crate::{files, term};

/// How a report is shown; the default is text.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Forms {
    /// Also write the report to one HTML file that loads nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print the report as Markdown
    #[arg(long, conflicts_with = "json")]
    pub markdown: bool,
    /// Print every table and setting, not only the short report
    #[arg(long, short, conflicts_with_all = ["json", "markdown"])]
    pub verbose: bool,
    /// Also write the best setup found as libvirt XML
    #[arg(long, value_name = "FILE")]
    pub write_xml: Option<PathBuf>,
    /// Also write the best setup found as Proxmox commands (qm)
    #[arg(long, value_name = "FILE")]
    pub write_qm: Option<PathBuf>,
}

impl Forms {
    fn files(&self) -> impl Iterator<Item = &Path> {
        [&self.html, &self.write_xml, &self.write_qm].into_iter().flatten().map(PathBuf::as_path)
    }

    /// Whether any file is wanted.
    pub fn writes(&self) -> bool {
        self.files().next().is_some()
    }

    /// Refuses files that cannot be written, before anything is measured.
    pub fn check(&self) -> Result<(), Failure> {
        let writable = |file: &&Path| {
            let dir = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            dir.is_dir() && !file.is_dir()
        };
        match self.files().find(|file| !writable(file)) {
            None => Ok(()),
            Some(file) => Err(files::unwritable(file)),
        }
    }

    /// Refuses a set-up file (XML, qm) for cells that have none: only disks of guests that are compared have one.
    pub fn suits(&self, what: &str, cells: &[Cell]) -> Result<(), Failure> {
        let option = match (&self.write_xml, &self.write_qm) {
            (Some(_), _) => "--write-xml",
            (None, Some(_)) => "--write-qm",
            (None, None) => return Ok(()),
        };
        if cells.iter().any(|cell| cell.attachment().is_some()) {
            return Ok(());
        }
        let why = format!("no guest of {what} works on a disk, and {option} writes how the best disk is set up");
        Err(Failure::new(Exit::Usage, why).help(format!("leave out {option}")))
    }

    /// Refuses files where there is no report to write to them.
    pub fn has_no_report(&self) -> Result<(), Failure> {
        let options = [(&self.html, "--html"), (&self.write_xml, "--write-xml"), (&self.write_qm, "--write-qm")];
        match options.into_iter().find(|(file, _)| file.is_some()) {
            None => Ok(()),
            Some((_, option)) => {
                Err(Failure::new(Exit::Usage, format!("--noise makes no report that {option} could write"))
                    .help(format!("leave out {option}; --json prints its figures for programs")))
            }
        }
    }

    /// Prints the report and writes the files.
    pub fn show(&self, report: &Report<'_>, context: &Context) -> anyhow::Result<()> {
        if context.json {
            term::print_exact(&json(report))?;
        } else if self.markdown {
            term::print(&markdown(report))?;
        } else if self.verbose {
            term::print(&text(report, context.style))?;
        } else {
            term::print(&short(report, context.style, term::width()))?;
        }
        self.write(report)
    }

    /// Writes the files.
    pub fn write(&self, report: &Report<'_>) -> anyhow::Result<()> {
        if let Some(file) = &self.html {
            write(file, "report", &html(report))?;
        }
        for (file, what, make) in [
            (&self.write_xml, "libvirt XML of the best set-up", xml as fn(&_, &_) -> String),
            (&self.write_qm, "Proxmox commands for the best set-up", qm),
        ] {
            let Some(file) = file else { continue };
            match &report.best {
                Some(best) => write(file, what, &make(report.run, best))?,
                None => term::note(&format!(
                    "{} was not written: no set-up of run {} can be called the best",
                    file.display(),
                    report.run.id
                )),
            }
        }
        Ok(())
    }
}

fn write(file: &Path, what: &str, content: &str) -> anyhow::Result<()> {
    files::write(file, content)?;
    term::note(&format!("{what} written to {}", file.display()));
    Ok(())
}
