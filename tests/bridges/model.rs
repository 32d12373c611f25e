//! A model that follows a script and speaks the API that the client speaks, on loopback.
//!
//! Which turn comes next is read from the conversation that a request carries, so that a repeated
//! request gets the same answer, and requests beside the conversation use up no turn.

mod anthropic;
mod chat;
mod conversation;
mod gemini;
mod http;
mod responses;
mod tests;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use conversation::{Part, ScriptedConversation};

/// Ends a test that would otherwise hang; no test passes because of it.
const WAIT_LIMIT: Duration = Duration::from_secs(180);

/// More requests than any scenario makes; older ones are forgotten.
const MAX_RECORDED: usize = 512;

/// What the model says when its script has no further turn.
pub const SCRIPT_ENDED: &str = "The script has ended.";

/// What the model answers to requests beside the conversation: titles, suggestions, classifications.
const SIDE_ANSWER: &str = r#"{"title":"Scripted session","reasoning":"scripted","next_speaker":"user","model_choice":"flash","complexity_reasoning":"scripted","complexity_score":1}"#;

/// One answer of the model.
///
/// A subagent gets a script of its own if the first message to it has `SUBAGENT-SCRIPT:` and the
/// turns as JSON: `[{"calls":[{"name":"Bash","arguments":{}}]},{"text":"done"}]`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptedTurn {
    /// Calls of tools, made at the same time.
    Calls(Vec<ScriptedCall>),
    /// A text, which ends the client's turn.
    Text(String),
}

impl ScriptedTurn {
    /// A single call.
    pub fn call(name: &str, arguments: Value) -> Self {
        Self::Calls(vec![ScriptedCall::new(name, arguments)])
    }

    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ScriptedCall {
    pub name: String,
    /// The arguments; a string is the input of a free-form tool of the Responses API.
    pub arguments: Value,
}

impl ScriptedCall {
    pub fn new(name: &str, arguments: Value) -> Self {
        Self {
            name: name.to_owned(),
            arguments,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelDialect {
    AnthropicMessages,
    OpenAiResponses,
    OpenAiChat,
    Gemini,
    /// Anything else: lists of models, token counts, telemetry.
    Other,
}

/// What a client asked, and what it got.
#[derive(Clone, Debug)]
pub struct SeenRequest {
    /// The API that was spoken.
    pub dialect: ModelDialect,
    /// The method and path.
    pub target: String,
    /// Which conversation it belongs to.
    pub conversation: ScriptedConversation,
    /// The name of the model that was asked for.
    pub model: String,
    /// The system prompt.
    pub system: String,
    /// What was said so far.
    pub history: Vec<Part>,
    /// The names of the tools that the model may call.
    pub tools: Vec<String>,
    /// The tools as the client describes them.
    pub tool_definitions: Value,
    /// The answer, if it came from a script.
    pub answer: Option<ScriptedTurn>,
}

impl SeenRequest {
    /// The results that the history has, in order.
    pub fn tool_results(&self) -> Vec<SeenResult> {
        let results = self.history.iter().filter_map(|part| match part {
            Part::Result(result) => Some(result.clone()),
            Part::User(_) | Part::Assistant(_) | Part::Call { .. } => None,
        });
        results.collect()
    }

    /// Everything that the client said and reported, one part per line.
    pub fn text(&self) -> String {
        let lines = self.history.iter().map(|part| match part {
            Part::User(text) | Part::Assistant(text) => text.clone(),
            Part::Call { name, .. } => format!("[{name}]"),
            Part::Result(result) => result.text.clone(),
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// What a client reported about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenResult {
    pub call_id: String,
    pub name: String,
    pub text: String,
    /// Always false where the API has no word for it: both of OpenAI's.
    pub is_error: bool,
}

/// A running model. It ends when dropped.
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    script: Vec<ScriptedTurn>,
    requests: Mutex<VecDeque<SeenRequest>>,
    /// How many requests there were.
    count: watch::Sender<usize>,
}

impl ScriptedModel {
    pub async fn start(script: Vec<ScriptedTurn>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            script,
            requests: Mutex::default(),
            count: watch::Sender::new(0),
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Self {
            address,
            shared,
            task,
        }
    }

    /// The address without a path, as `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far, the oldest first.
    pub fn requests(&self) -> Vec<SeenRequest> {
        self.shared.lock().iter().cloned().collect()
    }

    /// How often the main conversation was continued.
    pub fn main_requests(&self) -> usize {
        let requests = self.shared.lock();
        let main = requests
            .iter()
            .filter(|request| request.conversation == ScriptedConversation::Main);
        main.count()
    }

    /// What the newest request of the main conversation says; empty if there was none.
    pub fn last_request_text(&self) -> String {
        self.last_main()
            .map_or(String::new(), |request| request.text())
    }

    /// The tools that the newest request of the main conversation offers.
    pub fn tools_offered(&self) -> Vec<String> {
        self.last_main().map_or(Vec::new(), |request| request.tools)
    }

    /// The first request, also among those before, of which this is true.
    pub async fn wait_for(&self, wanted: impl Fn(&SeenRequest) -> bool) -> SeenRequest {
        let mut count = self.shared.count.subscribe();
        let found = async {
            loop {
                count.borrow_and_update();
                if let Some(request) = self.find(&wanted) {
                    return request;
                }
                count.changed().await.expect("the model has the sender");
            }
        };
        match tokio::time::timeout(WAIT_LIMIT, found).await {
            Ok(request) => request,
            Err(_) => panic!(
                "no such request; the last one:\n{}",
                self.last_request_text()
            ),
        }
    }

    fn find(&self, wanted: impl Fn(&SeenRequest) -> bool) -> Option<SeenRequest> {
        // The test's own code runs without the lock, so that it may ask the model too.
        self.requests().into_iter().find(|request| wanted(request))
    }

    fn last_main(&self) -> Option<SeenRequest> {
        let requests = self.shared.lock();
        let mut newest_first = requests.iter().rev();
        newest_first
            .find(|request| request.conversation == ScriptedConversation::Main)
            .cloned()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<SeenRequest>> {
        self.requests.lock().unwrap()
    }

    fn record(&self, request: SeenRequest) {
        let mut requests = self.lock();
        if requests.len() == MAX_RECORDED {
            requests.pop_front();
        }
        requests.push_back(request);
        drop(requests);
        self.count.send_modify(|count| *count += 1);
    }

    /// Records the request and says what to answer.
    fn respond(&self, request: &http::ModelHttpRequest) -> http::ModelHttpResponse {
        let path = request.path();
        let respond = if path.ends_with("/messages") {
            anthropic::respond
        } else if path.ends_with("/responses") {
            responses::respond
        } else if path.ends_with("/chat/completions") {
            chat::respond
        } else if path.contains("enerateContent") {
            gemini::respond
        } else {
            return self.respond_other(request);
        };
        let (parsed, encode) = respond(request);
        let (conversation, answer) = conversation::next_turn(&parsed, &self.script);
        let response = encode(&answer);
        self.record(SeenRequest {
            dialect: parsed.dialect,
            target: request.target(),
            answer: (conversation != ScriptedConversation::Side).then(|| answer.turn()),
            conversation,
            model: parsed.model,
            system: parsed.system,
            history: conversation::named(parsed.history),
            tools: parsed.tools,
            tool_definitions: parsed.tool_definitions,
        });
        response
    }

    fn respond_other(&self, request: &http::ModelHttpRequest) -> http::ModelHttpResponse {
        self.record(SeenRequest {
            dialect: ModelDialect::Other,
            target: request.target(),
            conversation: ScriptedConversation::Side,
            model: String::new(),
            system: String::new(),
            history: Vec::new(),
            tools: Vec::new(),
            tool_definitions: Value::Null,
            answer: None,
        });
        let path = request.path();
        if path.ends_with("/count_tokens") {
            http::ModelHttpResponse::json(&serde_json::json!({ "input_tokens": 10 }))
        } else if path.contains("ountTokens") {
            http::ModelHttpResponse::json(&serde_json::json!({ "totalTokens": 10 }))
        } else if path.ends_with("/models") {
            let model =
                serde_json::json!({ "id": "scripted", "object": "model", "owned_by": "test" });
            http::ModelHttpResponse::json(
                &serde_json::json!({ "object": "list", "data": [model], "models": [] }),
            )
        } else if path == "/" {
            http::ModelHttpResponse::json(&serde_json::json!({}))
        } else {
            http::ModelHttpResponse::not_found()
        }
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, it ends the connections.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((socket, _)) = accepted else { continue };
                let shared = shared.clone();
                connections.spawn(async move {
                    // A client that hangs up in the middle is not the model's business.
                    let _ = http::serve(socket, |request| shared.respond(request)).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
