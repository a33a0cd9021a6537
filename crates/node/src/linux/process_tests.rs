#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Fake, Local};

#[test]
fn processes_and_their_words() {
    let fake = Fake::new("fake")
        .process(7, "sh", &["sh", "-c", "x", ""], Some(&["A=1", "B=x=y", "A=2"]), &[7, 9])
        .file("/proc/8/cmdline", "")
        .file("/proc/8/comm", " a b \n")
        .file("/proc/meminfo", "");
    assert_eq!((all(&fake).unwrap(), threads(&fake, 7).unwrap()), (vec![7, 8], vec![7, 9]));
    assert_eq!(command_line(&fake, 7).unwrap(), ["sh", "-c", "x"]);
    assert_eq!(command_line(&fake, 8).unwrap(), [""; 0]);
    assert!(command_line(&fake, 9).is_err() && threads(&fake, 9).is_err());
    // A name may begin and end with a blank.
    assert_eq!(comm(&fake, 8).unwrap(), " a b ");
    assert_eq!(variable_of(&fake, 7, "A").as_deref(), Some("1"));
    assert_eq!(variable_of(&fake, 7, "B").as_deref(), Some("x=y"));
    assert_eq!((variable_of(&fake, 7, "C"), variable_of(&fake, 8, "A")), (None, None));
}

#[test]
fn long_files_are_read_to_a_bound() {
    let long = "x".repeat(COMMAND_LINE_BYTES) + "\0tail\0";
    let fake = Fake::new("fake").file("/proc/7/cmdline", long);
    assert_eq!(command_line(&fake, 7).unwrap(), ["x".repeat(COMMAND_LINE_BYTES)]);
    let environ = format!("{}\0V=1\0", "x".repeat(ENVIRONMENT_BYTES));
    assert_eq!(variable_of(&Fake::new("fake").file("/proc/7/environ", environ), 7, "V"), None);
}

#[test]
fn unreadable_namespaces_count_as_ours() {
    let fake = Fake::new("fake")
        .symlink("/proc/self/ns/net", "net:[1]")
        .symlink("/proc/7/ns/net", "net:[1]")
        .symlink("/proc/8/ns/net", "net:[2]");
    let same = |pid| same_namespace(&fake, pid, "net");
    assert_eq!((same(7), same(8), same(9)), (true, false, true));
}

#[test]
fn descriptor_numbers_and_links() {
    let fake = Fake::new("fake")
        .symlink("/proc/7/fd/3", "socket:[12]")
        .symlink("/proc/7/fd/10", "/dev/kvm")
        .file("/proc/7/fd/11", "");
    let mut found = descriptors(&fake, 7).unwrap();
    found.sort();
    assert_eq!(found, [(3, "socket:[12]".into()), (10, "/dev/kvm".into()), (11, PathBuf::new())]);
    assert_eq!(sockets(&fake, 7).unwrap(), [12]);
    assert_eq!(descriptor(&fake, 7, 10).unwrap(), Some("/dev/kvm".into()));
    assert!(descriptors(&fake, 8).is_err());
    assert_eq!(fdinfo("pos:\t0\nflags:\t02104002\niff:\tvnet7\n", "iff"), Some("vnet7"));
    assert_eq!(fdinfo("pos:\t0\n", "iff"), None);
}

#[test]
fn fields_of_a_status() {
    let text = "Name:\tqemu: kvm\nTgid:\t8\nPid:\t9\nUid:\t1\t2\t3\t64055\nGid:\t5\t6\t7\t108\nGroups:\t108 993 \n\
                NSpid:\t9\t1\nVmRSS:\t  2048 kB\nVmSwap:\t1 kB\nCapEff:\t000001ffffffffff\nCpus_allowed_list:\t0-1,4\n";
    let status = Status::of_text(text.to_owned());
    assert_eq!((status.name(), status.process(), status.inner_number()), ("qemu: kvm", Some(8), Some(1)));
    assert_eq!((status.users(), status.groups()), (Some([1, 2, 3, 64_055]), Some([5, 6, 7, 108])));
    assert_eq!(status.supplementary_groups(), Some(vec![108, 993]));
    assert_eq!((status.cpus(), status.resident_bytes()), (Some(vec![0, 1, 4]), Some(2 << 20)));
    assert_eq!((status.capabilities(), status.swapped_bytes()), (Some(0x1ff_ffff_ffff), Some(1024)));
    let none = Status::of_text("Name:\tkthreadd\nUid:\t0\t0\n".to_owned());
    assert_eq!((none.users(), none.cpus(), none.resident_bytes()), (None, None, None));
    // `VmRSS` is not `VmRSSx`, and a name in a name is none.
    assert_eq!(Status::of_text("Named:\tx\nx Name:\ty\n".to_owned()).name(), "");
    let own = Status::of(&Local::new(), "self").unwrap();
    assert_eq!(own.process(), Some(std::process::id()));
    assert!(!own.cpus().unwrap().is_empty() && own.resident_bytes().unwrap() > 0);
}

#[test]
fn stat_with_brackets_in_the_name() {
    let text = "77 (a) R 1 (b) T 5 77 77 0 -1 4194304 300 0 0 0 150 50 0 0 20 0 5 0 1234 1000 200\n";
    let stat = Stat::parse(text).unwrap();
    assert_eq!((stat.number, stat.comm, stat.is_stopped(), stat.parent()), (77, "a) R 1 (b", true, Some(5)));
    assert_eq!((stat.run_seconds(), stat.start_ticks()), (Some(2.0), Some(1234)));
    let short = Stat::parse("7 (q) S 1").unwrap();
    assert!(!short.is_stopped() && short.run_seconds().is_none() && short.start_ticks().is_none());
    assert!(Stat::parse("").is_none() && Stat::parse("7 q S").is_none());
}

#[test]
fn times_of_threads() {
    let parsed = Schedstat::parse("12 34 5\n").unwrap();
    assert_eq!((parsed.run_ns, parsed.wait_ns, parsed.slices, parsed.counts()), (12, 34, 5, true));
    for none in ["", "1", "1 2", "1 2 x", "-1 2 3"] {
        assert_eq!(Schedstat::parse(none), None, "{none}");
    }
    // A kernel that does not count says so with the same form.
    assert!(!Schedstat::parse("0 0 0\n").unwrap().counts());
    assert_eq!(io_bytes("rchar: 1\nread_bytes: 4096\nwrite_bytes: 8192\n"), Some((4096, 8192)));
    assert_eq!(io_bytes("rchar: 1\n"), None);
}

#[test]
fn descriptors_of_taps() {
    let head = "pos:\t0\nflags:\t0104002\nmnt_id:\t25\nino:\t90\n";
    let fake = Fake::new("fake")
        .file("/proc/7/fdinfo/3", format!("{head}iff:\ttap 0\n"))
        .file("/proc/7/fdinfo/4", format!("{head}iff:\t\n"))
        .file("/proc/7/fdinfo/5", head)
        .file("/proc/7/fdinfo/6", "not iff:\tx\n");
    let of_tun: Vec<u32> = (3..9).filter(|fd| is_of_tun(&fake, 7, *fd)).collect();
    assert_eq!(of_tun, [3]);
    let numbers = descriptor_numbers(&Local::new(), std::process::id()).unwrap();
    assert!(!numbers.is_empty() && numbers.is_sorted());
    assert!(!numbers.iter().any(|fd| is_of_tun(&Local::new(), std::process::id(), *fd)));
}
