//! What is told of a guest that hung or died: the end of its console and what QEMU said.

use std::path::Path;

use vmio_model::shown;

/// Lines that are kept of each.
const LINES: usize = 30;

/// The report for [`super::super::Error::Down`].
pub fn report(console: &Path, stderr: &str) -> String {
    let console = std::fs::read(console).unwrap_or_default();
    let mut text = part("end of its console", &shown::quoted(&String::from_utf8_lossy(&console)));
    text.push_str(&part("QEMU said", stderr));
    text
}

fn part(title: &str, text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    if lines.is_empty() {
        return format!("{title}: nothing\n");
    }
    let kept = &lines[lines.len().saturating_sub(LINES)..];
    format!("{title}:\n{}\n", kept.iter().map(|l| format!("  | {l}")).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_lines_without_control_characters() {
        let dir = tempfile::tempdir().unwrap();
        let console = dir.path().join("console");
        let lines: String = (0..50).map(|i| format!("line {i}\r\n")).collect();
        std::fs::write(&console, format!("\u{1b}c\u{1b}[?7l\u{1b}[2J{lines}\u{1b}[1mKernel panic\u{1b}[0m\n")).unwrap();
        let text = report(&console, "qemu: cannot do this\n");
        assert!(text.starts_with("end of its console:\n  | line 21\n"), "{text}");
        assert!(text.contains("  | line 49\n  | Kernel panic\n"), "{text}");
        assert!(text.ends_with("QEMU said:\n  | qemu: cannot do this\n"), "{text}");
    }

    #[test]
    fn silence_is_said() {
        assert_eq!(report(Path::new("/nonexistent"), " \n"), "end of its console: nothing\nQEMU said: nothing\n");
    }
}
