#![allow(clippy::unwrap_used)]
use super::*;

fn interface() -> Interface {
    Interface { namespace: NetworkNamespace::own().unwrap(), index: 1 }
}

#[test]
fn processes_without_the_tap() {
    let own = Process::now(std::process::id()).unwrap();
    let ask = |process| send_buffer(interface(), process, None).unwrap();
    let HolderState::Without { descriptors, all } = ask(own) else { panic!("this test holds no tap") };
    assert!(descriptors >= 3 && all, "{descriptors}");
    let late = Process { start_ticks: own.start_ticks + 1, ..own };
    assert_eq!(ask(late), HolderState::Another { start_ticks: own.start_ticks });
    assert_eq!(ask(Process { pid: 0, ..own }), HolderState::Ended);
    assert_eq!(ask(Process { pid: u32::MAX, ..own }), HolderState::Ended);
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let ended = Process::now(child.id()).unwrap();
    child.wait().unwrap();
    assert_eq!(ask(ended), HolderState::Ended);
}

#[test]
fn bound_on_descriptors() {
    let process = Process::now(std::process::id()).unwrap();
    let ask = Ask { interface: interface(), process, change: None };
    assert_eq!(holder_state(&ask, 2).unwrap(), HolderState::Without { descriptors: 2, all: false });
}

#[test]
fn copied_descriptor_of_no_tap() {
    for other in ["/dev/null", "/dev", "/proc/self/stat"] {
        assert!(!calls::is_tun(&File::open(other).unwrap()).unwrap(), "{other}");
    }
}

#[test]
fn questions_and_answers_cross_the_line() {
    let process = Process { pid: 7, start_ticks: 8 };
    let change = Some(Change { to: 20_000, from: vec![i32::MAX.unsigned_abs()] });
    let text = serde_json::to_string(&Ask { interface: interface(), process, change: change.clone() }).unwrap();
    let back: Ask = serde_json::from_str(&text).unwrap();
    assert_eq!((back.interface, back.process, back.change), (interface(), process, change));
    assert!(crate::IO_TASKS.iter().any(|task| task.word == SEND_BUFFER.word));
}
