//! A value of QEMU's `-device`, as properties rather than text. It is written as `model,name=value`
//! (qemu(1)), which every version reads, and as JSON (QEMU 6.2) where a property is a list, which
//! has no other form.

use std::fmt;

use serde_json::{Map, Value};

/// A device.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    model: &'static str,
    properties: Vec<(&'static str, Value)>,
}

impl Device {
    /// A device of this model (QOM type), with its id.
    pub fn new(model: &'static str, id: impl Into<String>) -> Self {
        Self { model, properties: Vec::new() }.with("id", id.into())
    }

    /// The same with a further property.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.properties.push((name, value.into()));
        self
    }

    /// The same with a further property, where there is a value for it.
    #[must_use]
    pub fn maybe(self, name: &'static str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Its QOM type.
    #[cfg(test)]
    pub fn model(&self) -> &'static str {
        self.model
    }

    /// Value of a property, where it was set.
    #[cfg(test)]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.properties.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.properties.iter().any(|(_, value)| value.is_array()) {
            let named = self.properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
            let all: Map<String, Value> = [("driver".to_owned(), self.model.into())].into_iter().chain(named).collect();
            return Value::Object(all).fmt(f);
        }
        f.write_str(self.model)?;
        for (name, value) in &self.properties {
            match value {
                Value::Bool(on) => write!(f, ",{name}={}", if *on { "on" } else { "off" })?,
                // A comma in the value of an option is doubled.
                Value::String(text) => write!(f, ",{name}={}", text.replace(',', ",,"))?,
                other => write!(f, ",{name}={other}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_values_are_options_and_lists_are_json() {
        let device = Device::new("nvme", "a").with("serial", "x,y").with("share-rw", true).with("n", 4);
        assert_eq!(device.to_string(), "nvme,id=a,serial=x,,y,share-rw=on,n=4");
        let mapped = device.with("m", json!([{"iothread": "io0"}])).maybe("none", None::<u32>).to_string();
        assert_eq!(
            mapped,
            r#"{"driver":"nvme","id":"a","m":[{"iothread":"io0"}],"n":4,"serial":"x,y","share-rw":true}"#
        );
    }
}
