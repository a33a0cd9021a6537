//! JSON Schemas of types with a serialisation of their own.

/// The schema of a type that is a text in JSON.
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
