//! Where `vmio guard run` has its policy from: files, or for observing an uplink alone.

use std::collections::BTreeSet;
use std::path::PathBuf;

use vmio_guard::manager::{FilesError, Texts};
use vmio_guard::planes::observe;
use vmio_model::failure::{Exit, Failure};
use vmio_model::policy::Links;
use vmio_model::rate::BitRate;

use super::{files, links};
use crate::term;

/// The policy files, read anew each time.
struct Files(Vec<PathBuf>);

impl Texts for Files {
    fn files(&self) -> Result<Vec<(String, String)>, FilesError> {
        files::read(&self.0).map_err(|e| FilesError(format!("{e:#}")))
    }

    fn links(&self, names: Option<&BTreeSet<String>>) -> Links {
        links::of_kernel(names)
    }
}

/// A policy for observing without one: every interface of a guest is in a class without limits.
struct AnyGuest(String);

impl Texts for AnyGuest {
    fn files(&self) -> Result<Vec<(String, String)>, FilesError> {
        let policy = format!(
            "[uplink.\"{}\"]\n[class.seen]\n[[interface]]\nmatch = {{ name = \"*\" }}\nclass = \"seen\"\n\
             rx_class = \"seen\"\n",
            self.0
        );
        Ok(vec![("--uplink".to_owned(), policy)])
    }

    fn links(&self, names: Option<&BTreeSet<String>>) -> Links {
        let mut links = links::of_kernel(names);
        // Most virtual links have no speed; a policy needs a capacity.
        links.speeds.entry(self.0.clone()).or_insert(NO_SPEED);
        links
    }
}

/// Capacity that is taken for an uplink without a known speed; a note says so.
const NO_SPEED: BitRate = BitRate::new(10_000_000_000);

/// The policy that a guard observes by: the files', or one for a single uplink.
pub fn observed(uplink: Option<&str>, config: Vec<PathBuf>) -> anyhow::Result<Box<dyn Texts>> {
    let Some(uplink) = uplink else {
        let files = Files(config);
        if let Err(why) = files.files() {
            let failure = Failure::new(Exit::Usage, why.to_string());
            return Err(failure
                .help("without a policy name the uplink: vmio guard run --observe --uplink eth0")
                .into());
        }
        return Ok(Box::new(files));
    };
    vmio_model::policy::interface_name(uplink).map_err(|why| Failure::new(Exit::Usage, why.to_string()))?;
    // By netlink: sysfs may be that of another network namespace.
    if !observe::links()?.contains_key(uplink) {
        let failure = Failure::new(Exit::Usage, format!("no such interface: {uplink}"));
        return Err(failure.help("`ip link` lists the interfaces").into());
    }
    if !links::of_kernel(Some(&[uplink.to_owned()].into())).speeds.contains_key(uplink) {
        term::note(&format!(
            "{uplink} does not report its speed: {NO_SPEED} is assumed; correct it in the proposed policy"
        ));
    }
    Ok(Box::new(AnyGuest(uplink.to_owned())))
}

/// The files of a policy that is to be put in force.
pub fn policy(config: Vec<PathBuf>) -> anyhow::Result<Box<dyn Texts>> {
    files::read(&config).map_err(|why| {
        why.context(Failure::new(Exit::Usage, "there is no policy to put in force").help(
            "name the policy's file or directory with --config; without one yet, `vmio guard run --observe --uplink \
             eth0` proposes one",
        ))
    })?;
    Ok(Box::new(Files(config)))
}
