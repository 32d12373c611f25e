//! How the wire types are written down: one macro for objects, one for words.

use std::collections::BTreeMap;

use serde_json::Value;

/// Fields this version does not know, kept so that a relayed message loses nothing.
pub type ExtraFields = BTreeMap<String, Value>;

/// A JSON object whose keys are the business of whoever wrote it.
pub type JsonObject = serde_json::Map<String, Value>;

/// Objects: structs that are read from and written to JSON, with schema and TypeScript.
macro_rules! wire_structs {
    ($($item:item)*) => {$(
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "generate", ts(optional_fields))]
        $item
    )*};
}

/// Words: enums whose variants are plain snake_case strings on the wire.
macro_rules! wire_enums {
    ($($item:item)*) => {$(
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
        )]
        #[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
        #[serde(rename_all = "snake_case")]
        $item
    )*};
}

/// Texts: types that are one string on the wire, read by their own `parse`.
macro_rules! string_types {
    ($($name:ident { $($schema:tt)* })*) => {$(
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }

        #[cfg(feature = "generate")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ $($schema)* })
            }
        }

        #[cfg(feature = "generate")]
        impl ts_rs::TS for $name {
            type WithoutGenerics = Self;
            type OptionInnerType = Self;

            fn name(_: &ts_rs::Config) -> String {
                "string".to_owned()
            }

            fn inline(_: &ts_rs::Config) -> String {
                "string".to_owned()
            }
        }
    )*};
}
