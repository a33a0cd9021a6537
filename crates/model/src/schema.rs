//! JSON Schemas of types that serialise as something else than their members.

/// The schema of a type that JSON shows as a text.
macro_rules! as_text {
    ($name:ty) => {
        impl ::schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                <String as ::schemars::JsonSchema>::schema_name()
            }
            fn json_schema(generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                <String as ::schemars::JsonSchema>::json_schema(generator)
            }
        }
    };
}
pub(crate) use as_text;
