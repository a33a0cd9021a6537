//! Names of guests: words that select them on the command line, and unique names for guests with the same name.

use std::collections::BTreeMap;

use super::Guest;
use crate::policy::glob::Glob;

/// Shortest UUID prefix that selects a guest.
const UUID_CHARACTERS: usize = 4;
/// Length of the UUID prefix that is shown to distinguish guests.
const UUID_SHOWN: usize = 8;
/// The keys of [`Guest::ids`] that select a guest.
const NAMES: [&str; 11] =
    ["name", "vmid", "domain", "domid", "container", "hostname", "pod", "pod-uid", "machine", "openstack", "title"];

/// Indices of the guests that a word selects: by name, else by another id (VM number, domain, pod), else by process,
/// else by a UUID prefix, else by a pattern (`web*`), else by any of its names, else by a pattern, without regard to case.
/// Only the first of these that matches counts.
pub fn called(guests: &[Guest], word: &str) -> Vec<usize> {
    let pattern = |word: &str| word.contains(['*', '?', '[']).then(|| Glob::new(word).ok()).flatten();
    let words =
        Words { word, lower: word.to_lowercase(), glob: pattern(word), glob_lower: pattern(&word.to_lowercase()) };
    let ranks: Vec<Option<u8>> = guests.iter().map(|g| words.rank(g)).collect();
    let best = ranks.iter().flatten().min();
    (0..guests.len()).filter(|place| best.is_some() && ranks[*place].as_ref() == best).collect()
}

/// A word in all forms in which it is compared.
struct Words<'a> {
    word: &'a str,
    lower: String,
    glob: Option<Glob>,
    glob_lower: Option<Glob>,
}

impl Words<'_> {
    /// How certainly it selects a guest; the lowest is the most certain.
    fn rank(&self, guest: &Guest) -> Option<u8> {
        let word = self.word;
        let ids = || guest.ids.iter().filter(|(key, _)| NAMES.contains(&key.as_str())).map(|(_, id)| id.as_str());
        let names = || std::iter::once(guest.name.as_str()).chain(ids());
        let fits = |glob: &Option<Glob>, name: &str| glob.as_ref().is_some_and(|glob| glob.matches(name));
        let uuid = |u: &String| u.to_lowercase().starts_with(&self.lower);
        let named = [
            guest.name == word,
            ids().any(|id| id == word),
            guest.pid.is_some_and(|pid| pid.to_string() == word),
            word.len() >= UUID_CHARACTERS && guest.uuid.as_ref().is_some_and(uuid),
            names().any(|name| fits(&self.glob, name)),
            names().any(|name| name.to_lowercase() == self.lower),
            names().any(|name| fits(&self.glob_lower, &name.to_lowercase())),
        ];
        (0..).zip(named).find_map(|(rank, named)| named.then_some(rank))
    }
}

impl Guest {
    /// Its number in Proxmox VE, for a machine or a container.
    pub fn vmid(&self) -> Option<&str> {
        self.ids.get("vmid").map(String::as_str)
    }

    /// Its original name, which other guests may have too.
    pub fn given_name(&self) -> &str {
        self.ids.get("name").map_or(&self.name, String::as_str)
    }
}

/// Makes names unique: by VMID where each guest has its own, else by UUID prefix, else by process, else by a number.
/// The original name stays in `ids` as `name` and selects them all.
pub fn tell_apart(guests: &mut [Guest]) {
    let mut twins: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, guest) in guests.iter().enumerate() {
        twins.entry(guest.name.clone()).or_default().push(place);
    }
    for (name, places) in twins.into_iter().filter(|(_, places)| places.len() > 1) {
        let ways: [fn(&Guest) -> Option<String>; 3] = [
            |g| Some(format!("VMID {}", g.vmid()?)),
            |g| Some(format!("uuid {}", g.uuid.as_ref()?.get(..UUID_SHOWN)?)),
            |g| Some(format!("pid {}", g.pid?)),
        ];
        let by = |way: &fn(&Guest) -> Option<String>| -> Option<Vec<String>> {
            let all: Option<Vec<String>> = places.iter().map(|place| way(&guests[*place])).collect();
            all.filter(|all| all.iter().enumerate().all(|(i, one)| !all[..i].contains(one)))
        };
        let marks = ways.iter().find_map(by).unwrap_or_else(|| {
            // Some may have none of these: then each is named by what it has, and a number.
            let own = |place: &usize| ways.iter().rev().find_map(|way| way(&guests[*place]));
            let mark = |(i, place)| own(place).map_or(format!("#{}", i + 1), |own| format!("{own}, #{}", i + 1));
            places.iter().enumerate().map(mark).collect()
        });
        for (place, mark) in places.iter().zip(marks) {
            let guest = &mut guests[*place];
            guest.ids.insert("name".to_owned(), name.clone());
            guest.name = format!("{name} ({mark})");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(name: &str, pid: Option<u32>, uuid: Option<&str>, ids: &[(&str, &str)]) -> Guest {
        let ids = ids.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Guest { name: name.into(), pid, uuid: uuid.map(str::to_owned), ids, ..Guest::default() }
    }

    #[test]
    fn words_patterns_and_case() {
        let guests = [
            guest("web1", Some(10), Some("5f2b0006-1"), &[]),
            guest("Web1", Some(11), None, &[]),
            guest("web2", Some(12), None, &[("title", "Shop[1]")]),
            guest("db", Some(13), None, &[("vmid", "101")]),
        ];
        let places = |word: &str| called(&guests, word);
        assert_eq!((places("web1"), places("Web1"), places("WEB1")), (vec![0], vec![1], vec![0, 1]));
        assert_eq!((places("web*"), places("WEB?"), places("*")), (vec![0, 2], vec![0, 1, 2], vec![0, 1, 2, 3]));
        assert_eq!((places("Shop[1]"), places("shop*"), places("1?1")), (vec![2], vec![2], vec![3]));
        assert_eq!((places("5F2B"), places("13"), places("[web")), (vec![0], vec![3], vec![]));
    }

    #[test]
    fn twins_are_told_apart_by_what_is_surest_and_their_name_names_them_all() {
        let names = |mut guests: Vec<Guest>| {
            tell_apart(&mut guests);
            let all: std::collections::BTreeSet<&str> = guests.iter().map(|g| g.name.as_str()).collect();
            assert_eq!(all.len(), guests.len(), "{all:?}");
            assert_eq!(called(&guests, "a").len(), guests.iter().filter(|g| g.given_name() == "a").count());
            guests.into_iter().map(|g| g.name).collect::<Vec<_>>()
        };
        let (one, two) = (&[("vmid", "101")][..], &[("vmid", "102")][..]);
        let (x, y) = (Some("11112222-3"), Some("11112223-3"));
        assert_eq!(
            names(vec![guest("a", Some(1), x, one), guest("a", Some(2), y, two)]),
            ["a (VMID 101)", "a (VMID 102)"]
        );
        assert_eq!(
            names(vec![guest("a", Some(1), x, one), guest("b", None, None, &[]), guest("a", Some(2), y, &[])]),
            ["a (uuid 11112222)", "b", "a (uuid 11112223)"]
        );
        assert_eq!(names(vec![guest("a", Some(1), x, &[]), guest("a", Some(2), x, &[])]), ["a (pid 1)", "a (pid 2)"]);
        assert_eq!(
            names(vec![guest("a", None, None, &[]), guest("a", Some(2), None, &[])]),
            ["a (#1)", "a (pid 2, #2)"]
        );
    }
}
