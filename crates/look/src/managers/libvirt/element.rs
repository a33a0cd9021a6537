//! Finding elements and attributes of a document by name.

use roxmltree::Node;

/// Whether an element has this name, in any namespace.
pub fn is(node: Node<'_, '_>, name: &str) -> bool {
    node.is_element() && node.tag_name().name() == name
}

/// The child elements of this name.
pub fn children<'a, 'i>(node: Node<'a, 'i>, name: &str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |n| is(*n, name))
}

/// The first child element of this name.
pub fn child<'a, 'i>(node: Node<'a, 'i>, name: &str) -> Option<Node<'a, 'i>> {
    node.children().find(|n| is(*n, name))
}

/// The element at the end of a path of names.
pub fn at<'a, 'i>(node: Node<'a, 'i>, path: &[&str]) -> Option<Node<'a, 'i>> {
    path.iter().try_fold(node, |node, name| child(node, name))
}

/// An attribute of the first child element of this name.
pub fn attribute<'a>(node: Node<'a, '_>, element: &str, name: &str) -> Option<&'a str> {
    child(node, element)?.attribute(name)
}

/// The text of the first child element of this name.
pub fn text_of<'a>(node: Node<'a, '_>, name: &str) -> Option<&'a str> {
    child(node, name)?.text().map(str::trim).filter(|text| !text.is_empty())
}
