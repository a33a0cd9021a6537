//! What every page must be.

/// Every element that is opened is closed, in order.
pub fn balanced(html: &str) {
    let mut open = Vec::new();
    let body = &html[html.find("<html").unwrap()..];
    for tag in body.split('<').skip(1).map(|t| &t[..t.find('>').expect("a tag ends")]) {
        let name = tag.split([' ', '/']).find(|n| !n.is_empty()).unwrap();
        match tag {
            _ if tag.ends_with('/') || ["meta", "br"].contains(&name) => {}
            _ if tag.starts_with('/') => assert_eq!(open.pop(), Some(name), "</{name}>"),
            _ => open.push(name),
        }
    }
    assert_eq!(open, Vec::<&str>::new());
}

/// Elements and attributes that our templates have.
const ELEMENTS: &str = " a article body br circle code dd details div dl dt figcaption figure g h1 h2 h3 head html li line \
    main meta p path polyline pre rect small span strong style summary svg table tbody td text th thead title tr ul ";
const ATTRIBUTES: &str = " aria-hidden aria-label charset class colspan content cx cy d height href http-equiv id lang name \
    points r role rowspan rx scope stroke-dasharray tabindex text-anchor viewBox width x x1 x2 y y1 y2 ";

/// Nothing is in it but our own markup and text: no element, attribute or half of a tag came from a name.
#[track_caller]
pub fn is_ours(html: &str) {
    assert!(html.starts_with("<!DOCTYPE html>"));
    let hidden = html.find(|c| vmio_model::sanitize::is_hidden(c) && c != '\n' && c != '\t');
    assert_eq!(hidden, None, "{:?}", hidden.map(|at| &html[at..at + 20]));
    // CSS has its own signs.
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
}
