//! Generates JSON Schema and TypeScript for every message from the Rust types.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::{ClientMessage, ServerMessage, is_published};

/// One schema document; `#/$defs/client` and `#/$defs/server` are the two sets of messages.
pub fn json_schema() -> Value {
    let mut generator = schemars::generate::SchemaSettings::draft2020_12().into_generator();
    let client = ClientMessage::schemas(&mut generator);
    let server = ServerMessage::schemas(&mut generator);
    crate::api::schemas(&mut generator);
    let mut definitions = generator.take_definitions(true);
    let mut define_messages = |side: &str, kinds: Vec<(&'static str, schemars::Schema)>| {
        let mut names = Vec::new();
        for (kind, payload) in kinds {
            let name = format!("{side}:{kind}");
            definitions.insert(name.clone(), envelope(kind, payload.to_value()));
            names.push(json!({ "$ref": format!("#/$defs/{name}") }));
        }
        definitions.insert(side.to_owned(), json!({ "oneOf": names }));
    };
    define_messages("client", client);
    define_messages("server", server);
    let mut schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "PVP v1",
        "description": "Every message of the protocol. Generated from the `protocol` crate.",
        "anyOf": [{ "$ref": "#/$defs/client" }, { "$ref": "#/$defs/server" }],
        "$defs": definitions,
    });
    // Whether objects keep the order of their fields depends on what else is built.
    schema.sort_all_objects();
    schema
}

fn envelope(kind: &str, payload: Value) -> Value {
    let id = json!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}$" });
    json!({
        "type": "object",
        "description": if is_published(kind) { "published" } else { "extension" },
        "required": ["v", "id", "session", "sender", "type", "payload"],
        "properties": {
            "v": { "const": 1 },
            "id": id,
            "ts": { "type": "string", "format": "date-time" },
            "session": id,
            "sender": id,
            "type": { "const": kind },
            "payload": payload,
            "ref": id,
            "seq": { "type": "integer", "minimum": 1 },
            "causal_refs": { "type": "array", "items": id },
            "fork": id,
        },
    })
}

/// Collects the declarations of all types that the messages use, by name.
struct Declarations {
    config: ts_rs::Config,
    by_name: BTreeMap<String, String>,
}

impl ts_rs::TypeVisitor for Declarations {
    fn visit<T: ts_rs::TS + 'static + ?Sized>(&mut self) {
        if T::output_path().is_none() {
            T::visit_dependencies(self);
            T::visit_generics(self);
            return;
        }
        let name = T::ident(&self.config);
        if !self.by_name.contains_key(&name) {
            self.by_name.insert(name, T::decl(&self.config));
            T::visit_dependencies(self);
            T::visit_generics(self);
        }
    }
}

/// TypeScript types of every message; `ClientMessage` and `ServerMessage` are unions by `type`.
pub fn typescript() -> String {
    let config = ts_rs::Config::default().with_large_int("number");
    let mut declarations = Declarations {
        config,
        by_name: BTreeMap::new(),
    };
    ClientMessage::visit_types(&mut declarations);
    ServerMessage::visit_types(&mut declarations);
    crate::api::visit(&mut declarations);
    let mut text = String::from(
        "// Generated from the `protocol` crate by `make generate`. Do not edit.\n\n\
         export interface Envelope<Type extends string, Payload> {\n  v: 1;\n  id: string;\n  ts?: string;\n  \
         session: string;\n  sender: string;\n  type: Type;\n  payload: Payload;\n  ref?: string;\n  \
         seq?: number;\n  causal_refs?: string[];\n  fork?: string;\n}\n",
    );
    for declaration in declarations.by_name.values() {
        // A payload that defines no fields may hold any.
        let declaration = declaration.replace("{  }", "Record<string, unknown>");
        text.push_str("\nexport ");
        for line in declaration.lines() {
            writeln!(text, "{}", line.trim_end()).expect("writing to a string");
        }
    }
    let config = &declarations.config;
    for (name, kinds) in [
        (
            "ClientMessage",
            ClientMessage::typescript_payload_names(config),
        ),
        (
            "ServerMessage",
            ServerMessage::typescript_payload_names(config),
        ),
    ] {
        write!(text, "\nexport type {name} =").expect("writing to a string");
        for (kind, payload) in kinds {
            write!(text, "\n  | Envelope<\"{kind}\", {payload}>").expect("writing to a string");
        }
        text.push_str(";\n");
    }
    text
}
