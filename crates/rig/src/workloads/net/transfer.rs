//! dd and netcat: 100 MiB of zeros to the peer over one TCP connection, as rasmusson2013 measured (section 3.4). What
//! counts is the time that dd says: it has handed over the last of it once what is left fits a pipe and two socket buffers.

use serde_json::json;
use vmio_look::require::{Requirement, program};
use vmio_model::figure::{Figure, Reading, Unit};
use vmio_model::result::{WorkloadResult, WorkloadTraits};
use vmio_model::study::SubjectKind;
use vmio_node::Output;

use super::super::disk::last_line;
use super::{CLIENT, SERVER, address, listens_at};
use crate::workloads::error::{cut, succeeded};
use crate::workloads::{Ready, Result, Role, Service, Stage, Unusable, Wants, Workload};

/// Entry `dd-nc`.
pub const TRANSFER: Transfer = Transfer;

/// The port that it takes unless it is told another.
const PORT: u16 = 5301;
const MIB: u64 = 1 << 20;
const COUNT: u64 = 100;
/// Its options differ from one netcat to another: this is OpenBSD's, by the name that Debian gives it.
const NC: &str = "nc.openbsd";
/// `-N` ends the connection with what it is given to send.
const SEND: &str = "dd if=/dev/zero bs=1M count=100 | nc.openbsd -N \"$0\" \"$1\"";
const TAKE: &str = "exec nc.openbsd -l \"$0\" \"$1\" > /dev/null";

const NETCAT: Requirement = Requirement {
    name: NC,
    why: "runs the network workload dd-nc",
    fix: "apt install netcat-openbsd",
    check: |reader| program(reader, NC),
};

const ROLES: &[Role] = &[
    Role { name: SERVER, wants: Wants::Address, programs: &["sh", NC], requirements: &[NETCAT] },
    Role { name: CLIENT, wants: Wants::Address, programs: &["sh", "dd", NC], requirements: &[NETCAT] },
];

/// The transfer.
#[derive(Debug, Clone, Copy)]
pub struct Transfer;

impl Transfer {
    fn result(node: &str, command: String, output: &Output) -> Result<WorkloadResult> {
        let text = output.err();
        succeeded(node, &command, output)?;
        let unusable = |reason: Unusable| reason.of(node, &command);
        let line = text.lines().find(|line| last_line(line).is_some()).unwrap_or_default();
        let Some((bytes, seconds)) = last_line(line).filter(|(_, seconds)| *seconds > 0.0) else {
            return Err(unusable(Unusable::Lacks { lack: "dd says no time".into(), text: cut(text.trim()) }));
        };
        if bytes != COUNT * MIB {
            return Err(unusable(Unusable::Amount(format!("dd handed over {bytes} bytes of {}", COUNT * MIB))));
        }
        let figures =
            vec![Reading::scalar("bandwidth", bytes as f64 * 8.0 / seconds), Reading::scalar("moved", bytes as f64)];
        Ok(WorkloadResult { seconds, figures, raw: json!({ "dd": line }), command })
    }
}

impl Workload for Transfer {
    fn about(&self) -> &'static str {
        "dd and netcat: 100 MiB of zeros to the peer over one TCP connection, as dd times it"
    }
    fn traits(&self) -> WorkloadTraits {
        let figures = vec![Figure::rate("bandwidth", Unit::BitsPerSecond), Figure::amount("moved", Unit::Bytes)];
        WorkloadTraits { name: "dd-nc".into(), figures, judged_by: "bandwidth".into(), disk: None, group: None }
    }
    fn works_on(&self) -> SubjectKind {
        SubjectKind::Path
    }
    fn roles(&self) -> &'static [Role] {
        ROLES
    }
    fn serve(&self, _: &Role, stage: &Stage) -> Result<Option<Service>> {
        let (end, port) = (stage.end(SERVER)?, stage.port(PORT));
        let exec = end.command("sh").args(["-c", TAKE, &listens_at("dd-nc", end)?, &port.to_string()]);
        Ok(Some(Service { exec, ready: Ready::Listens(port) }))
    }
    fn run(&self, stage: &Stage) -> Result<WorkloadResult> {
        let (end, server) = (stage.end(CLIENT)?, address("dd-nc", stage.end(SERVER)?)?);
        let port = stage.port(PORT).to_string();
        let mut exec = end.command("sh").args(["-c", SEND, &server, &port]).limit(stage.limit());
        exec.env.insert("LC_ALL".into(), "C".into());
        let output = end.node.exec(&exec)?;
        Self::result(end.node.name(), exec.shown(), &output)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vmio_model::figure::check;
    use vmio_node::End;

    use super::*;

    fn read(stderr: &str, code: i32) -> Result<WorkloadResult> {
        let output = Output { end: End::Exit(code), stdout: vec![], stderr: stderr.into(), truncated: false };
        Transfer::result("guest0", "sh -c …".into(), &output)
    }

    const LINES: &str = "100+0 records in\n100+0 records out\n";
    const WHOLE: &str = "104857600 bytes (105 MB, 100 MiB) copied, 0.25 s, 419 MB/s\n";

    #[test]
    fn what_dd_says_counts() {
        let got = read(&format!("{LINES}{WHOLE}"), 0).unwrap();
        assert_eq!(check(&TRANSFER.traits().figures, &got.figures), Ok(()));
        assert_eq!((got.seconds, got.figure("bandwidth")), (0.25, Some(3_355_443_200.0)));
        // Netcat may say something beside.
        assert!(read(&format!("{LINES}{WHOLE}nc: shutdown\n"), 0).is_ok());
    }

    #[test]
    fn a_transfer_that_was_cut_short_is_no_result() {
        let said = |text: &str, code| read(text, code).unwrap_err().to_string();
        let cut = "7+0 records in\n7340032 bytes (7.3 MB, 7.0 MiB) copied, 0.1 s, 73 MB/s\n";
        assert!(said(cut, 0).contains("7340032 bytes of 104857600"));
        assert!(said("nc: connect to 198.18.0.1 port 5301 (tcp) failed: Connection refused\n", 1).contains("refused"));
        // Whom SIGPIPE ends says nothing.
        assert!(said("", 0).contains("dd says no time"));
    }
}
