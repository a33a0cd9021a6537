//! Breaking a line of code that is too long for its column, so that it can still be pasted: a
//! command stays one to a shell (POSIX shell command language, section 2.2, "Quoting"), a comment
//! stays a comment.

/// The line in pieces of at most `width` columns where possible; words and quoted texts are never broken.
pub(super) fn broken(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let indent: String = line.chars().take_while(|c| *c == ' ').collect();
    let text = line.trim_start();
    if let Some(comment) = text.strip_prefix('#') {
        return filled(&format!("{indent}# "), comment, width);
    }
    // White space means nothing between elements and between attributes.
    if text.starts_with('<') {
        return filled(&indent, text, width);
    }
    let spaces = spaces(line);
    if let Some(&at) = spaces.iter().find(|at| line[**at..].trim_start().starts_with('#')) {
        let (command, comment) = (line[..at].trim_end(), line[at..].trim_start());
        return [broken(&format!("{indent}{comment}"), width), broken(command, width)].concat();
    }
    // There must be room for ` \`, and no piece may be a backslash alone.
    let usable = |at: &&usize| **at > indent.len() && line[**at..].trim() != "\\" && !line[**at..].trim().is_empty();
    let fits = |at: &&usize| line[..**at].trim_end().chars().count() + 2 <= width;
    let Some(&at) = spaces.iter().rev().filter(usable).find(fits).or_else(|| spaces.iter().find(usable)) else {
        return vec![line.to_owned()];
    };
    let rest = format!("{indent}  {}", line[at..].trim_start());
    let mut lines = vec![format!("{} \\", line[..at].trim_end())];
    // All pieces after the first are indented by the same two columns more.
    let further = rest.starts_with("    ") && indent.starts_with("  ");
    lines.extend(broken(if further { &rest[2..] } else { &rest }, width));
    lines
}

/// Fills words into lines that all begin with `lead`.
fn filled(lead: &str, text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = lead.to_owned();
    for word in text.split_whitespace() {
        let fresh = line.len() == lead.len();
        if !fresh && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut line, lead.to_owned()));
        } else if !fresh {
            line.push(' ');
        }
        line += word;
    }
    lines.push(line);
    lines
}

/// The places of spaces that separate words for a shell.
fn spaces(line: &str) -> Vec<usize> {
    let (mut quote, mut escaped, mut all) = (None, false, Vec::new());
    for (at, c) in line.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (None | Some('"'), '\\') => escaped = true,
            (None, '\'' | '"') => quote = Some(c),
            (Some(q), c) if q == c => quote = None,
            (None, ' ') => all.push(at),
            _ => {}
        }
    }
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn words(command: &str) -> String {
        let script = format!("show() {{ printf '<%s>\\n' \"$@\"; }}\nshow {command}\n");
        String::from_utf8(Command::new("sh").arg("-c").arg(script).output().unwrap().stdout).unwrap()
    }

    #[test]
    fn words_quotes_and_comments_stay_whole() {
        let long =
            "-drive file=/srv/images/a.raw,format=raw,if=none,id=disk0,cache=writeback,aio=threads,discard=unmap \\";
        assert_eq!(broken(long, 60), ["-drive \\", &format!("  {}", &long[7..])]);
        assert_eq!(broken("# one two three", 9), ["# one two", "# three"]);
        assert_eq!(broken("go there now    # and wait for it", 14), ["# and wait for", "# it", "go there now"]);
        assert_eq!(broken("sh -c 'a b c d e'", 10), ["sh -c \\", "  'a b c d e'"]);
        assert_eq!(broken("aaa bbb ccc ddd eee", 9), ["aaa bbb \\", "  ccc \\", "  ddd eee"]);
        assert_eq!(broken("  <disk type='block' device='disk'>", 24), ["  <disk type='block'", "  device='disk'>"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_sees_the_same_words(
            parts in prop::collection::vec("[a-z=,/.]{1,30}|'[a-z #]{0,20}'|\"[a-z #]{0,20}\"", 1..12),
            width in 12usize..80,
        ) {
            let command = parts.join(" ");
            let lines = broken(&command, width);
            prop_assert_eq!(words(&lines.join("\n")), words(&command));
            for line in &lines {
                let one = line.trim().trim_end_matches(" \\");
                prop_assert!(line.chars().count() <= width || spaces(one).is_empty(), "{}", line);
            }
        }
    }
}
