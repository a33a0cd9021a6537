//! What went over a network interface, by the kernel's counters (`/proc/net/dev` of its namespace). They are
//! read by a command before and after the cell, since a namespace that only vmio holds has no file of its own.

use vmio_model::figure::Reading;
use vmio_model::result::{SECONDS, WAY};
use vmio_node::Exec;
use vmio_node::linux::net::{self, Traffic};

use super::{ByCommand, Heard, Probe, ProbeMethod, ProbeSubject, Runs, Unseen};

/// Entry of the list of probes.
pub struct Link;

impl Probe for Link {
    fn name(&self) -> &'static str {
        "link"
    }
    fn about(&self) -> &'static str {
        "bytes, packets and drops of a network interface; blind to what never reached it"
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Link { .. })
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Command(&Link)
    }
}

impl ByCommand for Link {
    fn command(&self, subject: &ProbeSubject) -> Result<Exec, Unseen> {
        let ProbeSubject::Link { enter, .. } = subject else { return Err(Unseen::OtherSubject("it is not a link")) };
        Ok(Exec::new("cat").args([net::traffic_file().display().to_string()]).behind(enter))
    }
    fn runs(&self) -> Runs {
        Runs::AtEnds
    }
    fn conclude(&self, subject: &ProbeSubject, heard: &Heard, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let ProbeSubject::Link { name, .. } = subject else { return Err(Unseen::OtherSubject("it is not a link")) };
        let [(_, before), (_, after)] = heard.said.as_slice() else { return Err(Unseen::FewReadings) };
        let (before, after) = (carried(before, name)?, carried(after, name)?);
        let mut all = vec![Reading::scalar(SECONDS, heard.seconds)];
        for ((way, old), new) in ["received", "sent"].into_iter().zip(&before).zip(&after) {
            let mut put = |figure: &str, old: u64, new: u64| -> Result<(), Unseen> {
                let more = new.checked_sub(old).ok_or_else(|| Unseen::Backwards(name.clone()))?;
                all.push(Reading::scalar(figure, more as f64).with(WAY, way));
                Ok(())
            };
            put("bytes", old.bytes, new.bytes)?;
            put("packets", old.packets, new.packets)?;
            put("dropped", old.dropped, new.dropped)?;
        }
        Ok(all)
    }
}

/// What it received and sent since it appeared.
fn carried(text: &str, name: &str) -> Result<[Traffic; 2], Unseen> {
    let found = net::traffic(text).find(|(interface, ..)| *interface == name);
    let (_, received, sent) = found.ok_or_else(|| Unseen::NoInterface(name.to_owned()))?;
    Ok([received, sent])
}
