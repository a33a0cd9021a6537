//! The configuration of `vmio scan`: findings to leave out.
//!
//! ```toml
//! ignore = ["no-discard", "sparse-file@db1"]
//! ```

use toml::de::DeValue;

use crate::problem::TextError;
use crate::toml_reader;

/// The entries of `ignore`. `check` returns what is wrong with one, if anything.
///
/// # Errors
/// When it is no TOML, has an unknown key, or an entry that `check` refuses.
pub fn parse(file: &str, text: &str, check: &dyn Fn(&str) -> Option<String>) -> Result<Vec<String>, TextError> {
    toml_reader::read(file, text, |reader, top| {
        reader.known_keys(top, &["ignore"]);
        reader.list(top, "ignore", Some(Vec::new()), |reader, item, path| {
            let DeValue::String(entry) = item.get_ref() else {
                reader.wrong_type(&item.span(), path, "a string", item.get_ref());
                return None;
            };
            match check(entry) {
                None => Some(entry.to_string()),
                Some(what) => {
                    reader.problem(&item.span(), path, what);
                    None
                }
            }
        })
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<String>, TextError> {
        let check = |entry: &str| entry.starts_with('x').then(|| format!("unknown rule {entry}"));
        parse("scan.toml", text, &check)
    }

    #[test]
    fn entries_are_read_and_every_problem_has_its_line() {
        assert_eq!(read("# nothing\n").unwrap(), Vec::<String>::new());
        assert_eq!(read("ignore = [\n  'a', # why\n  'b@web*',\n]").unwrap(), ["a", "b@web*"]);
        for (text, problem) in [
            ("ignore = 'a'", "scan.toml:1: ignore: must be a list, not a string"),
            ("\nignore = ['a', 3]", "scan.toml:2: ignore: must be a string, not a whole number"),
            ("ignore = ['a',\n 'a']", "scan.toml:2: ignore: is named twice"),
            ("ignore = ['x1']", "scan.toml:1: ignore: unknown rule x1"),
            ("ignore = ['a'", "scan.toml:1: invalid TOML: "),
        ] {
            let refused = read(text).unwrap_err().to_string();
            assert!(refused.starts_with(problem), "{text}: {refused}");
        }
        let both = read("ignor = []\nignore = ['x2']").unwrap_err().to_string();
        assert!(
            both.contains("scan.toml:1: ignor: unknown key; did you mean `ignore`?") && both.contains("scan.toml:2: ")
        );
    }
}
