//! Builds the OpenAPI document from the table of routes and the generated schema.

use std::sync::{Arc, OnceLock};

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use pvp_protocol::SCHEMA;
use serde_json::{Map, Value, json};

use super::routes::{self, ApiRoute, ResponseBody, RouteAccess};
use super::static_document::StaticDocument;
use crate::directory::SessionDirectory;

pub(super) async fn document(
    State(directory): State<Arc<SessionDirectory>>,
    headers: HeaderMap,
) -> Response {
    static DOCUMENT: OnceLock<StaticDocument> = OnceLock::new();
    let document = || {
        let json = build_document(&routes::all(&directory)).to_string();
        StaticDocument::new("application/json", json)
    };
    DOCUMENT.get_or_init(document).respond(&headers)
}

fn build_document(routes: &[ApiRoute]) -> Value {
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

fn operation(route: &ApiRoute) -> Value {
    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters(route),
        "responses": {
            route.status.to_string(): success_response(route.response),
            "default": {
                "description": "A refusal: its code, what to do about it, and whether trying again may help",
                "content": { "application/json": { "schema": schema_ref("ErrorReport") } },
            },
        },
    });
    if let Some(body) = route.body {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": schema_ref(body) } },
        });
    }
    operation["security"] = match route.access {
        RouteAccess::Anyone => json!([]),
        RouteAccess::Token
        | RouteAccess::TokenRequired
        | RouteAccess::Admin
        | RouteAccess::VoteLink => json!([{ "token": [] }]),
    };
    if let Some(description) = description(route.access) {
        operation["description"] = json!(description);
    }
    operation
}

/// What is special about the token that a route takes.
fn description(access: RouteAccess) -> Option<&'static str> {
    match access {
        RouteAccess::Anyone | RouteAccess::Token | RouteAccess::TokenRequired => None,
        RouteAccess::Admin => Some("Takes a token with the admin role."),
        RouteAccess::VoteLink => {
            Some("Takes the secret of a vote link, which no other route takes, and no token.")
        }
    }
}

fn parameters(route: &ApiRoute) -> Vec<Value> {
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

fn success_response(response: ResponseBody) -> Value {
    match response {
        ResponseBody::Schema(name) => json!({
            "description": "Done",
            "content": { "application/json": { "schema": schema_ref(name) } },
        }),
        ResponseBody::Json => {
            json!({ "description": "Done", "content": { "application/json": {} } })
        }
        ResponseBody::Text => json!({ "description": "Done", "content": { "text/plain": {} } }),
        ResponseBody::Empty => json!({ "description": "Done" }),
    }
}

fn schema_ref(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{}", component_name(name)) })
}

/// A name that OpenAPI allows for a component.
fn component_name(name: &str) -> String {
    name.replace(':', ".")
}

/// The definitions of the generated schema, under names that OpenAPI allows.
fn schemas() -> Value {
    let schema: Value = serde_json::from_str(SCHEMA).expect("the generated schema is JSON");
    let mut definitions = Map::new();
    if let Some(found) = schema["$defs"].as_object() {
        for (name, definition) in found {
            definitions.insert(component_name(name), rewrite_refs(definition.clone()));
        }
    }
    Value::Object(definitions)
}

/// The same schema, with its references pointing into the OpenAPI document.
fn rewrite_refs(schema: Value) -> Value {
    match schema {
        Value::Object(fields) => Value::Object(
            fields
                .into_iter()
                .map(|(key, value)| match (key.as_str(), value.as_str()) {
                    ("$ref", Some(target)) => {
                        let name = target.trim_start_matches("#/$defs/");
                        let target = format!("#/components/schemas/{}", component_name(name));
                        (key, Value::String(target))
                    }
                    _ => (key, rewrite_refs(value)),
                })
                .collect(),
        ),
        Value::Array(items) => Value::Array(items.into_iter().map(rewrite_refs).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema,
    }
}
