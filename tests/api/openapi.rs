//! The OpenAPI document. Every response in these tests is checked against it elsewhere.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::http_client::HttpTestClient;
use crate::support::TestServer;

/// Collects every `$ref` of a document.
fn collect_references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                found.insert(target.to_owned());
            }
            fields
                .values()
                .for_each(|value| collect_references(value, found));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|value| collect_references(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[tokio::test]
async fn the_document_is_valid_openapi_without_dangling_references() {
    let server = TestServer::start(&[]).await;
    let nobody = HttpTestClient::anonymous(&server).await;
    let document = nobody.get("/openapi.json").await.expect_ok();
    let keys: BTreeSet<_> = document
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(keys, ["components", "info", "openapi", "paths"].into());
    assert_eq!(document["openapi"], "3.1.0");
    for key in ["title", "version", "description"] {
        assert!(document["info"][key].is_string());
    }
    let mut found = BTreeSet::new();
    collect_references(&document, &mut found);
    assert!(found.len() > 100);
    for target in &found {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(
            document.pointer(pointer).is_some_and(Value::is_object),
            "{target}"
        );
    }
    let schemes = &document["components"]["securitySchemes"];
    assert_eq!(
        *schemes,
        json!({ "token": { "type": "http", "scheme": "bearer" } })
    );
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    for name in document["components"]["schemas"]
        .as_object()
        .unwrap()
        .keys()
    {
        assert!(name.chars().all(allowed), "{name}");
    }
    for (path, methods) in document["paths"].as_object().unwrap() {
        assert!(path.starts_with('/'));
        for (method, operation) in methods.as_object().unwrap() {
            check_operation(path, method, operation);
        }
    }
}

/// Asserts that an operation has what OpenAPI requires.
fn check_operation(path: &str, method: &str, operation: &Value) {
    let operation_name = format!("{method} {path}");
    assert!(
        ["get", "post", "put", "patch", "delete"].contains(&method),
        "{operation_name}"
    );
    let known = [
        "description",
        "parameters",
        "requestBody",
        "responses",
        "security",
        "summary",
    ];
    for key in operation.as_object().unwrap().keys() {
        assert!(known.contains(&key.as_str()), "{operation_name}: {key}");
    }
    assert!(
        operation["summary"]
            .as_str()
            .is_some_and(|text| !text.is_empty()),
        "{operation_name}"
    );
    // A test has nothing to say.
    let takes_body = ["post", "put", "patch"].contains(&method) && !path.ends_with("/test");
    assert_eq!(
        operation["requestBody"].is_object(),
        takes_body,
        "{operation_name}"
    );
    let parameters = operation["parameters"].as_array().unwrap();
    let names: BTreeSet<_> = parameters
        .iter()
        .map(|one| (one["in"].as_str(), one["name"].as_str()))
        .collect();
    assert_eq!(
        names.len(),
        parameters.len(),
        "{operation_name}: a parameter twice"
    );
    let in_path = parameters.iter().filter(|one| one["in"] == "path");
    let in_path: Vec<_> = in_path
        .map(|one| format!("{{{}}}", one["name"].as_str().unwrap()))
        .collect();
    let templates: Vec<_> = path
        .split('/')
        .filter(|part| part.starts_with('{'))
        .collect();
    assert_eq!(in_path, templates, "{operation_name}");
    for parameter in parameters {
        assert_eq!(
            parameter["required"] == true,
            parameter["in"] == "path",
            "{operation_name}"
        );
        assert!(parameter["schema"]["type"].is_string(), "{operation_name}");
    }
    let responses = operation["responses"].as_object().unwrap();
    assert_eq!(
        responses.len(),
        2,
        "{operation_name}: a good answer and a refusal"
    );
    for (status, response) in responses {
        assert!(
            response["description"].is_string(),
            "{operation_name} {status}"
        );
    }
    let refusal = &responses["default"]["content"]["application/json"]["schema"];
    assert_eq!(
        *refusal,
        json!({ "$ref": "#/components/schemas/ErrorReport" })
    );
}

#[tokio::test]
async fn the_document_is_the_same_with_every_configuration() {
    let server = TestServer::start(&["--open"]).await;
    let other = TestServer::start_with_env(&[], &[("PVP_MESSAGE_BYTES", "4096")]).await;
    let document = HttpTestClient::anonymous(&server)
        .await
        .get("/openapi.json")
        .await
        .expect_ok();
    assert_eq!(
        HttpTestClient::anonymous(&other)
            .await
            .get("/openapi.json")
            .await
            .expect_ok(),
        document
    );
}
