//! The frame of every page, and a template that escapes what is put into it.
//!
//! This is the only file that names the template library (maud): a test below holds that. A page is built with
//! [`html!`] and is an [`Html`], which nothing but the macro makes of a text, so words of others cannot become
//! markup by a forgotten call. What must not be shown at all is replaced once, in the whole page.

use maud::{Markup, PreEscaped, Render};
use vmio_model::rules::Severity;
use vmio_model::sanitize;

/// A part of a page. Texts are put into one by [`html!`] alone, which escapes them.
pub(super) struct Html(Markup);

impl Html {
    /// For [`html!`]. The type of the argument cannot be named outside of this file.
    pub(super) fn of(markup: Markup) -> Html {
        Html(markup)
    }
}

impl Render for Html {
    fn render_to(&self, page: &mut String) {
        self.0.render_to(page);
    }
}

/// A part of a page, in the syntax of maud.
macro_rules! html {
    ($($template:tt)*) => { $crate::report::page::Html::of(::maud::html! { $($template)* }) };
}
pub(super) use html;

/// The style of all pages: our own constant text, and the one text that is put into a page as it is.
const STYLE: PreEscaped<&str> = PreEscaped(include_str!("style.css"));

/// Loads nothing, runs nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A whole page, with a headline. It loads nothing and has no control characters.
pub(super) fn whole(title: &str, body: &Html) -> String {
    let page = html! {
        (maud::DOCTYPE) "\n"
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) }
                style { (STYLE) }
            }
            body {
                main { "\n" h1 { (title) } (body) }
            }
        }
        "\n"
    };
    // None of the characters that are replaced is part of any markup.
    sanitize::lines(&page.0.into_string()).into_owned()
}

/// A text that can be broken after each of `/ , = _` between two words. Where it fits a line, the style breaks no word
/// elsewhere.
pub(super) fn breakable(text: &str) -> Html {
    html! { @for (nth, piece) in pieces(text).into_iter().enumerate() { @if nth > 0 { wbr; } (piece) } }
}

/// Cut behind these signs, but not within `MB/s`, `1,983` and `O_DIRECT`, nor at the root of a path.
fn pieces(text: &str) -> Vec<&str> {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let (mut all, mut from) = (Vec::new(), 0);
    for five in chars.windows(5) {
        let &[(_, first), (_, before), (_, sign), (at, behind), (_, last)] = five else { continue };
        let words = [first, before, behind, last].into_iter().all(char::is_alphanumeric);
        let number = before.is_ascii_digit() && behind.is_ascii_digit();
        if matches!(sign, '/' | ',' | '=' | '_') && words && !number {
            all.push(&text[from..at]);
            from = at;
        }
    }
    all.push(&text[from..]);
    all
}

/// A severity as a chip.
pub(super) fn chip(severity: Severity) -> Html {
    html! { span class={ "tag " (severity.name()) } { (severity.name()) } }
}

#[cfg(test)]
impl Html {
    /// Its markup as text.
    pub(super) fn text(&self) -> String {
        self.0.clone().into_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn sources(dir: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
        entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
    }

    /// Who names the library can make markup of any text, and who writes an end tag makes a page of strings.
    #[test]
    fn no_other_file_names_the_library_or_writes_a_tag() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/page.rs");
        let rust = |path: &PathBuf| path.extension().is_some_and(|e| e == "rs");
        let all: Vec<PathBuf> = sources(&own.ancestors().nth(2).unwrap().join("")).into_iter().filter(rust).collect();
        assert!(all.len() > 50 && all.contains(&own), "{}", all.len());
        for path in all.iter().filter(|path| **path != own) {
            let text = fs::read_to_string(path).unwrap();
            for (word, instead) in [
                ("maud", "use `page::html!`"),
                ("PreEscaped", "put the text in parentheses into `page::html!`"),
                ("Html::of", "use `page::html!`"),
                ("</", "use `page::html!`"),
            ] {
                let line = text.lines().position(|l| l.contains(word)).map(|n| n + 1);
                assert_eq!(line, None, "{}: it contains `{word}`: {instead}", path.display());
            }
        }
        let text = fs::read_to_string(&own).unwrap();
        let ours = text.split("#[cfg(test)]").next().unwrap();
        assert_eq!(ours.matches("PreEscaped(").count(), 1, "the style alone is put into a page as it is");
    }

    #[test]
    fn texts_are_escaped_and_what_must_not_be_shown_is_replaced() {
        let name = "<b class=\"x\">&\u{202e}\u{1b}[2J\na";
        let page = whole(name, &html! { p title=(name) { (name) ul { li { (name) } } } });
        assert_eq!(page.matches("&lt;b class=&quot;x&quot;&gt;&amp;\u{fffd}\u{fffd}[2J\na").count(), 5, "{page}");
        assert!(!page.contains("<b ") && page.starts_with("<!DOCTYPE html>\n<html lang=\"en\"><head><meta"), "{page}");
        assert!(page.ends_with("</main></body></html>\n") && page.contains(".heads>svg{"), "{page}");
        assert_eq!(breakable("<td/tr>").text(), "&lt;td/<wbr>tr&gt;");
        assert_eq!(chip(Severity::Advice).text(), "<span class=\"tag advice\">advice</span>");
    }

    #[test]
    fn words_are_broken_after_their_signs() {
        for (text, broken) in [
            ("device/native/rand-read-32", "device/|native/|rand-read-32"),
            ("virtio-blk,none,native on sparse_éa", "virtio-blk,|none,|native on sparse_|éa"),
            ("/dev/vda: cache = none, 1,983 µs, 90 MB/s", "/dev/|vda: cache = none, 1,983 µs, 90 MB/s"),
            ("mtu=1500 aa==bb //xx/ </td> O_DIRECT 1500,9000", "mtu=|1500 aa==bb //xx/ </td> O_DIRECT 1500,9000"),
            ("", ""),
            ("é", "é"),
        ] {
            assert_eq!(pieces(text).join("|"), broken);
        }
    }
}
