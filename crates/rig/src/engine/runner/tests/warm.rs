//! Page caches that are to serve a cell.

use vmio_model::result::Mark;
use vmio_model::study::MIB;
use vmio_node::fake::says;

use super::*;
use crate::disks::targets::CacheAt;
use crate::engine::measure::Impossible;
use crate::engine::stage::warm::{CachePlace, Warm};

/// A machine with 128 MiB left, whose commands are heard of.
fn house() -> House {
    let log = Log::default();
    let heard = log.clone();
    let node = Fake::new("fake")
        .file("/proc/stat", "cpu  100 0 0 0 0 0 0 0 0 0\n")
        .file("/proc/meminfo", "MemTotal: 262144 kB\nMemAvailable: 131072 kB\n")
        .command(move |command| {
            heard.lock().unwrap().push(command.shown());
            Some(says(""))
        });
    House { node: Arc::new(node), log, ..House::new() }
}

/// An actor on a disk of which a page cache is to hold so much.
fn prepared(house: &House, runner: &mut Runner<'_>, mib: u64) -> PreparedActor {
    let mut prepared = house.prepared(runner, "a", 0, 1, How::Well);
    prepared.stage.ends.get_mut("client").unwrap().at = At::Path("/dev/vdx".into());
    prepared.warm = Some(Warm { bytes: mib * MIB, place: CachePlace::Own });
    prepared
}

#[test]
fn what_is_to_be_warm_is_read_once_before_the_work() {
    let house = house();
    let mut runner = house.runner();
    let actors = vec![prepared(&house, &mut runner, 64)];
    let sample = run(&mut runner, actors, &[]).unwrap();
    assert_eq!(house.told(), ["dd if=/dev/vdx of=/dev/null bs=1M count=64", "a begins", "a ends"]);
    assert_eq!(sample.marks, [Mark::NotWarm], "nothing shows that it was");

    // The host's below a guest, as its hypervisor opens the disk.
    let mut below = prepared(&house, &mut runner, 64);
    below.warm = Some(Warm { bytes: 64 * MIB, place: CachePlace::Host("/srv/disk".into()) });
    run(&mut runner, vec![below], &[]).unwrap();
    assert_eq!(house.told()[0], "dd if=/srv/disk of=/dev/null bs=1M count=64");

    // A flash cache over a slow disk, of which the host's page cache is to keep nothing.
    let mut flash = prepared(&house, &mut runner, 64);
    flash.warm = Some(Warm { bytes: 512 * MIB, place: CachePlace::Flash("/srv/slow".into(), CacheAt::Host) });
    let sample = run(&mut runner, vec![flash], &[]).unwrap();
    let read = "dd if=/dev/vdx of=/dev/null bs=1M count=512 iflag=direct";
    assert_eq!(house.told()[..2], [read, "dd if=/srv/slow iflag=nocache count=0"], "there is no memory for it");
    assert_eq!(sample.marks, [Mark::NotWarm], "nothing shows that it was");
}

#[test]
fn nothing_is_half_warm() {
    let house = house();
    let mut runner = house.runner();
    let mut other = prepared(&house, &mut runner, 100);
    other.stage.ends.get_mut("client").unwrap().at = At::Path("/dev/vdy".into());
    let actors = vec![prepared(&house, &mut runner, 100), other];
    let error = run(&mut runner, actors, &[]).unwrap_err();
    assert!(error.is::<Impossible>(), "it would not fit another time: {error:#}");
    let said = format!("{error:#}");
    assert!(said.contains("takes 200 MiB of page cache, and fake has 128 MiB of memory left"), "{said}");
    assert_eq!(house.told(), [""; 0], "nothing was begun");
}

#[test]
fn what_several_read_of_one_file_is_cached_once() {
    let house = house();
    let mut runner = house.runner();
    let actors = vec![prepared(&house, &mut runner, 100), prepared(&house, &mut runner, 100)];
    run(&mut runner, actors, &[]).unwrap();
    let read = house.told().iter().filter(|line| line.starts_with("dd ")).count();
    assert_eq!(read, 1);
}
