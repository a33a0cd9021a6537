#![allow(clippy::unwrap_used)]
use super::*;

fn parse(line: &[&str]) -> CommandLine {
    let args: Vec<String> = ["qemu-system-x86_64"].iter().chain(line).map(|a| (*a).to_owned()).collect();
    CommandLine::parse(&args)
}

#[test]
fn the_three_ways_to_write_a_setting_are_one() {
    let keys = parse(&["-blockdev", "driver=qcow2,node-name=a,cache.direct=on,file.driver=file,file.filename=/a,,b"]);
    let json = parse(&[
        "-blockdev",
        r#"{"driver":"qcow2","node-name":"a","cache":{"direct":true},"file":{"driver":"file","filename":"/a,b"}}"#,
    ]);
    let nested = parse(&["--drive", "file=json:{\"driver\":\"file\",,\"filename\":\"/a,,b\"},if=none"]);
    for (line, name) in [(&keys, "blockdev"), (&json, "blockdev"), (&nested, "drive")] {
        assert_eq!(line.all(name).next().unwrap().below("file").get("filename"), Some("/a,b"), "{line:?}");
        assert_eq!(line.unread, []);
    }
    for line in [keys, json] {
        assert_eq!(line.options[0].on("cache.direct"), Some(true));
    }
}

#[test]
fn first_values_have_the_key_that_qemu_means() {
    let line = parse(&[
        "-M",
        "q35,accel=kvm:tcg",
        "-device",
        "virtio-blk-pci,drive=d0,id=v0",
        "-smp",
        "4,cores=2",
        "-m",
        "size=2G",
        "-name",
        "web1,debug-threads=on",
        "-qmp",
        "unix:/run/a.sock,server,nowait",
        "-cpu",
        "host,+aes,-vmx,nox=on",
    ]);
    assert_eq!(line.get("machine", "type"), Some("q35"));
    assert_eq!(line.get("machine", "accel"), Some("kvm:tcg"));
    assert_eq!(line.find("device", "v0").unwrap().get("driver"), Some("virtio-blk-pci"));
    assert_eq!((line.get("smp", "cpus"), line.get("smp", "cores")), (Some("4"), Some("2")));
    assert_eq!(line.get("m", "size"), Some("2G"));
    assert_eq!(line.guest_name(), Some("web1"));
    assert_eq!(line.get("qmp", "address"), Some("unix:/run/a.sock"));
    let qmp = line.all("qmp").next().unwrap();
    assert_eq!((qmp.on("server"), qmp.on("wait")), (Some(true), Some(false)));
    let cpu = line.all("cpu").next().unwrap();
    assert_eq!((cpu.get("model"), cpu.get("+aes"), cpu.get("-vmx")), (Some("host"), Some("on"), Some("on")));
}

#[test]
fn old_options_are_what_they_stand_for() {
    let line = parse(&["-enable-kvm", "/a.img", "-hdb", "/b,c.img", "-cdrom", "/d.iso", "-pflash", "/e.fd"]);
    assert_eq!(line.get("accel", "accel"), Some("kvm"));
    let drives: Vec<_> = line.all("drive").map(|d| (d.get("file").unwrap(), d.get("index"), d.get("media"))).collect();
    let expected = [
        ("/a.img", Some("0"), Some("disk")),
        ("/b,c.img", Some("1"), Some("disk")),
        ("/d.iso", Some("2"), Some("cdrom")),
        ("/e.fd", None, None),
    ];
    assert_eq!(drives, expected);
}

#[test]
fn set_and_global_change_devices_as_qemu_lets_them() {
    let line = parse(&[
        "-device",
        "virtio-blk-pci,drive=a,id=v0",
        "-device",
        "virtio-blk-pci,drive=b,id=v1,num-queues=2",
        "-set",
        "device.v0.iothread=io0",
        "-global",
        "virtio-blk-pci.num-queues=8",
        "-global",
        "driver=virtio-blk-pci,property=write-cache,value=off",
    ]);
    let (a, b) = (line.find("device", "v0").unwrap(), line.find("device", "v1").unwrap());
    assert_eq!((a.get("iothread"), a.get("num_queues"), a.on("write-cache")), (Some("io0"), Some("8"), Some(false)));
    assert_eq!((b.get("iothread"), b.get("num-queues")), (None, Some("2")));
}

#[test]
fn what_is_not_understood_is_told_and_the_rest_is_there() {
    let line = parse(&["-new-thing", "x=y", "-readconfig", "/etc/q.cfg", "-device", "{broken", "-m", "64", "-smp"]);
    assert_eq!(line.get("m", "size"), Some("64"));
    let unread: Vec<&str> = line.unread.iter().map(|u| u.what.as_str()).collect();
    assert_eq!(unread, ["option -new-thing", "settings in /etc/q.cfg", "-device {broken", "option -smp"]);
}

#[test]
fn sizes_are_as_qemu_writes_them() {
    const MIB: u64 = 1 << 20;
    let cases = [("64", Some(64 * MIB)), ("1.5G", Some(1536 * MIB)), ("2k", Some(2048)), ("0x10", Some(16 * MIB))];
    for (text, bytes) in cases {
        assert_eq!(size(text, MIB), bytes, "{text}");
    }
    for wrong in ["", "G", "12X", "-4", "999999999999P", "1e400"] {
        assert_eq!(size(wrong, MIB), None, "{wrong}");
    }
    assert_eq!((size("512B", 7), size("1GiB", 7)), (Some(512), Some(1 << 30)));
}

proptest::proptest! {
    /// Any arguments are parsed without a panic.
    #[test]
    fn any_command_line_is_read(
        args in proptest::collection::vec("(-{0,2}(device|blockdev|drive|set|global|name|M|hda|[a-z-]{0,6}))|([a-z,=.{}:\"no\u{e9}]{0,24})", 0..12)
    ) {
        let line = CommandLine::parse(&args);
        for option in &line.options {
            let _ = (option.below("file").id(), option.on("a"), option.number("b"), size(&option.text, 1 << 20));
        }
    }
}
