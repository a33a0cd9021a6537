//! What is told of a guest that hung or died: the end of its console and what QEMU said.

use std::path::Path;

use vmio_model::sanitize;

/// Lines that are kept of each.
const LINES: usize = 30;

/// The report for [`super::super::Error::Down`], and the last line in it.
pub fn report(console: &Path, stderr: &str) -> (String, Option<String>) {
    let console = std::fs::read(console).unwrap_or_default();
    let console = sanitize::quoted(&String::from_utf8_lossy(&console));
    let (console, said) = (lines(&console), lines(stderr));
    let last = said.last().or(console.last()).map(|line| (*line).to_owned());
    (part("end of its console", &console) + &part("QEMU said", &said), last)
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().filter(|l| !l.trim().is_empty()).collect()
}

fn part(title: &str, lines: &[&str]) -> String {
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
        let (text, last) = report(&console, "qemu: cannot do this\n");
        assert!(text.starts_with("end of its console:\n  | line 21\n"), "{text}");
        assert!(text.contains("  | line 49\n  | Kernel panic\n"), "{text}");
        assert!(text.ends_with("QEMU said:\n  | qemu: cannot do this\n"), "{text}");
        assert_eq!(last.as_deref(), Some("qemu: cannot do this"));
        assert_eq!(report(&console, "").1.as_deref(), Some("Kernel panic"));
    }

    #[test]
    fn silence_is_said() {
        let nothing = "end of its console: nothing\nQEMU said: nothing\n";
        assert_eq!(report(Path::new("/nonexistent"), " \n"), (nothing.to_owned(), None));
    }
}
