//! Values whose every free text is somebody else's choice.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Every free text in a value gets a hostile end, as far as it still means the same kind of thing.
pub fn poison<T: Serialize + DeserializeOwned>(value: &T, hostile: &str) -> T {
    fn leaves(value: &Value, at: String, all: &mut Vec<String>) {
        match value {
            Value::String(_) => all.push(at),
            Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| leaves(v, format!("{at}/{i}"), all)),
            Value::Object(map) => {
                let name = |k: &str| k.replace('~', "~0").replace('/', "~1");
                map.iter().for_each(|(k, v)| leaves(v, format!("{at}/{}", name(k)), all));
            }
            _ => {}
        }
    }
    let mut whole = serde_json::to_value(value).unwrap();
    let mut all = Vec::new();
    leaves(&whole, String::new(), &mut all);
    let mut poisoned = 0;
    for at in all {
        let leaf = whole.pointer_mut(&at).unwrap();
        let before = leaf.clone();
        *leaf = Value::String(format!("{}{hostile}", before.as_str().unwrap()));
        match T::deserialize(whole.clone()) {
            Ok(_) => poisoned += 1,
            Err(_) => *whole.pointer_mut(&at).unwrap() = before,
        }
    }
    assert!(poisoned > 2, "{poisoned}");
    T::deserialize(whole).unwrap()
}
