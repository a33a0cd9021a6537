//! A value with its source. Both are taken, replaced and dropped together, and no source is looked up by a field's
//! name, so renaming a field cannot separate them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Deref;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Provenance, Source, Subject};

/// Sources of settings by name, as in JSON: `driver` -> `/proc/812/cmdline, -device`.
pub type Sources = BTreeMap<String, String>;

/// A value with its source. Dereferences to the value and serialises as the value; [`Sourced`] lists the sources of a
/// device's facts beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fact<T> {
    value: T,
    source: Option<Source>,
}

impl<T> Fact<T> {
    /// A value from this source.
    pub fn read(value: T, source: impl Into<Source>) -> Self {
        Self { value, source: Some(source.into()) }
    }

    /// The value.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// The value, mutable; the source stays.
    pub fn amend(&mut self) -> &mut T {
        &mut self.value
    }

    /// Its source; `None` where it is the device's provenance.
    pub fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    /// Its source, else its device's.
    pub fn source_or(&self, device: &Provenance) -> String {
        self.source.as_ref().map_or_else(|| device.place(), Source::to_string)
    }
}

impl<T: Blank> Fact<T> {
    /// Whether the value is unknown.
    pub fn is_blank(&self) -> bool {
        self.value.is_blank()
    }

    /// Takes another reader's value where none is known; `device` is the other's provenance of the device.
    pub(super) fn fill(&mut self, other: Self, device: &Provenance) {
        if self.is_blank() && !other.is_blank() {
            let source = other.source.unwrap_or_else(|| device.place().into());
            *self = Fact { source: Some(source), value: other.value };
        }
    }
}

impl<T> From<T> for Fact<T> {
    /// A value whose source is the device's provenance.
    fn from(value: T) -> Self {
        Self { value, source: None }
    }
}

impl From<&str> for Fact<Option<String>> {
    fn from(value: &str) -> Self {
        Some(value.to_owned()).into()
    }
}

impl<A, T: FromIterator<A>> FromIterator<A> for Fact<T> {
    fn from_iter<I: IntoIterator<Item = A>>(all: I) -> Self {
        T::from_iter(all).into()
    }
}

impl<T> Deref for Fact<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq<T> for Fact<T> {
    fn eq(&self, other: &T) -> bool {
        self.value == *other
    }
}

impl<T: Serialize> Serialize for Fact<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(to)
    }
}

impl<T: JsonSchema> JsonSchema for Fact<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Fact<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(from).map(Fact::from)
    }
}

/// A value that may be unknown.
pub trait Blank {
    /// Whether it is unknown.
    fn is_blank(&self) -> bool;
}

impl<T> Blank for Option<T> {
    fn is_blank(&self) -> bool {
        self.is_none()
    }
}

impl<T> Blank for Vec<T> {
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

impl<K, V> Blank for BTreeMap<K, V> {
    fn is_blank(&self) -> bool {
        self.is_empty()
    }
}

/// A type whose facts have sources.
pub trait Sourced {
    /// Adds the sources of the facts in the member of this name.
    fn add_sources(&self, _name: &'static str, _all: &mut BTreeMap<&'static str, Source>) {}
}

impl<T> Sourced for Fact<T> {
    fn add_sources(&self, name: &'static str, all: &mut BTreeMap<&'static str, Source>) {
        all.extend(self.source.clone().map(|source| (name, source)));
    }
}

impl Sourced for bool {}
impl Sourced for String {}
impl Sourced for Subject {}
impl Sourced for Provenance {}
impl<T> Sourced for Option<T> {}
impl<T> Sourced for Vec<T> {}

/// Defines a struct of facts. Members are named here only; their names in JSON's sources come from here.
macro_rules! facts {
    ($(#[$of:meta])* pub struct $name:ident { $($(#[$member:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$of])*
        pub struct $name {
            $($(#[$member])* pub $field: $type,)*
        }

        impl $crate::facts::fact::Sourced for $name {
            fn add_sources(
                &self,
                _name: &'static str,
                all: &mut ::std::collections::BTreeMap<&'static str, $crate::facts::Source>,
            ) {
                $(self.$field.add_sources(stringify!($field), all);)*
            }
        }
    };
}
pub(super) use facts;

/// Defines a device: [`facts!`] whose JSON has the sources of all members as `read`, before `from`.
macro_rules! device {
    ($(#[$of:meta])* pub struct $name:ident { $($(#[$member:meta])* pub $field:ident: $type:ty,)* }) => {
        $crate::facts::fact::facts! {
            $(#[$of])*
            pub struct $name {
                $($(#[$member])* pub $field: $type,)*
            }
        }

        impl $name {
            /// The source of each setting; one that is not listed comes from `from`.
            pub fn sources(&self) -> ::std::collections::BTreeMap<&'static str, $crate::facts::Source> {
                let mut all = ::std::collections::BTreeMap::new();
                $crate::facts::fact::Sourced::add_sources(self, "", &mut all);
                all
            }

            /// The sources as text.
            pub fn read(&self) -> $crate::facts::Sources {
                self.sources().into_iter().map(|(name, source)| (name.to_owned(), source.to_string())).collect()
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn schema_id() -> ::std::borrow::Cow<'static, str> {
                concat!(module_path!(), "::", stringify!($name)).into()
            }
            fn json_schema(generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                $(#[$of])*
                #[derive(::schemars::JsonSchema)]
                #[allow(dead_code)]
                struct Members {
                    $($(#[$member])* $field: $type,)*
                    /// Where each setting was read; what is not listed comes from `from`.
                    read: $crate::facts::Sources,
                }
                <Members as ::schemars::JsonSchema>::json_schema(generator)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> ::core::result::Result<S::Ok, S::Error> {
                use ::serde::ser::SerializeStruct;
                let members = [$(stringify!($field)),*].len() + 1;
                let mut device = to.serialize_struct(stringify!($name), members)?;
                $(
                    if stringify!($field) == "from" {
                        device.serialize_field("read", &self.read())?;
                    }
                    device.serialize_field(stringify!($field), &self.$field)?;
                )*
                device.end()
            }
        }
    };
}
pub(super) use device;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_goes_with_its_source() {
        let device = Provenance::Transcript { name: "b".into() };
        let mut own: Fact<Option<u32>> = Fact::default();
        own.fill(Fact::read(Some(4), "a file"), &device);
        assert_eq!((*own, own.source()), (Some(4), Some(&"a file".into())));
        own.fill(Fact::read(Some(5), "another"), &device);
        assert_eq!((*own, own.source()), (Some(4), Some(&"a file".into())));
        own = Fact::default();
        own.fill(Some(6).into(), &device);
        assert_eq!((*own, own.source()), (Some(6), Some(&"transcript b".into())));
        let mut list: Fact<Vec<&str>> = Vec::new().into();
        list.fill(vec!["gso"].into(), &device);
        assert_eq!((list.len(), list.source()), (1, Some(&"transcript b".into())));
    }
}
