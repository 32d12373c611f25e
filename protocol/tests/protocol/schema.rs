//! A validator for the part of JSON Schema that the generated document uses. Any other keyword is
//! an error.
#![expect(
    clippy::panic,
    reason = "a schema that this cannot check fails the test"
)]

use std::collections::BTreeSet;

use pvp_protocol::Timestamp;
use serde_json::Value;

/// The generated document.
pub(crate) struct Schema(Value);

/// The fields of one payload.
pub(crate) struct PayloadFields {
    pub(crate) fields: BTreeSet<String>,
    pub(crate) required: BTreeSet<String>,
}

impl Schema {
    pub(crate) fn new(document: Value) -> Self {
        Self(document)
    }

    /// Validates a message against one set of messages, `client` or `server`.
    pub(crate) fn validate_message(&self, side: &str, message: &Value) -> Result<(), String> {
        self.validate(&self.0["$defs"][side], message)
    }

    /// The fields of a payload of this type, and which are required.
    pub(crate) fn payload_fields(&self, side: &str, kind: &str) -> PayloadFields {
        let envelope = &self.0["$defs"][format!("{side}:{kind}")];
        let mut payload = &envelope["properties"]["payload"];
        while let Some(target) = payload["$ref"].as_str() {
            payload = self.resolve_ref(target);
        }
        let properties = payload["properties"].as_object();
        let required = payload["required"].as_array();
        PayloadFields {
            fields: properties
                .map(|p| p.keys().cloned().collect())
                .unwrap_or_default(),
            required: required
                .into_iter()
                .flatten()
                .filter_map(|name| name.as_str().map(str::to_owned))
                .collect(),
        }
    }

    fn resolve_ref(&self, reference: &str) -> &Value {
        let pointer = reference.strip_prefix('#').expect("a local reference");
        self.0.pointer(pointer).expect("a reference that leads on")
    }

    fn validate(&self, schema: &Value, value: &Value) -> Result<(), String> {
        if schema == &Value::Bool(true) {
            return Ok(());
        }
        let keywords = schema.as_object().expect("a schema");
        for (keyword, rule) in keywords {
            let ok = match keyword.as_str() {
                "description" | "default" | "title" | "required" => true,
                "$ref" => {
                    self.validate(self.resolve_ref(rule.as_str().expect("a reference")), value)?;
                    true
                }
                "type" => has_type(rule, value),
                "const" => rule == value,
                "enum" => rule.as_array().expect("a list").contains(value),
                "anyOf" => self.count_valid(rule, value) > 0,
                "oneOf" => self.count_valid(rule, value) == 1,
                "minimum" => value.as_f64() >= rule.as_f64() || !value.is_number(),
                "maximum" => value.as_f64() <= rule.as_f64() || !value.is_number(),
                "format" => has_format(rule, value),
                "uniqueItems" => rule == &Value::Bool(false) || all_unique(value),
                "pattern" => value
                    .as_str()
                    .is_none_or(|text| matches_pattern(rule, text)),
                "items" => {
                    for item in value.as_array().into_iter().flatten() {
                        self.validate(rule, item)?;
                    }
                    true
                }
                "properties" => {
                    for (name, property) in rule.as_object().expect("properties") {
                        if let Some(inner) = value.get(name) {
                            self.validate(property, inner)
                                .map_err(|problem| format!("{name}: {problem}"))?;
                        }
                    }
                    true
                }
                "additionalProperties" => {
                    let known = keywords.get("properties").and_then(Value::as_object);
                    for (name, inner) in value.as_object().into_iter().flatten() {
                        if !known.is_some_and(|known| known.contains_key(name)) {
                            self.validate(rule, inner)?;
                        }
                    }
                    true
                }
                other => panic!("teach this test the keyword `{other}`"),
            };
            if !ok {
                return Err(format!("{value} against `{keyword}`: {rule}"));
            }
        }
        let required = keywords.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if value.is_object() && value.get(name).is_none() {
                return Err(format!("`{name}` is missing"));
            }
        }
        Ok(())
    }

    fn count_valid(&self, schemas: &Value, value: &Value) -> usize {
        let schemas = schemas.as_array().expect("a list of schemas");
        let fitting = schemas
            .iter()
            .filter(|schema| self.validate(schema, value).is_ok());
        fitting.count()
    }
}

fn has_type(rule: &Value, value: &Value) -> bool {
    let is = |name: &Value| match name.as_str().expect("the name of a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("teach this test the type `{other}`"),
    };
    match rule.as_array() {
        Some(names) => names.iter().any(is),
        None => is(rule),
    }
}

fn all_unique(value: &Value) -> bool {
    let items = value.as_array().into_iter().flatten();
    let different: BTreeSet<_> = items.clone().map(Value::to_string).collect();
    different.len() == items.count()
}

fn has_format(rule: &Value, value: &Value) -> bool {
    match rule.as_str().expect("the name of a format") {
        "date-time" => value
            .as_str()
            .is_none_or(|text| Timestamp::parse(text).is_ok()),
        "double" | "int64" | "uint" | "uint16" | "uint32" | "uint64" => true,
        other => panic!("teach this test the format `{other}`"),
    }
}

fn matches_pattern(rule: &Value, text: &str) -> bool {
    match rule.as_str().expect("a pattern") {
        "^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$" => {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
            (1..=128).contains(&text.len())
                && text.chars().all(allowed)
                && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        }
        "^[0-9a-fA-F]{64}$" => text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit()),
        other => panic!("teach this test the pattern `{other}`"),
    }
}
