//! The forms of a report, and what every page must be.

use unicode_width::UnicodeWidthStr;
use vmio::report::{self, Report};
use vmio::term::Style;
use vmio_model::rules::Finding;

/// The forms that a person reads, with what each does to a text undone.
pub fn forms(report: &Report<'_>) -> [(&'static str, String); 3] {
    let unescaped = |text: String| {
        [("<wbr>", ""), ("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
            .iter()
            .fold(text, |text, (from, to)| text.replace(from, to))
    };
    [
        ("text", report::text(report, Style::PLAIN)),
        ("markdown", unescaped(report::markdown(report).replace('\\', ""))),
        ("html", unescaped(report::html(report))),
    ]
}

/// Lines of more than 80 columns that are no line of a change: those are pasted, and not broken.
pub fn too_long<'a>(text: &'a str, findings: &[Finding]) -> Vec<&'a str> {
    longer_than(80, text, findings)
}

/// The same of a narrower terminal, where a command of vmio's is whole as well.
pub fn longer_than<'a>(width: usize, text: &'a str, findings: &[Finding]) -> Vec<&'a str> {
    let ways = || findings.iter().flat_map(|f| f.change.ways()).flat_map(|(_, how)| how.lines());
    let pasted = |line: &str| {
        // A name that a shell makes of its bytes is one word.
        let words = line.replace("$(printf ", "").split_whitespace().count();
        let command = line.trim().starts_with("vmio ") && (words <= 4 || width < 80);
        // No word is broken, be it a path.
        let word = width < 80 && line.split_whitespace().count() == 1;
        command || word || ways().any(|code| line.trim_end().ends_with(code.trim()) && !code.trim().is_empty())
    };
    text.lines().map(str::trim_end).filter(|line| line.width() > width && !pasted(line)).collect()
}

/// Asserts that colours change nothing but the colours.
#[track_caller]
pub fn is_only_coloured(coloured: &str, plain: &str) {
    let (first, rest) = coloured.split_once('\u{1b}').expect("a colour");
    let bare: String = rest.split('\u{1b}').map(|part| part.split_once('m').unwrap().1).collect();
    let lines = |text: &str| text.lines().map(|l| l.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&(first.to_owned() + &bare)), lines(plain));
}

/// Every element that is opened is closed, in order.
fn balanced(html: &str) {
    let mut open = Vec::new();
    let body = &html[html.find("<html").unwrap()..];
    for tag in body.split('<').skip(1).map(|t| &t[..t.find('>').expect("a tag ends")]) {
        let name = tag.split([' ', '/']).find(|n| !n.is_empty()).unwrap();
        match tag {
            _ if tag.ends_with('/') || ["meta", "br", "wbr"].contains(&name) => {}
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "</{name}>"),
            _ => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

/// Elements and attributes that our templates have.
const ELEMENTS: &str = " a article body br circle code dd details div dl dt figcaption figure g h1 h2 h3 head html li line \
    main meta p path polyline pre rect small span strong style summary svg table tbody td text th thead title tr ul wbr ";
const ATTRIBUTES: &str = " aria-hidden aria-label charset class colspan content cx cy d height href http-equiv id lang name \
    points r role rowspan rx scope stroke-dasharray tabindex text-anchor viewBox width x x1 x2 y y1 y2 ";

/// Nothing is in it but our own markup and text: no element, attribute or half of a tag came from a name.
#[track_caller]
pub fn is_ours(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>"));
    let hidden = html.find(|c| vmio_model::sanitize::is_hidden(c) && c != '\n' && c != '\t');
    assert_eq!(hidden, None, "{:?}", hidden.map(|at| &html[at..at + 20]));
    // CSS may have signs of markup.
    let (before, rest) = html.split_once("<style>").unwrap();
    let (_, after) = rest.split_once("</style>").unwrap();
    for tag in [before, after].concat().replace("<!DOCTYPE html>", "").split('<').skip(1) {
        let (tag, text) = tag.split_once('>').unwrap_or_else(|| panic!("a tag without end: {tag:?}"));
        assert!(!text.contains('>'), "a sign of markup in a text: {text:?}");
        let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
        let name = name.trim_matches('/');
        assert!(ELEMENTS.contains(&format!(" {name} ")), "an element of somebody's: {tag:?}");
        while !matches!(rest.trim(), "" | "/") {
            let parts = rest.trim_start().split_once("=\"").and_then(|(n, r)| Some((n, r.split_once('"')?)));
            let (attribute, (_, more)) = parts.unwrap_or_else(|| panic!("an attribute without quotes: {tag:?}"));
            assert!(ATTRIBUTES.contains(&format!(" {attribute} ")), "an attribute of somebody's: {tag:?}");
            rest = more;
        }
    }
    balanced(html);
    is_readable(html);
}

/// No words in a drawing are smaller than 11 px, however narrow the page is: a drawing that is scaled with the page has
/// a least width, and a page that is narrower scrolls it. No word is broken anywhere but in its last need.
fn is_readable(html: &str) {
    let (style, body) = html.split_once("</style>").unwrap();
    let pixels = |rule: &str, name: &str| -> f64 {
        let rule = style.split(rule).nth(1).unwrap_or_else(|| panic!("no {rule}")).split('}').next().unwrap();
        let value = rule.split(name).nth(1).unwrap_or_else(|| panic!("no {name} in {rule}"));
        value.split("px").next().unwrap().parse().unwrap()
    };
    let font = pixels("svg text{", "font-size:");
    for (at, _) in body.match_indices("<svg ") {
        let svg = body[at..].split("</svg>").next().unwrap();
        let attribute =
            |name: &str| svg.split_once(&format!(" {name}=\"")).map(|(_, rest)| rest.split('"').next().unwrap());
        let Some(size) = attribute("viewBox").filter(|_| svg.contains("<text")) else { continue };
        let (width, class) = (size.split(' ').nth(2).unwrap().parse::<f64>().unwrap(), attribute("class").unwrap());
        let smallest = font * pixels(&format!("\n.{class}{{"), "min-width:") / width;
        assert!(smallest >= 11.0, "{class}: {smallest} px");
        assert!(body[..at].ends_with("<div class=\"scroll\">"), "{class} cannot be scrolled");
    }
    assert!(!style.contains("anywhere") && !style.contains("word-break"), "words are broken");
}
