//! Commands for QEMU's monitor (QMP: docs/interop/qmp-spec.rst of QEMU), as one shell command: JSON alone would be
//! broken at line ends and lack the capabilities negotiation.
//!
//! `sleep`: QEMU drops queued commands when the other side closes (monitor/qmp.c,
//! `monitor_qmp_cleanup_queue_and_resume`).

use super::names::shell;

/// Longest piece of JSON in one word.
const PIECE: usize = 52;

/// A command with its arguments, for the guest's socket.
pub fn qmp(socket: &str, command: &str, arguments: &serde_json::Value) -> String {
    let mut text = "{ printf '%s\\n' '{\"execute\": \"qmp_capabilities\"}' \\\n".to_owned();
    let pieces = pieces(&format!("{{\"execute\": \"{command}\", \"arguments\": {arguments}}}"));
    let words: Vec<String> = pieces.iter().map(|piece| shell(piece)).collect();
    text.push_str(&words.join(" \\\n"));
    // socat parses addresses by rules of its own.
    let escaped: String =
        socket.chars().flat_map(|c| if "\\,:!\"'".contains(c) { vec!['\\', c] } else { vec![c] }).collect();
    text.push_str(&format!(";\nsleep 1; }} | socat - {}", shell(&format!("UNIX-CONNECT:{escaped}"))));
    text
}

/// JSON in pieces that are broken behind commas between members, where white space has no meaning.
fn pieces(json: &str) -> Vec<String> {
    let (mut all, mut piece, mut last) = (Vec::new(), String::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    for c in json.chars() {
        piece.push(c);
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' if !quoted => last = piece.len(),
            _ => {}
        }
        if piece.chars().count() > PIECE && last > 0 {
            let rest = piece.split_off(last);
            all.push(std::mem::replace(&mut piece, rest.trim_start().to_owned()));
            last = 0;
        }
    }
    all.push(piece);
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_shell_hands_on_the_very_command() {
        let odd = "a, \"b\" 'c' \\ \u{202e}d\n e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t";
        let text = qmp("/run/a b,c.qmp", "block-stream", &json!({"job-id": "flatten", "device": odd, "speed": 0}));
        let script = text.replace("sleep 1", ":").replace("socat -", "{ cat; printf '%s\\n'") + "; }";
        for sh in ["sh", "bash"] {
            let out = std::process::Command::new(sh).args(["-c", &script]).output().unwrap();
            let said = String::from_utf8(out.stdout).unwrap();
            let (json, address) = said.trim_end().rsplit_once('\n').unwrap();
            assert_eq!(address, "UNIX-CONNECT:/run/a b\\,c.qmp");
            let all: Vec<Value> =
                serde_json::Deserializer::from_str(json).into_iter().collect::<Result<_, _>>().unwrap();
            assert_eq!(all[0], json!({"execute": "qmp_capabilities"}));
            assert_eq!(
                all[1],
                json!({"execute": "block-stream", "arguments": {"job-id": "flatten", "device": odd, "speed": 0}})
            );
        }
        // Each line fits its place in reports, except those with long names.
        assert!(text.lines().all(|line| line.len() < 66 || line.contains("printf")), "{text}");
    }
}
