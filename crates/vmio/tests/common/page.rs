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
