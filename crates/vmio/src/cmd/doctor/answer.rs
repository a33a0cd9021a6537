//! The answer, which comes last: what this host is ready for, what was not tried, and what it is not ready for and why.

use super::tried::Tried;
use super::tries::{Attempt, State};
use crate::fit;

/// What a host is used for.
struct Purpose {
    name: &'static str,
    /// Names of the trials that it rests on.
    trials: &'static [&'static str],
    /// A stored run that used one of these shows that it works, by extension point and name.
    shown: &'static [(&'static str, &'static str)],
}

/// The first is what `Ability::needed` speaks of.
const PURPOSES: [Purpose; 4] = [
    Purpose {
        name: "measuring guests",
        trials: &["guest image", "guest, emulated", "vmio-cpu", "fio"],
        shown: &[("image", "guest image")],
    },
    Purpose {
        name: "measuring networks",
        trials: &["network", "iperf3", "vmio-udp"],
        shown: &[("workload", "iperf3-tcp")],
    },
    Purpose { name: "disk use in vmio top", trials: &["eBPF of top"], shown: &[("probe", "block tracing")] },
    Purpose { name: "vmio guard run", trials: &["network", "eBPF of the guard"], shown: &[] },
];

/// Why a host is not ready for something; empty where nothing is missing and nothing failed.
fn why_not(of: &[&Attempt], lacking: &[&'static str]) -> String {
    let mut missing = lacking.to_vec();
    let mut failed = Vec::new();
    for attempt in of {
        match &attempt.state {
            State::Lacking(name, _) if !missing.contains(name) => missing.push(*name),
            State::Broken(_) => failed.push(attempt.name()),
            _ => {}
        }
    }
    let is = if missing.len() == 1 { "is" } else { "are" };
    let missing = (!missing.is_empty()).then(|| format!("{} {is} missing", missing.join(", ")));
    let failed = (!failed.is_empty()).then(|| format!("{} failed when tried", failed.join(", ")));
    missing.into_iter().chain(failed).collect::<Vec<_>>().join(" and ")
}

/// A line for each: what is ready, what was not tried, what is not ready. `lacking`: names of what measuring needs.
pub(super) fn text(lacking: &[&'static str], attempts: &[Attempt], tried: &Tried) -> String {
    let (mut ready, mut untried, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    for (i, purpose) in PURPOSES.iter().enumerate() {
        let of: Vec<&Attempt> = attempts.iter().filter(|a| purpose.trials.contains(&a.name())).collect();
        let why = why_not(&of, if i == 0 { lacking } else { &[] });
        let worked = of.iter().all(|attempt| matches!(attempt.state, State::Worked(_)));
        let shown = purpose.shown.iter().any(|&(point, name)| tried.has(point, name));
        let run = tried.run.filter(|_| i == 0).map(|run| format!(" (a guest ran here: run {run})"));
        match (why.is_empty(), worked || shown) {
            (false, _) => lines.push(format!("Not for {} because {why}.", purpose.name)),
            (true, true) => ready.push(format!("{}{}", purpose.name, run.unwrap_or_default())),
            (true, false) => untried.push(purpose.name),
        }
    }
    if !untried.is_empty() {
        let what = untried.join(", ");
        lines.insert(0, format!("Found, not tried: nothing is missing for {what}. To try: vmio doctor --try"));
    }
    if !ready.is_empty() {
        lines.insert(0, format!("Ready for {}.", ready.join(", ")));
    }
    lines.iter().map(|line| fit::paragraph("", 0, line)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use vmio_node::Fake;

    use super::super::work::Failed;
    use super::*;

    fn with(state: impl Fn(&str) -> State) -> Vec<Attempt> {
        let mut all = Attempt::found(&Fake::new("bare"), &mut BTreeMap::new(), None);
        all.iter_mut().for_each(|attempt| attempt.state = state(attempt.name()));
        all
    }

    fn said(lacking: &[&'static str], state: impl Fn(&str) -> State) -> String {
        text(lacking, &with(state), &Tried::default()).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn each_purpose_is_named_once_with_why_it_is_not_ready() {
        let failed = || Failed { why: "it ended".into(), mend: "install it".into() };
        let worked = said(&[], |_| State::Worked(Duration::from_secs(1)));
        assert_eq!(worked, "Ready for measuring guests, measuring networks, disk use in vmio top, vmio guard run.");
        let found = said(&[], |_| State::Found);
        assert!(found.starts_with("Found, not tried: nothing is missing for measuring guests, "), "{found}");
        assert!(found.ends_with("vmio doctor --try") && !found.contains("Ready"), "{found}");
        let mixed = said(&["vmio-agent"], |name| match name {
            "guest image" => State::Lacking("vmio-agent", failed()),
            "guest, emulated" | "guest, KVM" => State::Waits("guest image", failed()),
            "iperf3" => State::Broken(failed()),
            _ => State::Worked(Duration::from_secs(1)),
        });
        assert_eq!(
            mixed,
            "Ready for disk use in vmio top, vmio guard run. Not for measuring guests because vmio-agent is missing. \
             Not for measuring networks because iperf3 failed when tried."
        );
    }

    #[test]
    fn purposes_name_trials_that_there_are() {
        let all = with(|_| State::Found);
        for name in PURPOSES.iter().flat_map(|purpose| purpose.trials) {
            assert!(all.iter().any(|attempt| attempt.name() == *name), "{name}");
        }
    }
}
