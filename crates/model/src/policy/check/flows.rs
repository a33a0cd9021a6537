//! Checks of flow classes: they share what an interface of their class is owed.

use super::{Check, DEFAULT, HOST};
use crate::policy::DEFAULT_PRIORITY;
use crate::policy::excess::Excess;
use crate::policy::flow::Flow;
use crate::policy::parse::{At, ClassDraft, FlowDraft};
use crate::rate::BitRate;

impl Check<'_> {
    /// The flow classes of a class; what cannot be met is noted.
    pub fn flows(&mut self, class: &str, written: &ClassDraft) -> Vec<Flow> {
        let Some(all) = &written.flows else { return Vec::new() };
        let key = format!("class.{class}.flow");
        if [HOST, DEFAULT].contains(&class) {
            self.problem(all, &key, "flow classes are of guests: write a class and an [[interface]] for it");
            return Vec::new();
        }
        let mut flows = Vec::new();
        for (at, draft) in all.value.iter().enumerate() {
            let same = |other: &&FlowDraft| {
                other.name.as_ref().zip(draft.name.as_ref()).is_some_and(|(one, two)| one.value == two.value)
            };
            if let Some((first, name)) = all.value[..at].iter().find(same).zip(draft.name.as_ref()) {
                let what = format!("`{}` stands in {}, too", name.value, self.place(&first.here));
                self.problem(name, &format!("{key}.name"), what);
            }
            self.rates(&key, draft, written.max.as_ref());
            if written.excess.as_ref().is_some_and(|drops| drops.value) {
                self.no_minimum(&key, draft);
            }
            let excess = self.excess_of_flow(&key, &named(draft), draft);
            flows.extend(flow(draft, excess));
        }
        let minima = || all.value.iter().filter_map(|flow| flow.min.as_ref());
        let sum = BitRate::of_sum(minima().map(|min| u128::from(min.value)).sum());
        let own = written.min.as_ref().map_or(BitRate::ZERO, |min| min.value);
        if let Some(first) = minima().find(|min| min.value > BitRate::ZERO).filter(|_| sum > own) {
            let of_class = match &written.min {
                Some(min) => format!("the class's own of {own} ({})", self.place(min)),
                None => "the class's own, of which it has none".to_owned(),
            };
            let what = format!("minima of {sum} in all are more than {of_class}");
            self.problem(first, &format!("{key}.min"), what);
        }
        flows
    }

    /// The bucket of a class that drops is before its queue, and tells no flow class from another.
    fn no_minimum(&mut self, key: &str, draft: &FlowDraft) {
        if let Some(min) = draft.min.as_ref().filter(|min| min.value > BitRate::ZERO) {
            let flow = named(draft);
            let what = format!("{flow}the class's excess = \"drop\" drops from all its flow classes alike");
            self.problem(min, &format!("{key}.min"), what);
        }
    }

    fn rates(&mut self, key: &str, draft: &FlowDraft, class_max: Option<&At<BitRate>>) {
        let flow = named(draft);
        if let (Some(min), Some(max)) = (&draft.min, &draft.max)
            && min.value > max.value
        {
            let what = format!("{flow}{} is above the maximum of {} ({})", min.value, max.value, self.place(max));
            self.problem(min, &format!("{key}.min"), what);
        }
        if let (Some(max), Some(whole)) = (&draft.max, class_max)
            && max.value > whole.value
        {
            let (of_class, place) = (whole.value, self.place(whole));
            let what = format!("{flow}{} is above the class's maximum of {of_class} ({place})", max.value);
            self.problem(max, &format!("{key}.max"), what);
        }
        if let Some(max) = draft.max.as_ref().filter(|max| max.value == BitRate::ZERO) {
            let what = format!("{flow}lets nothing pass; to block packets use a firewall");
            self.problem(max, &format!("{key}.max"), what);
        }
    }
}

/// How a message begins: a key has no room for its name.
fn named(draft: &FlowDraft) -> String {
    draft.name.as_ref().map_or_else(String::new, |name| format!("flow `{}`: ", name.value))
}

/// A flow class without what is wrong in it.
fn flow(draft: &FlowDraft, excess: Excess) -> Option<Flow> {
    Some(Flow {
        name: draft.name.as_ref()?.value.clone(),
        matcher: draft.matcher.as_ref()?.value.clone(),
        priority: draft.priority.as_ref().map_or(DEFAULT_PRIORITY, |p| p.value),
        min: draft.min.as_ref().map_or(BitRate::ZERO, |min| min.value),
        max: draft.max.as_ref().map(|max| max.value),
        excess,
    })
}
