//! The OpenAPI document, made from the table of routes and the generated schema.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use pvp_protocol::SCHEMA;
use serde_json::{Map, Value, json};

use super::routes::{self, Access, Answer, Route};
use crate::house::House;

pub(super) async fn document(State(house): State<Arc<House>>) -> Json<Value> {
    Json(describe(&routes::all(&house)))
}

fn describe(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "PVP",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Supervise an AI agent together. The same authority as the WebSocket at `/ws`.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": {
            route.status.to_string(): good(route.answer),
            "default": {
                "description": "A refusal: its code, what to do about it, and whether trying again may help",
                "content": { "application/json": { "schema": reference("ErrorReport") } },
            },
        },
    });
    if let Some(body) = route.body {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": reference(body) } },
        });
    }
    operation["security"] = match route.access {
        Access::Anyone => json!([]),
        Access::Token | Access::OwnToken | Access::Admin => json!([{ "token": [] }]),
    };
    if route.access == Access::Admin {
        operation["description"] = json!("Takes a token with the admin role.");
    }
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let in_path = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        json!({
            "name": name, "in": "path", "required": true, "schema": { "type": "string" },
        })
    });
    let in_query = route.parameters.iter().map(|parameter| {
        json!({
            "name": parameter.name, "in": "query", "description": parameter.meaning,
            "schema": { "type": parameter.kind },
        })
    });
    in_path.chain(in_query).collect()
}

fn good(answer: Answer) -> Value {
    match answer {
        Answer::Schema(name) => json!({
            "description": "Done",
            "content": { "application/json": { "schema": reference(name) } },
        }),
        Answer::Json => json!({ "description": "Done", "content": { "application/json": {} } }),
        Answer::Text => json!({ "description": "Done", "content": { "text/plain": {} } }),
        Answer::Nothing => json!({ "description": "Done" }),
    }
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{}", component(name)) })
}

/// A name that OpenAPI allows for a component.
fn component(name: &str) -> String {
    name.replace(':', ".")
}

/// The definitions of the generated schema, under the names that OpenAPI wants.
fn schemas() -> Value {
    let schema: Value = serde_json::from_str(SCHEMA).expect("the generated schema is JSON");
    let mut definitions = Map::new();
    if let Some(found) = schema["$defs"].as_object() {
        for (name, definition) in found {
            definitions.insert(component(name), moved(definition.clone()));
        }
    }
    Value::Object(definitions)
}

/// The same schema with its references pointing to where the definitions are here.
fn moved(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| match (key.as_str(), value.as_str()) {
                    ("$ref", Some(target)) => {
                        let name = target.trim_start_matches("#/$defs/");
                        let target = format!("#/components/schemas/{}", component(name));
                        (key, Value::String(target))
                    }
                    _ => (key, moved(value)),
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(moved).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema,
    }
}
