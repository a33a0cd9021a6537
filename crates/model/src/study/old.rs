//! Studies as they were written before a cell had actors: what each key is called now, and stored ones in
//! today's form.

/// Keys of `[[matrix]]` that are written otherwise now.
const KEYS: [(&str, &str); 7] = [
    ("guests", "sides"),
    ("targets", "disks.targets"),
    ("drivers", "disks.drivers"),
    ("caches", "disks.caches"),
    ("aios", "disks.aios"),
    ("iothreads", "disks.iothreads"),
    ("options", "disks.options"),
];

/// Whether an old key of `[[matrix]]` says something of disks.
pub(super) fn of_disks(key: &str) -> bool {
    now(key).is_some_and(|now| now.starts_with("disks."))
}

/// How a key of `[[matrix]]` is written now, where that was otherwise.
pub(super) fn now(key: &str) -> Option<&'static str> {
    KEYS.iter().find(|(old, _)| *old == key).map(|(_, now)| *now)
}

/// A study as an old run stored it, in today's form; `None` where it is in today's form already, or no
/// study.
pub fn renewed(text: &str) -> Option<String> {
    let mut study: toml::Table = text.parse().ok()?;
    let mut found = false;
    for matrix in study.get_mut("matrix")?.as_array_mut()? {
        let matrix = matrix.as_table_mut()?;
        for (old, now) in KEYS {
            let Some(value) = matrix.remove(old) else { continue };
            found = true;
            match now.split_once('.') {
                Some((table, key)) => {
                    let below = matrix.entry(table).or_insert_with(|| toml::Table::new().into());
                    below.as_table_mut()?.insert(key.to_owned(), value);
                }
                None => {
                    matrix.insert(now.to_owned(), value);
                }
            }
        }
    }
    found.then(|| toml::to_string_pretty(&study).ok()).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::study::{Disks, Matrix};

    #[test]
    fn a_stored_study_is_read_in_todays_form() {
        let old = "name = 'x'\n[[matrix]]\ntargets = ['device']\nguests = ['native', 'qemu']\ndrivers = ['virtio-blk']\n\
                   workloads = ['seq-read']\n[[matrix.options]]\ndiscard = true\n";
        #[derive(serde::Deserialize)]
        struct Stored {
            matrix: Vec<Matrix>,
        }
        let now: Stored = toml::from_str(&renewed(old).unwrap()).unwrap();
        let matrix = &now.matrix[0];
        assert_eq!((matrix.sides.len(), matrix.workloads.len()), (2, 1));
        let disks: &Disks = matrix.disks.as_ref().unwrap();
        assert_eq!((disks.targets[0].as_str(), disks.drivers[0].as_str()), ("device", "virtio-blk"));
        assert!(disks.options[0].discard);
        assert_eq!(renewed(&renewed(old).unwrap()), None, "nothing is renewed twice");
        assert_eq!(renewed("no study"), None);
    }
}
