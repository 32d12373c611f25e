//! Writes JSON objects with their keys in alphabetical order.
//!
//! By itself serde_json sorts them, but any crate of a build can make it keep the order in which
//! they came. What is hashed must not depend on that.

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::JsonObject;

/// An object with sorted keys at every depth.
pub(crate) struct SortedFields<'a>(pub(crate) &'a JsonObject);

impl Serialize for SortedFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields: Vec<_> = self.0.iter().collect();
        fields.sort_unstable_by_key(|(name, _)| *name);
        let fields = fields.into_iter();
        serializer.collect_map(fields.map(|(name, value)| (name, SortedValue(value))))
    }
}

/// For fields: `#[serde(serialize_with = "sorted_fields::serialize")]`.
pub(crate) fn serialize<S: Serializer>(
    object: &JsonObject,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    SortedFields(object).serialize(serializer)
}

struct SortedValue<'a>(&'a Value);

impl Serialize for SortedValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(object) => SortedFields(object).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(SortedValue)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.0.serialize(serializer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_at_every_depth() {
        let text = r#"{"b":[{"z":1,"a":{"d":null,"c":true}}],"a":"text"}"#;
        let object: JsonObject = serde_json::from_str(text).unwrap();
        assert_eq!(
            serde_json::to_string(&SortedFields(&object)).unwrap(),
            r#"{"a":"text","b":[{"a":{"c":true,"d":null},"z":1}]}"#
        );
    }
}
