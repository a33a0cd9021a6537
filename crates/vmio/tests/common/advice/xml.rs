//! A small tree of XML, and edits of a domain by the words that say where.

use super::applier::Edit;
use super::wrong::{Wrong, form};

/// An element; text and comments within are left out, since no domain of these tests needs them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Element {
    pub name: String,
    pub attributes: Vec<(String, String)>,
    pub children: Vec<Element>,
    pub text: String,
}

impl Element {
    pub fn get(&self, attribute: &str) -> Option<&str> {
        self.attributes.iter().find(|(name, _)| name == attribute).map(|(_, value)| value.as_str())
    }

    pub fn set(&mut self, attribute: &str, value: &str) {
        match self.attributes.iter_mut().find(|(name, _)| name == attribute) {
            Some((_, old)) => value.clone_into(old),
            None => self.attributes.push((attribute.to_owned(), value.to_owned())),
        }
    }

    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|c| c.name == name)
    }

    /// The child of that name, made where there is none.
    pub fn made(&mut self, name: &str) -> &mut Element {
        let at = self.children.iter().position(|c| c.name == name).unwrap_or_else(|| {
            self.children.push(Element { name: name.to_owned(), ..Element::default() });
            self.children.len() - 1
        });
        &mut self.children[at]
    }

    /// In place of the child of the same name, else as a new one.
    fn put(&mut self, child: Element) {
        match self.children.iter_mut().find(|c| c.name == child.name) {
            Some(old) => *old = child,
            None => self.children.push(child),
        }
    }

    pub fn written(&self) -> String {
        let attributes: String = self
            .attributes
            .iter()
            .map(|(name, value)| format!(" {name}='{}'", value.replace('\'', "&apos;")))
            .collect();
        let inner: String = self.children.iter().map(Element::written).collect();
        format!("<{0}{attributes}>{1}{inner}</{0}>", self.name, self.text)
    }
}

/// Elements of a text.
pub fn elements(text: &str) -> Result<Vec<Element>, Wrong> {
    let mut open = vec![Element::default()];
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let top = open.last_mut().ok_or_else(|| form("an end without a beginning"))?;
        top.text.push_str(rest[..at].trim());
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.split_once("-->").ok_or_else(|| form("a comment without an end"))?.1;
            continue;
        }
        let (tag, after) = rest[1..].split_once('>').ok_or_else(|| form("a tag without an end"))?;
        rest = after;
        if tag.starts_with('?') {
            continue;
        }
        let alone = tag.ends_with('/');
        if let Some(name) = tag.strip_prefix('/') {
            let done =
                open.pop().filter(|e| e.name == name).ok_or_else(|| form(format!("</{name}> ends another element")))?;
            open.last_mut().ok_or_else(|| form("an end without a beginning"))?.children.push(done);
            continue;
        }
        let element = begun(tag.trim_end_matches('/'));
        if alone {
            open.last_mut().ok_or_else(|| form("nothing is open"))?.children.push(element);
        } else {
            open.push(element);
        }
    }
    // A single start tag is told of an element whose beginning changes.
    while open.len() > 1 {
        let last = open.pop().unwrap_or_default();
        open.last_mut().ok_or_else(|| form("nothing is open"))?.children.push(last);
    }
    Ok(open.pop().unwrap_or_default().children)
}

fn begun(tag: &str) -> Element {
    let (name, rest) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
    Element { name: name.trim().to_owned(), attributes: attributes(rest), ..Element::default() }
}

/// `a='1' b="2"`.
pub fn attributes(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let Some(quote) = after.chars().next().filter(|c| matches!(c, '\'' | '"')) else { break };
        let Some((value, after)) = after[1..].split_once(quote) else { break };
        all.push((name.trim().to_owned(), value.to_owned()));
        rest = after;
    }
    all
}

/// Makes the edits of a change in a domain.
pub fn edit(domain: &mut Element, edits: &[Edit]) -> Result<(), Wrong> {
    // The element that "its" speaks of.
    let mut it: Option<usize> = None;
    for Edit { place, text } in edits {
        let devices = domain.made("devices");
        if let Some(found) = named(devices, place)? {
            it = Some(found);
        }
        let own = || it.ok_or_else(|| form(format!("{place}: of what?")));
        let said = |word: &str| place.contains(word);
        let new = elements(text)?;
        if text.contains("directly below <domain>") {
            new.into_iter().for_each(|e| domain.put(e));
        } else if said("one more controller") {
            devices.children.extend(new);
        } else if said("<controller> that") {
            let address = devices.children[own()?].child("address");
            let address = address.ok_or_else(|| form("the disk has no <address>"))?;
            let index = address.get("controller").ok_or_else(|| form("its <address> names no controller"))?;
            let index = index.to_owned();
            let is = |e: &&mut Element| {
                e.name == "controller" && e.get("type") == Some("scsi") && e.get("index") == Some(&index)
            };
            let controller =
                devices.children.iter_mut().find(is).ok_or_else(|| form(format!("no SCSI controller {index}")))?;
            let to = if said("in the <driver .../> of") { controller.made("driver") } else { controller };
            set_all(to, text)?;
        } else if said("in its <address") {
            set_all(devices.children[own()?].made("address"), text)?;
        } else if said("this in its <disk>") {
            new.into_iter().for_each(|e| devices.children[it.unwrap_or_default()].put(e));
            own()?;
            if said("<boot dev='hd'/> goes from <os>") {
                domain.made("os").children.retain(|e| e.name != "boot" || e.get("dev") != Some("hd"));
            }
        } else if said("in place of its own <target") {
            let disk = &mut devices.children[own()?];
            disk.children.retain(|e| e.name != "target" && e.name != "address");
            disk.children.extend(new);
        } else if said("in place of its own <") || said("in place of its own <mtu") {
            new.into_iter().for_each(|e| {
                if let Some(at) = it {
                    devices.children[at].put(e)
                }
            });
        } else if said("iothread= and queues= go") {
            let driver = devices.children[own()?].made("driver");
            driver.attributes.retain(|(name, _)| name != "iothread" && name != "queues");
        } else if said("its <driver") && new.is_empty() && !text.is_empty() {
            set_all(devices.children[own()?].made("driver"), text)?;
        } else if said("its <driver") || said("that <driver") {
            let driver = devices.children[own()?].made("driver");
            new.into_iter().for_each(|e| driver.put(e));
        } else if place.starts_with("or instead") {
            // The other way: nothing of it is done.
        } else if text.is_empty() && (said("its own element stays") || place.ends_with(':')) {
            own()?;
        } else if it.is_some() && !new.is_empty() && said("in the <") {
            let own = &mut devices.children[own()?];
            for e in new {
                // Its own first line anew.
                if e.name == own.name {
                    own.attributes = e.attributes;
                    e.children.into_iter().for_each(|c| own.put(c))
                } else {
                    own.put(e)
                }
            }
        } else {
            return Err(form(format!("nobody knows where this goes: {place}\n{text}")));
        }
    }
    Ok(())
}

fn set_all(element: &mut Element, text: &str) -> Result<(), Wrong> {
    let all = attributes(text);
    if all.is_empty() {
        return Err(form(format!("no attribute to set in <{}>: {text:?}", element.name)));
    }
    all.iter().for_each(|(name, value)| element.set(name, value));
    Ok(())
}

/// The device that a comment names by its target or address.
fn named(devices: &Element, place: &str) -> Result<Option<usize>, Wrong> {
    for (element, child, key) in [("disk", "target", "dev"), ("interface", "mac", "address")] {
        let Some((_, rest)) = place.split_once(&format!("<{element}> with <{child} {key}='")) else { continue };
        let value = rest.split('\'').next().unwrap_or_default();
        let is = |e: &Element| e.name == element && e.child(child).and_then(|c| c.get(key)) == Some(value);
        let at = devices.children.iter().position(is);
        return at.map(Some).ok_or_else(|| form(format!("no <{element}> with <{child} {key}='{value}'/>")));
    }
    Ok(None)
}
