//! A model behind a provider's API: asked over HTTP, answered in a stream, asked again if need be.

mod anthropic;
mod failure;
mod openai;
mod retry;
mod setup;
mod sse;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::JsonObject;
use pvp_protocol::payload::PromptConfig;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Response, Url};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::conversation::{Conversation, ToolCall, tokens};
use super::digest::ends;
use super::tools::ToolOffer;
use super::{BrainError, BrainEvent, Reply, Trouble};
use failure::{failure, said};
pub use retry::Patience;
use setup::Key;
pub use setup::{Dialect, Settings, SetupError, Thinking};
use sse::Sse;

/// How long to wait for the rest of a stream that has said everything, so that its connection can
/// be used again.
const REST: Duration = Duration::from_secs(1);

/// Bytes of one answer as it is sent; far more than any model answers.
const ANSWER: usize = 64 * 1024 * 1024;

/// Calls in one answer.
const CALLS: usize = 64;

/// Bytes that are read of an answer that says what went wrong.
const COMPLAINT: usize = 64 * 1024;

/// A model that can be asked.
#[derive(Debug, Clone)]
pub struct Provider(Arc<Line>);

#[derive(Debug)]
struct Line {
    settings: Settings,
    url: Url,
    key: Option<Key>,
    client: reqwest::Client,
}

impl Provider {
    /// A provider with the key from this process's environment.
    pub fn new(settings: Settings) -> Result<Self, SetupError> {
        Self::with_environment(settings, |name| std::env::var(name).ok())
    }

    /// A provider with the key from an environment.
    pub fn with_environment(
        settings: Settings,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, SetupError> {
        if settings.model.trim().is_empty() {
            return Err(SetupError::NoModel);
        }
        let url = setup::endpoint(&settings)?;
        let key = setup::key(settings.dialect, &url, variable)?;
        let client = setup::client(&url).map_err(|error| SetupError::Client(error.to_string()))?;
        Ok(Self(Arc::new(Line {
            settings,
            url,
            key,
            client,
        })))
    }

    pub(super) fn context_tokens(&self) -> u64 {
        self.0.settings.context_tokens
    }

    /// Tokens that a conversation may have.
    pub(super) fn room(&self, tools: &[ToolOffer]) -> u64 {
        let settings = &self.0.settings;
        let offered =
            |tool: &ToolOffer| tokens(&tool.description) + tokens(&tool.schema.to_string());
        let offered: u64 = tools.iter().map(offered).sum();
        let taken = settings.answer_tokens().min(settings.context_tokens / 2) + offered;
        settings.context_tokens.saturating_sub(taken)
    }

    pub(super) fn begin(
        &self,
        conversation: &Conversation,
        tools: &[ToolOffer],
        config: Option<&PromptConfig>,
    ) -> Reply {
        if !conversation.awaits_model() {
            let error = BrainError::new(Trouble::Refused, "there is nothing to answer");
            return Reply::ready(vec![Err(error)]);
        }
        let line = self.0.clone();
        let settings = &line.settings;
        let body = match settings.dialect {
            Dialect::Anthropic => anthropic::body(settings, conversation, tools, config),
            Dialect::OpenAi => {
                let official = line.url.host_str() == Some("api.openai.com");
                openai::body(settings, official, conversation, tools, config)
            }
        };
        let body = serde_json::to_vec(&body).expect("JSON can be written");
        Reply::from_task(|events| answer(line, body, events))
    }
}

type Events = mpsc::Sender<Result<BrainEvent, BrainError>>;

/// Asks until there is an answer, or no sense in asking again.
async fn answer(line: Arc<Line>, body: Vec<u8>, events: Events) {
    let patience = line.settings.patience;
    for tried in 1.. {
        let mut course = Course {
            line: &line,
            events: &events,
            told: false,
        };
        let Err(mut error) = course.ask(body.clone()).await else {
            return;
        };
        error.message = line.without_key(&error.message);
        // What was told cannot be taken back, and would be told twice.
        let wait = match course.told {
            true => None,
            false => patience.wait(tried, &error, retry::dice()),
        };
        let Some(wait) = wait else {
            if tried > 1 {
                error.message.push_str(&format!(" (tried {tried} times)"));
            }
            // Nobody listens any more: then nobody needs to know.
            let _ = events.send(Err(error)).await;
            return;
        };
        tracing::debug!(%error, ?wait, "asking the provider again");
        let why = error.message;
        let _ = events.send(Ok(BrainEvent::Retrying { why, wait })).await;
        sleep(wait).await;
    }
}

/// One try.
struct Course<'a> {
    line: &'a Line,
    events: &'a Events,
    /// Something was told that people have seen.
    told: bool,
}

impl Course<'_> {
    async fn ask(&mut self, body: Vec<u8>) -> Result<(), BrainError> {
        let mut response = self.line.post(body).await?;
        if !response.status().is_success() {
            return Err(self.line.complaint(response).await);
        }
        let kind = header(&response, "content-type").unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err(self.line.not_a_stream(response, &kind).await);
        }
        self.read(&mut response).await?;
        // All is told; a rest that does not come is no loss.
        let _ = timeout(REST, response.chunk()).await;
        Ok(())
    }

    async fn read(&mut self, response: &mut Response) -> Result<(), BrainError> {
        let mut decoding = Decoding::new(self.line.settings.dialect);
        loop {
            let events = match self.line.patiently(response.chunk()).await? {
                Some(bytes) => decoding.take(&bytes),
                None => decoding.end(),
            };
            for event in events {
                let event = event?;
                let ended = matches!(event, BrainEvent::Finished(_));
                self.told = true;
                if self.events.send(Ok(event)).await.is_err() || ended {
                    return Ok(());
                }
            }
        }
    }
}

/// From bytes to events.
pub(crate) struct Decoding {
    sse: Sse,
    decoder: Decoder,
}

enum Decoder {
    Anthropic(Box<anthropic::Decoder>),
    OpenAi(Box<openai::Decoder>),
}

impl Decoding {
    pub(crate) fn new(dialect: Dialect) -> Self {
        let decoder = match dialect {
            Dialect::Anthropic => Decoder::Anthropic(Box::default()),
            Dialect::OpenAi => Decoder::OpenAi(Box::default()),
        };
        Self {
            sse: Sse::default(),
            decoder,
        }
    }

    /// The events that these bytes complete, up to the first thing that is wrong.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Vec<Result<BrainEvent, BrainError>> {
        match self.sse.take(bytes) {
            Ok(data) => self.decode(data),
            Err(sse::TooLong) => vec![Err(endless())],
        }
    }

    pub(crate) fn end(&mut self) -> Vec<Result<BrainEvent, BrainError>> {
        let mut events = match self.sse.end() {
            Ok(data) => self.decode(data),
            Err(sse::TooLong) => vec![Err(endless())],
        };
        let over = |event: &Result<BrainEvent, BrainError>| {
            matches!(event, Err(_) | Ok(BrainEvent::Finished(_)))
        };
        if !events.iter().any(over) {
            let end = match &mut self.decoder {
                Decoder::Anthropic(decoder) => decoder.end(),
                Decoder::OpenAi(decoder) => decoder.end(),
            };
            add(&mut events, end);
        }
        events
    }

    fn decode(
        &mut self,
        data: impl IntoIterator<Item = sse::Data>,
    ) -> Vec<Result<BrainEvent, BrainError>> {
        let mut events = Vec::new();
        for data in data {
            let more = match &mut self.decoder {
                Decoder::Anthropic(decoder) => decoder.take(&data),
                Decoder::OpenAi(decoder) => decoder.take(&data),
            };
            let over = match &more {
                Ok(more) => more.iter().any(|it| matches!(it, BrainEvent::Finished(_))),
                Err(_) => true,
            };
            add(&mut events, more);
            if over {
                break;
            }
        }
        events
    }
}

fn add(
    events: &mut Vec<Result<BrainEvent, BrainError>>,
    more: Result<Vec<BrainEvent>, BrainError>,
) {
    match more {
        Ok(more) => events.extend(more.into_iter().map(Ok)),
        Err(error) => events.push(Err(error)),
    }
}

fn endless() -> BrainError {
    BrainError::new(Trouble::Nonsense, "the provider sent an event without end")
}

impl Line {
    async fn post(&self, body: Vec<u8>) -> Result<Response, BrainError> {
        let mut request = self
            .client
            .post(self.url.clone())
            .header("content-type", "application/json")
            .header("accept", "text/event-stream")
            .body(body);
        if self.settings.dialect == Dialect::Anthropic {
            request = request.header("anthropic-version", "2023-06-01");
        }
        if let Some((name, value)) = self.credentials() {
            request = request.header(name, value);
        }
        self.patiently(request.send()).await
    }

    fn credentials(&self) -> Option<(HeaderName, HeaderValue)> {
        let Key(key) = self.key.as_ref()?;
        let (name, value) = match self.settings.dialect {
            Dialect::Anthropic => (HeaderName::from_static("x-api-key"), key.clone()),
            Dialect::OpenAi => (reqwest::header::AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::from_str(&value).expect("the key was checked");
        value.set_sensitive(true);
        Some((name, value))
    }

    /// Waits for something of the provider, but not for ever.
    async fn patiently<T>(
        &self,
        something: impl Future<Output = reqwest::Result<T>>,
    ) -> Result<T, BrainError> {
        let silence = self.settings.silence;
        match timeout(silence, something).await {
            Ok(Ok(it)) => Ok(it),
            Ok(Err(error)) => {
                let message = format!("the connection to the provider failed: {}", causes(&error));
                Err(BrainError::new(Trouble::Lost, message))
            }
            Err(_) => {
                let message = format!("the provider was silent for {} s", silence.as_secs());
                Err(BrainError::new(Trouble::Lost, message))
            }
        }
    }

    /// What a provider says that does not answer.
    async fn complaint(&self, mut response: Response) -> BrainError {
        let status = response.status().as_u16();
        let after = retry::asked(|name| header(&response, name));
        let text = self.beginning(&mut response).await;
        let mut error = failure(Some(status), &said(&text));
        if let Trouble::Busy { after: ask } = &mut error.trouble {
            *ask = after;
            if after.is_some_and(|after| after > self.settings.patience.longest_asked) {
                let seconds = after.unwrap_or_default().as_secs();
                error
                    .message
                    .push_str(&format!("; it asks to wait {seconds} s"));
            }
        }
        let advice = match (status, self.settings.dialect) {
            (401 | 403, dialect) => format!("; is {} right?", dialect.key_variable()),
            (404, _) => format!("; are the model and the base URL right ({})?", self.url),
            (300..=399, _) => "; the base URL leads elsewhere, and is not followed".to_owned(),
            _ => String::new(),
        };
        error.message.push_str(&advice);
        error
    }

    /// What came looks like success, but is something else: a login page, or an error after all.
    async fn not_a_stream(&self, mut response: Response, kind: &str) -> BrainError {
        let text = self.beginning(&mut response).await;
        let said = said(&text);
        if said.get("error").is_some_and(|error| !error.is_null()) {
            return failure(None, &said);
        }
        let kind = if kind.is_empty() { "something" } else { kind };
        let message = format!(
            "the server answered with {} instead of a stream of events; is the base URL right \
             ({})? It began: {}",
            ends(kind, 100),
            self.url,
            ends(text.trim(), 300)
        );
        BrainError::new(Trouble::Refused, message)
    }

    async fn beginning(&self, response: &mut Response) -> String {
        let mut bytes = Vec::new();
        while bytes.len() < COMPLAINT {
            match self.patiently(response.chunk()).await {
                Ok(Some(more)) => bytes.extend_from_slice(&more),
                // What came is all there is to tell.
                Ok(None) | Err(_) => break,
            }
        }
        bytes.truncate(COMPLAINT);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Servers like to repeat what they were sent.
    fn without_key(&self, text: &str) -> String {
        match &self.key {
            Some(Key(key)) => text.replace(key.as_str(), "[key]"),
            None => text.to_owned(),
        }
    }
}

fn header(response: &Response, name: &str) -> Option<String> {
    let value = response.headers().get(name)?;
    Some(value.to_str().ok()?.to_owned())
}

/// An error with what is behind it; the address is known, and only in the way.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text.push_str(&format!(": {more}"));
        }
        cause = next.source();
    }
    ends(&text, 1000)
}

/// Adds what a prompt wants to say to the provider itself. What we say ourselves stays.
fn merge(body: Value, config: Option<&PromptConfig>) -> JsonObject {
    let Value::Object(mut body) = body else {
        return JsonObject::new();
    };
    let params = config.and_then(|config| config.provider_params.as_ref());
    for (name, value) in params.into_iter().flatten() {
        let ours = [
            "messages",
            "system",
            "tools",
            "stream",
            "stream_options",
            "n",
        ];
        if !ours.contains(&name.as_str()) {
            body.insert(name.clone(), value.clone());
        }
    }
    body
}

/// The arguments of a call that goes back. What is no JSON object would be refused.
fn input(call: &ToolCall) -> JsonObject {
    call.read().unwrap_or_default()
}

/// A name that may be sent, also of a tool that the model made up.
fn plain_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = name
        .chars()
        .take(64)
        .map(|c| if plain(c) { c } else { '_' })
        .collect();
    if name.is_empty() {
        "unnamed".to_owned()
    } else {
        name
    }
}

/// Bounds one answer.
#[derive(Debug, Default)]
struct Measure {
    bytes: usize,
    calls: usize,
}

impl Measure {
    fn add(&mut self, bytes: usize) -> Result<(), BrainError> {
        self.bytes += bytes;
        if self.bytes <= ANSWER {
            return Ok(());
        }
        let message = "the provider's answer does not end";
        Err(BrainError::new(Trouble::Refused, message))
    }

    fn call(&mut self) -> Result<(), BrainError> {
        self.calls += 1;
        if self.calls <= CALLS {
            return Ok(());
        }
        let message = format!("the model called more than {CALLS} tools at once");
        Err(BrainError::new(Trouble::Refused, message))
    }
}
