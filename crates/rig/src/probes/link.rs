//! What went over a network interface, by the kernel's counters (`/proc/net/dev` of its namespace). They are
//! read by a command before and after the cell, since a namespace that only vmio holds has no file of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::summary::wires::WAY;
use vmio_node::linux::net::{self, Traffic};
use vmio_node::{Exec, Node};

use super::{ByItself, Looking, Probe, Thing, Unseen, Way};

/// How long a look may take.
const LIMIT: Duration = Duration::from_secs(10);

/// Entry of the list of probes.
pub struct Link;

impl Probe for Link {
    fn name(&self) -> &'static str {
        "link"
    }
    fn about(&self) -> &'static str {
        "bytes, packets and drops of a network interface; blind to what never reached it"
    }
    fn figures(&self, _: &Thing) -> Vec<Figure> {
        vec![
            Figure::amount("seconds", Unit::Seconds),
            Figure::amount("bytes", Unit::Bytes).by(&[WAY]),
            Figure::amount("packets", Unit::Packets).by(&[WAY]),
            Figure::amount("dropped", Unit::Packets).by(&[WAY]),
        ]
    }
    fn sees(&self, thing: &Thing) -> bool {
        matches!(thing, Thing::Link { .. })
    }
    fn way(&self) -> Way {
        Way::Own(&Link)
    }
}

impl ByItself for Link {
    fn start(&self, thing: &Thing, node: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen> {
        let Thing::Link { name, enter } = thing else { return Err(Unseen::OtherThing("it is no link")) };
        let before = read(&**node, name, enter)?;
        let (node, name, enter) = (node.clone(), name.clone(), enter.clone());
        Ok(Box::new(Counted { node, name, enter, before, began: Instant::now() }))
    }
}

struct Counted {
    node: Arc<dyn Node>,
    name: String,
    enter: Vec<String>,
    before: [Traffic; 2],
    began: Instant,
}

impl Looking for Counted {
    fn stop(self: Box<Self>, _: &mut Vec<String>) -> Result<Vec<Reading>, Unseen> {
        let after = read(&*self.node, &self.name, &self.enter)?;
        let mut all = vec![Reading::scalar("seconds", self.began.elapsed().as_secs_f64())];
        for ((way, old), new) in ["received", "sent"].into_iter().zip(&self.before).zip(&after) {
            let mut put = |figure: &str, old: u64, new: u64| -> Result<(), Unseen> {
                let more = new.checked_sub(old).ok_or_else(|| Unseen::Backwards(self.name.clone()))?;
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
fn read(node: &dyn Node, name: &str, enter: &[String]) -> Result<[Traffic; 2], Unseen> {
    let command = Exec::new("cat").args([net::traffic_file().display().to_string()]).limit(LIMIT).behind(enter);
    let output = node.exec(&command)?;
    if !output.ok() {
        return Err(Unseen::Command { command: command.shown(), said: output.err().trim().to_owned() });
    }
    let text = output.out();
    let found = net::traffic(&text).find(|(interface, ..)| *interface == name);
    let (_, received, sent) = found.ok_or_else(|| Unseen::NoInterface(name.to_owned()))?;
    Ok([received, sent])
}
