//! Macros that define the wire types: objects, string enums, and types that are one string.

use std::collections::BTreeMap;

use serde_json::Value;

/// Fields this version does not know, kept so that a relayed message loses nothing.
pub type ExtraFields = BTreeMap<String, Value>;

/// A JSON object with arbitrary keys, which this crate does not interpret.
pub type JsonObject = serde_json::Map<String, Value>;

/// Defines structs that are JSON objects on the wire, with schema and TypeScript.
macro_rules! wire_structs {
    ($($item:item)*) => {$(
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
        #[cfg_attr(feature = "generate", ts(optional_fields))]
        $item
    )*};
}

/// Defines enums whose variants are snake_case strings on the wire.
macro_rules! wire_enums {
    ($($(#[$meta:meta])* pub enum $name:ident { $($variants:tt)* })*) => {$(
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize,
            serde::Deserialize, strum::IntoStaticStr, strum::VariantArray,
        )]
        #[cfg_attr(feature = "generate", derive(schemars::JsonSchema, ts_rs::TS))]
        #[serde(rename_all = "snake_case")]
        #[strum(serialize_all = "snake_case")]
        $(#[$meta])*
        pub enum $name { $($variants)* }

        $crate::wire::named_variants!($name);
    )*};
}

/// Adds a list of all variants and the wire name of each.
macro_rules! named_variants {
    ($name:ident) => {
        impl $name {
            /// Every variant, in the order of declaration.
            pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

            /// The name on the wire.
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use named_variants;

/// Implements serialisation for types that are one string on the wire, read by their `parse`.
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

#[cfg(test)]
mod tests {
    use serde::Serialize;

    /// Checks the names of every variant of these types against what serde writes.
    macro_rules! check_names {
        ($($name:path),* $(,)?) => {$({
            use $name as T;
            for variant in T::ALL {
                assert_eq!(written(variant), variant.as_str());
            }
        })*};
    }

    fn written(value: &impl Serialize) -> String {
        serde_json::from_value(serde_json::to_value(value).unwrap()).unwrap()
    }

    #[test]
    fn the_name_of_a_variant_is_what_is_written() {
        check_names!(
            crate::Capability,
            crate::Category,
            crate::ErrorCode,
            crate::GateTimeoutAction,
            crate::OrderingMode,
            crate::ParticipantKind,
            crate::ParticipantTimeoutAction,
            crate::Risk,
            crate::Role,
            crate::RunMode,
            crate::SandboxProfile,
            crate::ClientReads,
            crate::ShellExecMode,
            crate::ToolCategory,
            crate::Transport,
            crate::api::ChannelKind,
            crate::api::CommandStatus,
            crate::api::DecisionState,
            crate::api::GateEvent,
            crate::api::GateStatus,
            crate::api::NotificationEvent,
            crate::api::TokenState,
            crate::api::VoteChoice,
            crate::payload::ClearedBy,
            crate::payload::Degree,
            crate::payload::RunBy,
            crate::payload::ConflictResolution,
            crate::payload::ContentStorage,
            crate::payload::ContextContentType,
            crate::payload::FinalState,
            crate::payload::FinishReason,
            crate::payload::GateActionType,
            crate::payload::GateOutcome,
            crate::payload::InterruptAction,
            crate::payload::InterruptUrgency,
            crate::payload::MergeStrategy,
            crate::payload::OutputStream,
            crate::payload::PresenceStatus,
            crate::payload::ResolutionCause,
            crate::payload::RunOutcome,
            crate::payload::SecretType,
            crate::payload::TimeoutResolution,
            crate::payload::VisibilityGroup,
        );
    }
}
