//! Applies a printed change as a reader would who knows nothing but what is printed. It has three forms and
//! knows no rule: commands for a shell (with lines of JSON for a monitor), QEMU's options by the id of what
//! they belong to, and XML with the place where it goes. The place is what the comment above a line says.

use super::wrong::{Wrong, form};
use super::{Fill, Way};

/// A step of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Lines that are pasted into a shell together.
    Shell(String),
    /// A line for the guest's monitor.
    Monitor(String),
    /// Edits of the guest's command line.
    Options(Vec<Edit>),
    /// Edits of the XML of the domain that is named so.
    Xml(String, Vec<Edit>),
}

/// Where, in the words of the comment, and what. A comment that says all by itself has an empty text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    pub place: String,
    pub text: String,
}

/// The steps of a change.
pub fn steps(way: Way, text: &str, fills: &[Fill]) -> Result<Vec<Step>, Wrong> {
    let text = filled(text, fills)?;
    match (way, text.lines().position(|line| line.trim_start().starts_with("virsh edit "))) {
        (Way::Proxmox, _) => Ok(vec![Step::Shell(text)]),
        (Way::Libvirt, Some(at)) => xml_steps(&text, at),
        (Way::Libvirt, None) => Ok(vec![Step::Shell(text)]),
        (Way::Qemu, _) => qemu_steps(&text),
    }
}

/// The text with what only its reader knows; fails where another placeholder is left.
fn filled(text: &str, fills: &[Fill]) -> Result<String, Wrong> {
    let mut text = text.to_owned();
    for (word, value) in fills.iter().map(|fill| fill.value()) {
        if !words(&text).any(|w| w == word) {
            return Err(form(format!("{word} is to be filled in and is not in the text:\n{text}")));
        }
        let mut new = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(word) {
            let (before, after) = (&rest[..at], &rest[at + word.len()..]);
            let inside = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
            let whole = !inside(before.chars().last().or(new.chars().last())) && !inside(after.chars().next());
            new.push_str(before);
            new.push_str(if whole { value } else { word });
            rest = after;
        }
        new.push_str(rest);
        text = new;
    }
    let left: Vec<&str> = text.lines().flat_map(|line| words(code(line))).filter(|w| is_placeholder(w)).collect();
    if left.is_empty() { Ok(text) } else { Err(form(format!("{} left to fill in:\n{text}", left.join(", ")))) }
}

/// A line without its comment: what is in one is not pasted into anything.
fn code(line: &str) -> &str {
    // socat's word for a socket.
    let line = line.split("UNIX-CONNECT:").next().unwrap_or(line);
    let line = line.split_once("<!--").map_or(line, |(code, _)| code);
    if line.trim_start().starts_with('#') { "" } else { line.split_once("    # ").map_or(line, |(code, _)| code) }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':').filter(|word| !word.is_empty())
}

/// A word of capitals alone; the parts of a MAC address are none.
fn is_placeholder(word: &str) -> bool {
    let parts = || word.split(':').filter(|part| !part.is_empty());
    let address = parts().count() == 6 && parts().all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()));
    // Single letters are names of options, too (`-O raw`).
    let letters =
        |part: &str| part.bytes().all(|b| b.is_ascii_uppercase()) && (part.len() > 1 || matches!(part, "N" | "M"));
    !address && parts().any(letters)
}

/// Lines with the comment that stands above each.
fn with_places<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<Edit> {
    let mut edits: Vec<Edit> = Vec::new();
    let mut comment = false;
    for line in lines {
        if let Some(said) = line.strip_prefix('#').map(str::trim) {
            let begins = [
                "in ",
                "and in ",
                "one more ",
                "each of ",
                "that of ",
                "N, ",
                "take ",
                "and, ",
                "from the ",
                "at once",
            ];
            match edits.last_mut().filter(|_| comment && !begins.iter().any(|b| said.starts_with(b))) {
                Some(last) => last.place = format!("{} {said}", last.place),
                None => edits.push(Edit { place: said.to_owned(), text: String::new() }),
            }
            comment = true;
            continue;
        }
        comment = false;
        match edits.last_mut() {
            Some(last) if last.text.is_empty() => last.text = line.to_owned(),
            Some(last) => last.text = format!("{}\n{line}", last.text),
            None => edits.push(Edit { place: String::new(), text: line.to_owned() }),
        }
    }
    edits
}

fn xml_steps(text: &str, at: usize) -> Result<Vec<Step>, Wrong> {
    let lines: Vec<&str> = text.lines().collect();
    let mut steps = Vec::new();
    let before = lines[..at].join("\n");
    let before = before.trim_end().trim_end_matches("&& \\").trim_end();
    if !before.is_empty() {
        steps.push(Step::Shell(before.to_owned()));
    }
    let line = lines[at].trim_start().trim_start_matches("virsh edit ");
    let (domain, place) = line.split_once(" # ").unwrap_or((line, ""));
    let first = format!("# {place}");
    let rest = (!place.is_empty()).then_some(first.as_str()).into_iter().chain(lines[at + 1..].iter().copied());
    let edits = with_places(rest);
    if edits.iter().any(|edit| edit.place.is_empty()) {
        return Err(form(format!("it does not say where this belongs: {edits:?}")));
    }
    steps.push(Step::Xml(domain.trim().to_owned(), edits));
    Ok(steps)
}

fn qemu_steps(text: &str) -> Result<Vec<Step>, Wrong> {
    let mut steps: Vec<Step> = Vec::new();
    let of = ["own -", "one more option", "in the -", "-blockdev", "that of driver", "that QEMU adds"];
    for Edit { place, text } in with_places(text.lines()) {
        if text.starts_with('-') || (!text.is_empty() && of.iter().any(|of| place.contains(of))) {
            // A line's end within a command is not the command's end.
            let text = text.replace(" \\\n", " ");
            let edits = text.lines().map(|line| Edit { place: place.clone(), text: line.to_owned() });
            match steps.last_mut() {
                Some(Step::Options(all)) => all.extend(edits),
                _ => steps.push(Step::Options(edits.collect())),
            }
            continue;
        }
        match steps.last_mut() {
            _ if text.is_empty() && (place.contains("own -") || place.starts_with("take ")) => {
                return Err(form(format!("a place with nothing to set there: {place}")));
            }
            _ if text.is_empty() => {}
            _ if text.starts_with("{\"") => steps.push(Step::Monitor(text)),
            Some(Step::Shell(script)) => *script = format!("{script}\n{text}"),
            _ => steps.push(Step::Shell(text)),
        }
    }
    Ok(steps)
}
