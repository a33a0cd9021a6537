//! The help of the screen: its keys and columns.

use super::columns::{self, Set};

/// Keys and what they do.
pub const KEYS: &[(&str, &str)] = &[
    ("Up Down j k", "select a guest (PgUp, PgDn: ten; Home: the first)"),
    ("Enter", "open the page of the guest"),
    ("Esc", "back; in the table: show all guests, select none"),
    ("Tab 1 to 5", "the next set of columns: overview, disk, network, processor, guard"),
    ("/", "show guests whose names contain a text"),
    ("p Space", "stand still (counting goes on)"),
    ("+ -", "longer and shorter intervals"),
    ("q Ctrl-C", "quit"),
];

/// Lines of the help: what it is about, and a text, which headings have not.
pub fn lines() -> Vec<(String, &'static str)> {
    let heading = |text: &str| (text.to_owned(), "");
    let mut lines = vec![heading("Keys (Esc goes back, the arrow keys scroll)")];
    lines.extend(KEYS.iter().map(|(keys, what)| (format!("  {keys:<12} "), *what)));
    lines.extend(["", "Columns, with the key that sorts guests by it and its sets"].map(heading));
    for column in columns::ALL {
        let sets: String =
            (1..).zip(Set::ALL).filter(|(_, set)| column.is_in(*set)).map(|(n, _)| n.to_string()).collect();
        lines.push((format!("  {} {:<10} {sets:<5} ", column.key, column.title), column.about));
    }
    lines
}
