//! An HTTP client for the tests; it checks every response against `/openapi.json`.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::support::{TestServer, TestUser, audit, decode_chunked, read_to_close};

#[allow(
    dead_code,
    reason = "the part that reads payloads is for its own tests"
)]
#[path = "../../protocol/tests/protocol/schema.rs"]
mod schema;

use schema::Schema;

/// A response of the server.
#[derive(Debug, Clone)]
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) text: String,
}

impl HttpResponse {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts the status and returns the body as JSON.
    pub(crate) fn expect_status(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }

    pub(crate) fn expect_ok(&self) -> Value {
        self.expect_status(200)
    }

    /// Asserts a refusal with this status; returns its code and its message.
    pub(crate) fn expect_refusal(&self, status: u16) -> (String, String) {
        let report = self.expect_status(status);
        let text = |key: &str| report[key].as_str().unwrap().to_owned();
        (text("code"), text("message"))
    }
}

/// A user's HTTP client.
#[derive(Clone)]
pub(crate) struct HttpTestClient {
    address: String,
    bearer: Option<String>,
    document: &'static OpenApiDocument,
}

impl HttpTestClient {
    pub(crate) async fn with_token(server: &TestServer, user: &TestUser) -> Self {
        Self {
            bearer: Some(format!("Bearer {}", user.token)),
            ..Self::anonymous(server).await
        }
    }

    /// A client without a token.
    pub(crate) async fn anonymous(server: &TestServer) -> Self {
        Self {
            address: server.address.clone(),
            bearer: None,
            document: openapi_document(&server.address).await,
        }
    }

    /// What it sends as its authorization.
    pub(crate) fn bearer(&self) -> Option<&str> {
        self.bearer.as_deref()
    }

    pub(crate) fn openapi(&self) -> &'static Value {
        &self.document.openapi
    }

    pub(crate) async fn get(&self, path: &str) -> HttpResponse {
        self.request("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> HttpResponse {
        self.request("POST", path, Some(body)).await
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> HttpResponse {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let json = [("Content-Type", "application/json")];
        let headers: &[_] = if body.is_empty() { &[] } else { &json };
        self.raw_request(method, path, headers, body.as_bytes())
            .await
    }

    /// Sends one request on its own connection, with exactly these bytes as the body.
    pub(crate) async fn raw_request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> HttpResponse {
        let mut all = headers.to_vec();
        if let Some(bearer) = &self.bearer {
            all.push(("Authorization", bearer));
        }
        let answer = raw_exchange(&self.address, method, path, &all, body).await;
        self.document.check_response(method, path, &answer);
        answer
    }

    /// Sends a message of this type to a session.
    pub(crate) async fn send_message(
        &self,
        session: &str,
        kind: &str,
        payload: Value,
    ) -> HttpResponse {
        let body = json!({ "type": kind, "payload": payload });
        self.send_envelope(session, body).await
    }

    /// Sends an envelope, possibly incomplete, to a session.
    pub(crate) async fn send_envelope(&self, session: &str, envelope: Value) -> HttpResponse {
        self.post(&format!("/api/sessions/{session}/messages"), envelope)
            .await
    }

    pub(crate) async fn vote(&self, session: &str, gate: &str, ballot: Value) -> HttpResponse {
        self.post(
            &format!("/api/sessions/{session}/gates/{gate}/vote"),
            ballot,
        )
        .await
    }

    /// The whole log of a session as this user may see it, collected from pages.
    pub(crate) async fn read_whole_log(&self, session: &str, limit: usize) -> Vec<Value> {
        let mut messages = Vec::new();
        let mut after = 0;
        loop {
            let path = format!("/api/sessions/{session}/messages?after={after}&limit={limit}");
            let page = self.get(&path).await.expect_ok();
            let found = page["messages"].as_array().unwrap();
            assert!(found.len() <= limit);
            messages.extend(found.iter().cloned());
            let next = page["next"].as_u64().unwrap();
            if next == after {
                assert_eq!(page["head"], next, "the end is reached");
                return messages;
            }
            after = next;
        }
    }
}

/// Sends one request without checking the response against the OpenAPI document.
pub(crate) async fn raw_exchange(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> HttpResponse {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nHost: {address}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    head += "\r\n";
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses a body may not read all of it.
    let _ = stream.write_all(body).await;
    let answer = String::from_utf8(read_to_close(&mut stream).await).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers: BTreeMap<_, _> = headers
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let chunked = headers.get("transfer-encoding").map(String::as_str) == Some("chunked");
    HttpResponse {
        status: status.and_then(|code| code.parse().ok()).unwrap_or(0),
        headers,
        text: match chunked {
            true => decode_chunked(text),
            false => text.to_owned(),
        },
    }
}

/// The server's OpenAPI document, which is the same for every server of this build.
struct OpenApiDocument {
    openapi: Value,
    /// A definition for every route and status, under names such as `get /api/sessions 200`.
    schema: Schema,
}

async fn openapi_document(address: &str) -> &'static OpenApiDocument {
    static DOCUMENT: OnceCell<OpenApiDocument> = OnceCell::const_new();
    DOCUMENT
        .get_or_init(|| async {
            let answer = raw_exchange(address, "GET", "/openapi.json", &[], b"").await;
            OpenApiDocument::new(answer.expect_ok())
        })
        .await
}

impl OpenApiDocument {
    fn new(openapi: Value) -> Self {
        let mut definitions = serde_json::Map::new();
        let component = |name: &str| json!({ "$ref": format!("#/components/schemas/{name}") });
        definitions.insert("refusal".to_owned(), component("ErrorReport"));
        definitions.insert("message".to_owned(), component("server"));
        for (path, methods) in openapi["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                for (status, response) in operation["responses"].as_object().unwrap() {
                    let schema = &response["content"]["application/json"]["schema"];
                    if schema.is_object() {
                        definitions.insert(format!("{method} {path} {status}"), schema.clone());
                    }
                }
            }
        }
        let mut whole = openapi.clone();
        whole["$defs"] = Value::Object(definitions);
        Self {
            openapi,
            schema: Schema::new(whole),
        }
    }

    fn operation(&self, method: &str, path: &str) -> Option<(String, &Value)> {
        let path = path.split('?').next().unwrap();
        let fits = |template: &str| {
            let (parts, found): (Vec<_>, Vec<_>) =
                (template.split('/').collect(), path.split('/').collect());
            let same = |(part, found): (&&str, &&str)| part.starts_with('{') || part == found;
            parts.len() == found.len() && parts.iter().zip(&found).all(same)
        };
        let paths = self.openapi["paths"].as_object().unwrap();
        let (template, methods) = paths.iter().find(|(template, _)| fits(template))?;
        let method = method.to_ascii_lowercase();
        let operation = methods.get(&method)?;
        Some((format!("{method} {template}"), operation))
    }

    /// Asserts that the document describes this response.
    fn check_response(&self, method: &str, path: &str, answer: &HttpResponse) {
        let problem = |problem: String| -> ! { panic!("{method} {path}: {problem}: {answer:?}") };
        let fits = |definition: &str, value: &Value| {
            if let Err(mismatch) = self.schema.validate_message(definition, value) {
                problem(format!("not as described: {mismatch}"));
            }
        };
        for (header, value) in [
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
        ] {
            assert_eq!(answer.headers.get(header).map(String::as_str), Some(value));
        }
        let json = answer
            .headers
            .get("content-type")
            .is_some_and(|kind| kind.ends_with("json"));
        if answer.status >= 400 {
            if !json {
                problem("a refusal is JSON".to_owned());
            }
            fits("refusal", &answer.json());
            assert_eq!(
                answer.status == 401,
                answer.headers.contains_key("www-authenticate")
            );
            return;
        }
        let Some((name, operation)) = self.operation(method, path) else {
            problem("it is not in the document".to_owned());
        };
        let response = &operation["responses"][answer.status.to_string()];
        if !response.is_object() {
            problem("this status is not in the document".to_owned());
        }
        if response["content"]["application/json"]["schema"].is_object() && json {
            let value = answer.json();
            fits(&format!("{name} {}", answer.status), &value);
            for message in value["messages"].as_array().into_iter().flatten() {
                fits("message", message);
            }
        }
    }
}

/// The stored entries of a session.
pub(crate) fn stored_log(server: &TestServer, session: &str) -> Vec<Value> {
    audit::export_log(&server.data, session)
}

pub(crate) use audit::log_entries;

/// A person's `session.join` payload for HTTP.
pub(crate) fn join_payload(user: &TestUser) -> Value {
    let mut announce = user.announce();
    announce["transport"] = json!("http");
    json!({ "participant": announce, "supported_versions": [1] })
}
