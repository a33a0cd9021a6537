//! The studies that come with vmio, and those of the user.

use std::path::Path;

use anyhow::Context as _;
use vmio_model::failure::{Exit, Failure};
use vmio_model::study::Study;

/// The studies that come with vmio: (name, TOML). One line a file of `studies/`.
pub const ALL: &[(&str, &str)] = &[
    ("quick", include_str!("../../../studies/quick.toml")),
    ("full", include_str!("../../../studies/full.toml")),
    ("sparse", include_str!("../../../studies/sparse.toml")),
    ("shafer2010-storage", include_str!("../../../studies/shafer2010-storage.toml")),
    ("shafer2010-modelled", include_str!("../../../studies/shafer2010-modelled.toml")),
    ("shafer2010-ebs", include_str!("../../../studies/shafer2010-ebs.toml")),
    ("shafer2010-hadoop", include_str!("../../../studies/shafer2010-hadoop.toml")),
    ("object-store", include_str!("../../../studies/object-store.toml")),
    ("hadoop-hdfs", include_str!("../../../studies/hadoop-hdfs.toml")),
    ("async-reads", include_str!("../../../studies/async-reads.toml")),
    ("durability", include_str!("../../../studies/durability.toml")),
    ("backends", include_str!("../../../studies/backends.toml")),
    ("light", include_str!("../../../studies/light.toml")),
    ("read-ahead", include_str!("../../../studies/read-ahead.toml")),
    ("cpu-quick", include_str!("../../../studies/cpu-quick.toml")),
    ("rasmusson2013", include_str!("../../../studies/rasmusson2013.toml")),
    ("rasmusson2013-network", include_str!("../../../studies/rasmusson2013-network.toml")),
    ("hdparm", include_str!("../../../studies/hdparm.toml")),
    ("hdparm-nfs", include_str!("../../../studies/hdparm-nfs.toml")),
    ("page-cache", include_str!("../../../studies/page-cache.toml")),
    ("page-cache-beside", include_str!("../../../studies/page-cache-beside.toml")),
    ("lu2016", include_str!("../../../studies/lu2016.toml")),
    ("lu2016-quick", include_str!("../../../studies/lu2016-quick.toml")),
    ("lu2016-flash", include_str!("../../../studies/lu2016-flash.toml")),
    ("lu2016-flash-quick", include_str!("../../../studies/lu2016-flash-quick.toml")),
    ("lu2016-flash-native", include_str!("../../../studies/lu2016-flash-native.toml")),
    ("memory-place", include_str!("../../../studies/memory-place.toml")),
    ("network-quick", include_str!("../../../studies/network-quick.toml")),
    ("neighbours", include_str!("../../../studies/neighbours.toml")),
    ("network-settings", include_str!("../../../studies/network-settings.toml")),
    ("shafer2010-network", include_str!("../../../studies/shafer2010-network.toml")),
    ("amamou2012", include_str!("../../../studies/amamou2012.toml")),
    ("amamou2012-quick", include_str!("../../../studies/amamou2012-quick.toml")),
    ("amamou2012-periods", include_str!("../../../studies/amamou2012-periods.toml")),
    ("amamou2012-variants", include_str!("../../../studies/amamou2012-variants.toml")),
    ("amamou2012-300s", include_str!("../../../studies/amamou2012-300s.toml")),
    ("disk-sla", include_str!("../../../studies/disk-sla.toml")),
    ("remote", include_str!("../../../studies/remote.toml")),
    ("wire", include_str!("../../../studies/wire.toml")),
    ("arm", include_str!("../../../studies/arm.toml")),
];

/// Help for a file that is no study.
const START: &str = "`vmio study list` names those that come with vmio; `vmio study show quick` prints one, to start \
                     your own file from";

/// A study by its name, or from a file when the word is a path (has a `/` or ends in `.toml`).
pub fn named(word: &str) -> anyhow::Result<Study> {
    if let Some((name, text)) = ALL.iter().find(|(name, _)| *name == word) {
        return parse(&format!("studies/{name}.toml"), text);
    }
    if word.contains('/') || word.ends_with(".toml") {
        let text = std::fs::read_to_string(Path::new(word))
            .with_context(|| Failure::new(Exit::Usage, format!("cannot read the study {word}")).help(START))?;
        return parse(word, &text);
    }
    let known: Vec<&str> = ALL.iter().map(|(name, _)| *name).collect();
    Err(Failure::new(Exit::Usage, format!("no study is called {word}"))
        .help(format!("one of {}, or the path of a TOML file", known.join(", ")))
        .into())
}

/// Reads a study; its problems are reported with file, line and key.
pub fn parse(file: &str, text: &str) -> anyhow::Result<Study> {
    Study::parse(file, text, &vmio_rig::names()).map_err(|e| {
        anyhow::Error::new(
            Failure::new(Exit::Usage, e.to_string())
                .help("docs/study.md lists the keys; `vmio study show quick` is an example"),
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The page names each study, and its examples are of entries that there are.
    #[test]
    fn the_page_on_studies_names_what_there_is() {
        let page = include_str!("../../../docs/study.md");
        for (name, _) in ALL {
            assert!(page.contains(&format!("\n| `{name}` |")), "{name}");
        }
        let words = page.split("workloads = [").skip(1).map(|rest| rest.split(']').next().unwrap_or_default());
        for word in words.flat_map(|list| list.split(", ")) {
            let word = word.trim_matches('"');
            assert!(vmio_rig::names().works_on(word).is_some(), "{word}");
        }
    }

    /// What a cell is judged by its baseline measures too, or the study is refused with its place.
    #[test]
    fn a_baseline_measures_what_is_judged() {
        let quick = ALL.iter().find(|(name, _)| *name == "network-quick").unwrap().1;
        let of = |workload: &str| quick.replace("network = \"veth\"", &format!("workload = \"{workload}\""));
        parse("mine.toml", &of("iperf3-udp")).unwrap();
        let text = of("sockperf-tcp");
        let line = text.lines().position(|line| line.starts_with("workload = ")).unwrap() + 1;
        let said = format!("{:#}", parse("mine.toml", &text).unwrap_err());
        let place = format!("mine.toml:{line}: baseline.like.workload: `sockperf-tcp` does not measure the bandwidth");
        assert!(said.contains(&place) && said.contains("`iperf3-tcp` is judged by"), "{said}");
    }

    /// Of the link of each of its cells, by a client of the guest's own and by its hypervisor's.
    #[test]
    fn a_disk_on_another_host_is_promised_its_part() {
        let study = named("disk-sla").unwrap();
        for (guard, by_guest) in [("disk-first", true), ("host-first", false)] {
            let cells: Vec<_> = study
                .cells()
                .into_iter()
                .filter(|cell| cell.settings.get("guard").is_some_and(|g| g == guard))
                .collect();
            assert!(
                !cells.is_empty() && cells.iter().all(|cell| cell.lead.attachment().is_none() == by_guest),
                "{guard}"
            );
            for cell in cells {
                let carries = cell.link_rate().unwrap();
                let contracts = study.guards[guard].contracts(cell.actors().count(), carries).unwrap();
                assert_eq!(contracts[0].min.map(|min| min.bits() * 10), Some(carries.bits() * 6));
            }
        }
    }

    #[test]
    fn another_machine_has_no_native_side() {
        let remote = ALL.iter().find(|(name, _)| *name == "remote").unwrap().1;
        let said = format!("{:#}", parse("mine.toml", &remote.replace("baseline = \"none\"\n", "")).unwrap_err());
        assert!(said.contains("baseline: there is no native side of a machine that ssh reaches"), "{said}");
    }

    /// Nothing of this host is compared with a guest of another processor, nor one such guest with another.
    #[test]
    fn a_guest_of_another_processor_has_no_share() {
        let arm = ALL.iter().find(|(name, _)| *name == "arm").unwrap().1;
        let said = |text: &str| format!("{:#}", parse("mine.toml", text).unwrap_err());
        let native = said(&arm.replace("baseline = \"none\"\n", ""));
        assert!(native.contains("has another processor than what it is compared with"), "{native}");
        let like = "[baseline.like]\nside = \"native\"\n\n[[matrix]]";
        let like = said(&arm.replace("baseline = \"none\"\n", "").replacen("[[matrix]]", like, 1));
        assert!(like.contains("has another processor"), "{like}");
        let both = said(&arm.replacen("{ arch = \"aarch64\" }", "{}, { arch = \"aarch64\" }", 1));
        assert!(both.contains("guests of x86_64 and aarch64 are in one study"), "{both}");
        let other = said(&arm.replacen("aarch64\" }", "sparc\" }", 1));
        assert!(other.contains("unknown entry `sparc`"), "{other}");
        let native =
            arm.replacen("[\"qemu\"]", "[\"native\"]", 1).replacen("shapes = [{ arch = \"aarch64\" }]\n", "", 1);
        let mixed = parse("mine.toml", &native).unwrap();
        assert!(mixed.cells().iter().any(vmio_model::cell::Cell::is_native), "absolute figures beside each other");
        // Cells of one architecture may be compared with each other.
        let like = "[baseline.like]\ntarget = \"sparse\"\n\n[[matrix]]";
        parse("mine.toml", &arm.replace("baseline = \"none\"\n", "").replacen("[[matrix]]", like, 1)).unwrap();
    }

    #[test]
    fn every_study_that_comes_with_vmio_is_valid() {
        for (name, _) in ALL {
            let study = named(name).unwrap_or_else(|e| panic!("{name}: {e:#}"));
            assert_eq!(study.name, *name);
            // What is stored reads back as the same study.
            assert_eq!(parse("stored", &study.to_toml()).unwrap_or_else(|e| panic!("{e:#}")), study);
        }
    }
}
