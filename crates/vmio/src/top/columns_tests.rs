use super::*;

const ALL_KNOWN: Known = Known { guard: true, calls: true };

#[test]
fn every_column_has_a_key_and_a_name_of_its_own() {
    // Keys that the program uses itself.
    let taken = ['q', 'p', '/', '+', '-', 'h', 'j', 'k', ' ', '?', '1', '2', '3', '4', '5'];
    for (i, column) in ALL.iter().enumerate() {
        assert!(!taken.contains(&column.key), "{}", column.name);
        assert!(ALL[..i].iter().all(|c| c.key != column.key && c.name != column.name), "{} twice", column.name);
        assert!(column.title.chars().count() <= usize::from(column.width), "{}", column.name);
        assert!(find(column.name).is_some());
    }
    assert!(find("nothing").is_none());
    for set in Set::ALL {
        assert_eq!((Set::find(set.name()), set.step(1).step(-1)), (Some(set), set));
    }
    assert_eq!((Set::Overview.step(1), Set::Overview.step(-1)), (Set::Disk, Set::Guard));
}

#[test]
fn what_matters_stays_when_it_gets_narrow() {
    let titles = |w, set| fitting(w, 17, set, ALL_KNOWN).iter().map(|c| c.title).collect::<Vec<_>>();
    let overview = ["CPU%", "HOST%", "MEM", "WAIT%", "MB/s", "NETMb", "DROP", "WORST WAIT"];
    // With the longest name that is not cut and a VMID, all of these have room in 80 columns.
    assert_eq!(fitting(80, 17 + 5, Set::Overview, ALL_KNOWN).iter().map(|c| c.title).collect::<Vec<_>>(), overview);
    assert_eq!(titles(40, Set::Overview), ["CPU%", "WAIT%"]);
    assert_eq!(titles(80, Set::Disk)[..4], ["CPU%", "DISK%", "R/s", "W/s"]);
    let shown = |c: &&Column| c.name != "load";
    assert_eq!(fitting(300, 17, Set::Overview, ALL_KNOWN).len(), ALL.iter().filter(shown).count());
    let none = Known { guard: false, calls: false };
    assert!(fitting(300, 17, Set::Overview, none).iter().all(|c| !["HELD%", "KERNEL"].contains(&c.title)));
    assert!(titles(125, Set::Overview).contains(&"HELD%"), "a guard's come first");
    for set in Set::ALL {
        for (width, guard) in (40..=220).flat_map(|w| [(w, true), (w, false)]) {
            let columns = fitting(width, 17, set, Known { guard, calls: !guard });
            let needed: u16 = 17 + columns.iter().map(|c| c.width + 1).sum::<u16>();
            assert!(columns.first().is_some_and(|c| c.title == "CPU%"), "{set:?} {width}");
            assert!(needed <= width, "{set:?} {width}: {needed}");
        }
    }
}
