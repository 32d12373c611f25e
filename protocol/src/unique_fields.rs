//! JSON objects in which no field is given twice. Of two quorums, one would silently not hold.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::JsonObject;

/// An object; one that gives a field twice, at any depth, is an error.
#[derive(Debug, Clone, PartialEq)]
pub struct UniqueFields(pub JsonObject);

impl<'de> Deserialize<'de> for UniqueFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor).map(Self)
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = JsonObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonObject, A::Error> {
        let mut object = JsonObject::new();
        while let Some(name) = map.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("`{name}` is given twice")));
            }
            let UniqueValue(value) = map.next_value()?;
            object.insert(name, value);
        }
        Ok(object)
    }
}

struct UniqueValue(Value);

impl<'de> Deserialize<'de> for UniqueValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor).map(Self)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Value, A::Error> {
        ObjectVisitor.visit_map(map).map(Value::Object)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(UniqueValue(value)) = sequence.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_given_twice_is_refused_at_any_depth() {
        let parse = |text: &str| serde_json::from_str::<UniqueFields>(text);
        let text = r#"{"a": [1, -1, 1.5, null, "é", {"b": true}], "c": {}}"#;
        let plain: JsonObject = serde_json::from_str(text).unwrap();
        assert_eq!(parse(text).unwrap().0, plain);
        for twice in [
            r#"{"x": 1, "x": 1}"#,
            r#"{"a": {"x": 3, "x": 1}}"#,
            r#"{"a": [{"x": 3, "y": 0, "\u0078": 1}]}"#,
        ] {
            let error = parse(twice).unwrap_err().to_string();
            assert!(error.starts_with("`x` is given twice"), "{error}");
        }
        assert!(parse("[]").is_err() && parse("1").is_err());
    }
}
