//! One list of checks for every kind of machine.

#![allow(clippy::unwrap_used)]

use vmio_node::Local;

#[test]
fn local() {
    crate::common::check_all(&Local::new());
}

#[test]
fn remote() {
    let agent = crate::common::start_agent();
    crate::common::check_all(&agent.connect());
    agent.end();
}

/// The made-up machine passes what does not need a shell.
#[test]
fn fake() {
    use vmio_node::fake::{Fake, fails, says};
    use vmio_node::{End, Exec, FileSample, Node, Reader, SamplePlan};

    let node = Fake::new("made up")
        .file("/dev/null", "")
        .program("true", says("out"))
        .command(|cmd| (cmd.program == "sh").then(|| fails(i32::try_from(cmd.args.len()).unwrap_or(-1), "err")));
    let dir = std::path::Path::new("/dir");
    crate::common::missing_in_memory(&node, dir);
    node.write(&dir.join("sub/b"), b"\0\xff", Some(0o600)).unwrap();
    node.write(&dir.join("a"), b"x", None).unwrap();
    assert_eq!(node.list(dir).unwrap(), ["a", "sub"]);
    assert_eq!(node.read(&dir.join("sub/b")).unwrap(), b"\0\xff");
    assert_eq!(node.stat(&dir.join("sub/b")).unwrap().unwrap().mode, 0o100_600);
    assert_eq!(node.stat(dir).unwrap().unwrap().mode & 0o170_000, 0o040_000);
    crate::common::no_program_in_memory(&node);
    assert_eq!(node.exec(&Exec::new("true")).unwrap().out(), "out");
    let output = node.exec(&Exec::new("sh").args(["-c", "x"])).unwrap();
    assert_eq!((output.end, output.err()), (End::Exit(2), "err".into()));
    assert_eq!(node.ran().last().unwrap().shown(), "sh -c x");

    let plan = SamplePlan { paths: vec![dir.join("a"), dir.join("none")], interval: std::time::Duration::from_secs(1) };
    let sampling = node.sample(&plan).unwrap();
    node.pass(std::time::Duration::from_secs(2));
    node.set("/dir/a", "y");
    let samples = sampling.stop().unwrap();
    assert_eq!(samples[0], FileSample { seconds: 1000.0, contents: vec![b"x".to_vec(), vec![]] });
    assert_eq!(samples[1], FileSample { seconds: 1002.0, contents: vec![b"y".to_vec(), vec![]] });
    let script = vec![FileSample { seconds: 1.0, contents: vec![] }];
    assert_eq!(Fake::new("m").samples(script.clone()).sample(&plan).unwrap().stop().unwrap(), script);

    // A recorded machine: nothing outside its tree is there.
    let tree = tempfile::tempdir().unwrap();
    std::fs::create_dir(tree.path().join("proc")).unwrap();
    std::fs::write(tree.path().join("proc/stat"), "cpu 1").unwrap();
    let recorded = Fake::new("recorded").tree(tree.path()).unwrap();
    assert_eq!(recorded.read_text("/proc/stat".as_ref()).unwrap(), "cpu 1");
    assert_eq!(recorded.stat("/proc/meminfo".as_ref()).unwrap(), None);
    assert_eq!(recorded.list("/".as_ref()).unwrap(), ["proc"]);
}
