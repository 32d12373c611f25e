//! A message that is refused, tried on a WebSocket and over HTTP.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite;

use crate::fixture::SESSION;
use crate::http_client::{HttpResponse, HttpTestClient, raw_exchange, stored_log};
use crate::support::{TestClient, TestServer, TestUser, fresh_id};

pub(crate) const UNAUTHORIZED: &str = "UNAUTHORIZED";
pub(crate) const INVALID_MESSAGE: &str = "INVALID_MESSAGE";
pub(crate) const RATE_LIMITED: &str = "RATE_LIMITED";

/// How a case is tried on a WebSocket.
pub(crate) enum SocketWay {
    /// The message is refused with an error, or the upgrade is.
    Refused,
    /// The connection is closed with this code, and the text as the reason.
    Closed(u16),
    /// It cannot happen there, for this reason.
    Never(&'static str),
}

/// How a case is tried over HTTP.
pub(crate) enum HttpWay {
    /// The message is posted to its session and refused with this status.
    Refused(u16),
    /// Another route does what the message does.
    Route(&'static str, Value, u16),
    /// It cannot happen there, for this reason.
    Never(&'static str),
}

/// Whether the caller has joined before.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum CallerState {
    Joined,
    NotJoined,
}

pub(crate) struct RefusalCase {
    /// What is wrong with it.
    name: &'static str,
    /// Who sends it; without a token if theirs is empty.
    caller: TestUser,
    /// Whether they have joined the session.
    state: CallerState,
    /// The message, byte for byte.
    text: String,
    /// What happens on a WebSocket.
    socket: SocketWay,
    /// What happens over HTTP.
    http: HttpWay,
    /// The error code and the whole text.
    expected: (&'static str, String),
}

impl RefusalCase {
    pub(crate) fn new(
        name: &'static str,
        (caller, state): (&TestUser, CallerState),
        message: impl ToString,
    ) -> Self {
        Self {
            name,
            caller: caller.clone(),
            state,
            text: message.to_string(),
            socket: SocketWay::Refused,
            http: HttpWay::Never("say how it is refused"),
            expected: (INVALID_MESSAGE, String::new()),
        }
    }

    /// What both transports answer, and the HTTP status with it.
    pub(crate) fn refused(
        mut self,
        status: u16,
        code: &'static str,
        sentence: impl ToString,
    ) -> Self {
        self.http = HttpWay::Refused(status);
        self.expected = (code, sentence.to_string());
        self
    }

    pub(crate) fn on_socket(mut self, way: SocketWay) -> Self {
        self.socket = way;
        self
    }

    pub(crate) fn over_http(mut self, way: HttpWay) -> Self {
        self.http = way;
        self
    }

    /// The session that the case is tried in.
    fn session(&self) -> String {
        let session = serde_json::from_str(&self.text)
            .ok()
            .and_then(|message: Value| message["session"].as_str().map(str::to_owned));
        match self.state {
            CallerState::NotJoined => session.unwrap_or_else(|| SESSION.to_owned()),
            CallerState::Joined => SESSION.to_owned(),
        }
    }

    async fn assert_refused_on_socket(&self, server: &TestServer) {
        let closed = match self.socket {
            SocketWay::Never(why) => return assert!(!why.is_empty()),
            SocketWay::Refused => None,
            SocketWay::Closed(code) => Some(code),
        };
        let refused = match open_socket(server, &self.caller).await {
            Err(report) => report,
            Ok(mut client) => {
                if self.state == CallerState::Joined {
                    client.join(SESSION, &self.caller, json!({})).await;
                }
                client.send_raw(&self.text).await;
                match next_error(&mut client).await {
                    Some(report) => report,
                    None => {
                        assert_eq!(client.close_code, closed, "{}", self.name);
                        json!({ "code": self.expected.0, "message": client.close_reason })
                    }
                }
            }
        };
        self.assert_expected(&refused, "socket");
    }

    async fn assert_refused_over_http(&self, server: &TestServer) {
        let messages = format!("/api/sessions/{}/messages", self.session());
        let (path, body, status) = match &self.http {
            HttpWay::Never(why) => return assert!(!why.is_empty()),
            HttpWay::Refused(status) => (messages.as_str(), self.text.clone(), *status),
            HttpWay::Route(path, body, status) => (*path, body.to_string(), *status),
        };
        let answer = post(server, &self.caller, path, &body).await;
        self.assert_expected(&answer.json(), "HTTP");
        assert_eq!(answer.status, status, "{}", self.name);
    }

    fn assert_expected(&self, refused: &Value, transport: &str) {
        let found = (refused["code"].as_str(), refused["message"].as_str());
        let expected = (Some(self.expected.0), Some(self.expected.1.as_str()));
        assert_eq!(
            found, expected,
            "{} ({transport}): {}",
            self.name, self.text
        );
    }
}

/// Opens a socket with the caller's token, or returns the refusal.
async fn open_socket(server: &TestServer, caller: &TestUser) -> Result<TestClient, Value> {
    let bearer = format!("Bearer {}", caller.token);
    let headers: &[_] = match caller.token.is_empty() {
        true => &[],
        false => &[("Authorization", bearer.as_str())],
    };
    let connecting = TestClient::try_connect(&server.address, "/ws", headers, &caller.participant);
    match connecting.await {
        Ok(client) => Ok(client),
        Err(tungstenite::Error::Http(response)) => {
            assert_eq!(response.status(), 401);
            let body = response.into_body().unwrap_or_default();
            Err(serde_json::from_slice(&body).unwrap())
        }
        Err(error) => panic!("{error}"),
    }
}

/// The next error that the client receives; `None` if the connection is closed.
async fn next_error(client: &mut TestClient) -> Option<Value> {
    loop {
        let message = client.next().await?;
        assert_ne!(message["type"], "heartbeat.pong");
        if message["type"] == "error" && message["seq"].is_null() {
            return Some(message["payload"].clone());
        }
    }
}

/// Posts exactly this body with the caller's token.
pub(crate) async fn post(
    server: &TestServer,
    caller: &TestUser,
    path: &str,
    body: &str,
) -> HttpResponse {
    let bearer = format!("Bearer {}", caller.token);
    let mut headers = vec![("Content-Type", "application/json")];
    if !caller.token.is_empty() {
        headers.push(("Authorization", &bearer));
    }
    raw_exchange(&server.address, "POST", path, &headers, body.as_bytes()).await
}

pub(crate) async fn assert_all_refused(server: &TestServer, cases: &[RefusalCase]) {
    let before = stored_log(server, SESSION).len();
    for case in cases {
        case.assert_refused_on_socket(server).await;
        case.assert_refused_over_http(server).await;
    }
    let log = stored_log(server, SESSION);
    assert_eq!(log.len(), before, "{:?}", log[before..].to_vec());
}

/// A complete envelope.
pub(crate) fn envelope(sender: &str, kind: &str, payload: Value) -> Value {
    json!({
        "v": 1, "id": fresh_id(kind), "session": SESSION, "sender": sender,
        "type": kind, "payload": payload,
    })
}

/// The value with some of its fields replaced.
pub(crate) fn with(mut value: Value, changes: Value) -> Value {
    for (field, change) in changes.as_object().unwrap() {
        value[field] = change.clone();
    }
    value
}

pub(crate) fn mismatch(actual: &str, field: &str, claimed: &str) -> String {
    format!("`{field}` is `{claimed}`, but you are `{actual}`; name yourself")
}

pub(crate) async fn revoke(server: &TestServer, user: &TestUser) {
    let id = user.token.split('_').nth(1).unwrap();
    let admin = HttpTestClient::with_token(server, &server.admin()).await;
    let path = format!("/api/tokens/{id}");
    assert_eq!(admin.request("DELETE", &path, None).await.status, 204);
}
