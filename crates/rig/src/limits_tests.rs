//! Which processors and files, on trees of either version of control groups.

#![allow(clippy::unwrap_used)]
use super::*;
use vmio_node::fake::Tree;

const MIB: u64 = 1 << 20;
const V1: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n31 23 0:28 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,relatime,cpuset\n\
                  31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,relatime,memory\n31 23 0:28 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
                  31 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,relatime\n";
const NO_SWAP: (&str, &str) = ("/proc/swaps", "Filename Type Size Used Priority\n");
const SWAP: (&str, &str) = ("/proc/swaps", "Filename Type Size Used Priority\n/dev/sda3 partition 1 0 -2\n");

fn v1(swaps: (&str, &str), memsw: bool) -> Tree {
    let mut files = vec![
        ("/proc/self/mountinfo", V1),
        swaps,
        ("/sys/fs/cgroup/unified/cgroup.subtree_control", ""),
        ("/sys/fs/cgroup/cpuset/cpuset.cpus", "0-3,8\n"),
        ("/sys/fs/cgroup/cpuset/cpuset.mems", "0-1\n"),
    ];
    if memsw {
        files.push(("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "1\n"));
    }
    Tree::of(&files)
}

fn v2(controllers: &str, swaps: (&str, &str)) -> Tree {
    Tree::of(&[
        ("/proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
        swaps,
        ("/sys/fs/cgroup/cgroup.subtree_control", controllers),
        ("/sys/fs/cgroup/cpuset.cpus.effective", "0-1\n"),
    ])
}

fn planned(tree: &Tree, cores: u32) -> Result<(Vec<(String, String)>, String), Unheld> {
    let (settings, described) = plan(tree, &find(tree, "g")?, &Share::of(cores, 256 * MIB))?;
    Ok((settings.into_iter().map(|(p, v)| (p.display().to_string(), v)).collect(), described))
}

#[test]
fn version_1() {
    let (settings, described) = planned(&v1(NO_SWAP, true), 2).unwrap();
    let expected = [
        ("/sys/fs/cgroup/cpuset/g/cpuset.cpus", "3,8"),
        ("/sys/fs/cgroup/cpuset/g/cpuset.mems", "0-1"),
        ("/sys/fs/cgroup/memory/g/memory.limit_in_bytes", "268435456"),
        ("/sys/fs/cgroup/memory/g/memory.memsw.limit_in_bytes", "268435456"),
    ];
    assert_eq!(settings, expected.map(|(p, v)| (p.to_owned(), v.to_owned())));
    assert_eq!(described, "cgroup v1: cpuset 3,8, memory 256 MiB, no swap");
    assert!(planned(&v1(SWAP, false), 1).unwrap().1.contains("swap not limited"), "never silent");
    assert!(planned(&v1(NO_SWAP, false), 1).unwrap().1.contains("no swap"));
}

#[test]
fn version_2_with_cpuset_or_a_quota() {
    let (settings, described) = planned(&v2("cpuset cpu io memory pids", SWAP), 1).unwrap();
    assert_eq!(described, "cgroup v2: cpuset 1, memory 256 MiB, no swap");
    assert!(settings.contains(&("/sys/fs/cgroup/g/memory.swap.max".into(), "0".into())));
    let (settings, described) = planned(&v2("cpu memory pids", NO_SWAP), 2).unwrap();
    assert_eq!(described, "cgroup v2: CPU quota 2, memory 256 MiB, no swap");
    assert!(settings.contains(&("/sys/fs/cgroup/g/cpu.max".into(), "200000 100000".into())));
}

#[test]
fn a_side_stays_on_the_cpus_that_vmio_was_started_on() {
    let taskset = |tree: Tree| tree.file("/proc/self/status", "Name:\tvmio\nCpus_allowed_list:\t0,2\n", (0, 1));
    let (settings, described) = planned(&taskset(v1(NO_SWAP, true)), 2).unwrap();
    assert_eq!(settings[0], ("/sys/fs/cgroup/cpuset/g/cpuset.cpus".to_owned(), "0,2".to_owned()));
    assert_eq!(forecast(&taskset(v1(NO_SWAP, true)), &Share::of(2, 256 * MIB)).unwrap(), described);
    assert_eq!(
        planned(&taskset(v2("cpuset memory", NO_SWAP)), 1).unwrap().1,
        "cgroup v2: cpuset 0, memory 256 MiB, no swap"
    );
    assert_eq!(usable_cpus(&taskset(Tree::default())), Some(2));
    assert_eq!(usable_cpus(&Tree::default()), None);
}

#[test]
fn sides_that_work_at_once_have_processors_of_their_own() {
    let held = |tree: &Tree, share: Share| plan(tree, &find(tree, "g")?, &share).map(|(_, described)| described);
    let one =
        |taken: &[u32], pins: &[u32]| Share { taken: taken.to_vec(), pins: pins.to_vec(), ..Share::of(1, 256 * MIB) };
    let cpus = |share: Share| {
        held(&v1(NO_SWAP, true), share).map(|said| {
            said.trim_start_matches("cgroup v1: cpuset ").trim_end_matches(", memory 256 MiB, no swap").to_owned()
        })
    };
    let all = [0, 1, 2, 3, 8];
    assert_eq!([&[][..], &[8], &[8, 3, 2, 1]].map(|taken| cpus(one(taken, &[])).unwrap()), ["8", "3", "0"]);
    assert_eq!(
        cpus(one(&[&all[..], &[8, 3]].concat(), &[])).unwrap(),
        "2",
        "they share evenly where there are no more"
    );
    assert_eq!(cpus(Share { cores: 2, ..one(&[1, 2, 3, 8], &[]) }).unwrap(), "0,8");
    assert_eq!(cpus(Share { cores: 4, ..one(&[], &[1, 0]) }).unwrap(), "0,1");
    assert_eq!((cpus(one(&[1], &[1, 0])).unwrap(), cpus(one(&[1], &[1])).unwrap()), ("0".into(), "1".into()));
    let tree = v1(NO_SWAP, true);
    assert_eq!(chosen(&tree, &Share { cores: 2, ..one(&[3], &[]) }), [2, 8]);
    assert_eq!(
        (chosen(&v2("cpu memory", NO_SWAP), &one(&[], &[])), chosen(&Tree::default(), &one(&[], &[]))),
        (vec![], vec![])
    );
    let said = cpus(one(&[], &[4])).unwrap_err().to_string();
    assert!(said.contains("processor 4 is asked for and vmio may use 0,1,2,3,8"), "{said}");
    assert_eq!(held(&v2("cpu memory", NO_SWAP), one(&[], &[1])), Err(Unheld::NoCpuset));
}

/// Each processor counts once, and a list that is none fills no memory.
#[test]
fn lists_of_processors_are_believed_as_far_as_they_are_some() {
    let online = |list: &str| {
        let tree = v2("cpuset memory", NO_SWAP);
        planned(&tree.file("/sys/fs/cgroup/cpuset.cpus.effective", list, (0, 1)), 2)
    };
    assert_eq!(online("0-1,1\n").unwrap().1, "cgroup v2: cpuset 0,1, memory 256 MiB, no swap");
    assert_eq!(online("1,1\n"), Err(Unheld::TooManyCores { cores: 2, usable: 1 }));
    for none in ["0-4294967295", "0-1,x", "1-0"] {
        assert_eq!(online(none), Err(Unheld::NoList(none.to_owned())));
    }
}

#[test]
fn a_mount_of_groups_may_have_a_blank_in_its_path() {
    let tree = Tree::of(&[
        ("/proc/self/mountinfo", "31 23 0:28 / /my\\040groups rw - cgroup2 cgroup2 rw\n"),
        NO_SWAP,
        ("/my groups/cgroup.subtree_control", "cpu memory\n"),
    ]);
    let (settings, _) = planned(&tree, 1).unwrap();
    assert_eq!(settings[0].0, "/my groups/g/memory.max");
}

#[test]
fn what_is_missing_is_named() {
    for (tree, cores, word) in [
        (v2("pids", NO_SWAP), 1, "subtree_control"),
        (v2("cpu memory", NO_SWAP), 0, "0 cores"),
        (v2("cpuset memory", NO_SWAP), 3, "3 cores"),
        (v1(NO_SWAP, true), 6, "may use 5"),
        (v1(NO_SWAP, true).file("/proc/self/status", "Cpus_allowed_list:\t0-1\n", (0, 1)), 3, "may use 2"),
        (Tree::of(&[("/proc/self/mountinfo", "31 23 0:28 / /proc rw - proc proc rw\n")]), 1, "no control groups"),
        (Tree::of(&[("/proc/self/mountinfo", "31 23 0:28 / /c rw - cgroup c rw,cpuset\n")]), 1, "lack memory"),
    ] {
        match planned(&tree, cores) {
            Err(why) => assert!(why.to_string().contains(word), "{why}"),
            // A quota of no cores would stop the side.
            Ok(got) => panic!("{word}: {got:?}"),
        }
    }
}
