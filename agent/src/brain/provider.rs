//! A model behind a provider's API: sends requests over HTTP, streams the answers, retries
//! failures.

mod anthropic;
mod decoder;
mod error_body;
mod http_client;
mod openai;
mod request;
mod retry;
mod settings;
mod sse;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::payload::PromptConfig;
use reqwest::Response;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::conversation::{Conversation, estimate_tokens};
use super::tools::ToolDefinition;
use super::{AnswerStream, BrainError, BrainErrorKind, BrainEvent};
use decoder::AnswerDecoder;
use http_client::{ProviderClient, header_text};
pub use retry::RetryPolicy;
pub use settings::{Dialect, ProviderSettings, ProviderSetupError, ThinkingMode};

/// How long to wait for the rest of a stream whose answer is complete: the usage, and the end of
/// the stream, after which the connection can be reused.
const TRAILING_TIMEOUT: Duration = Duration::from_secs(5);

/// A model behind a provider's API. Clones share its HTTP client.
#[derive(Debug, Clone)]
pub struct Provider(Arc<ProviderClient>);

impl Provider {
    /// Creates a provider with the key from this process's environment.
    pub fn new(settings: ProviderSettings) -> Result<Self, ProviderSetupError> {
        Self::with_environment(settings, |name| std::env::var(name).ok())
    }

    /// Creates a provider with the key from the given environment.
    pub fn with_environment(
        settings: ProviderSettings,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ProviderSetupError> {
        if settings.model.trim().is_empty() {
            return Err(ProviderSetupError::NoModel);
        }
        let url = settings::endpoint(&settings)?;
        let key = settings::api_key(settings.dialect, &url, variable)?;
        let client = settings::http_client(&url)
            .map_err(|error| ProviderSetupError::Client(error.to_string()))?;
        Ok(Self(Arc::new(ProviderClient {
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
    pub(super) fn context_budget(
        &self,
        tools: &[ToolDefinition],
        config: Option<&PromptConfig>,
    ) -> u64 {
        let settings = &self.0.settings;
        let answer = config.and_then(|config| config.max_tokens);
        let answer = answer.unwrap_or_else(|| settings.max_answer_tokens());
        let offered = |tool: &ToolDefinition| {
            estimate_tokens(&tool.description) + estimate_tokens(&tool.schema.to_string())
        };
        let offered: u64 = tools.iter().map(offered).sum();
        let taken = answer.min(settings.context_tokens / 2) + offered;
        settings.context_tokens.saturating_sub(taken)
    }

    pub(super) fn start_answer(
        &self,
        conversation: &Conversation,
        tools: &[ToolDefinition],
        config: Option<&PromptConfig>,
    ) -> AnswerStream {
        if !conversation.awaits_model() {
            let error = BrainError::new(BrainErrorKind::Refused, "there is nothing to answer");
            return AnswerStream::from_events(vec![Err(error)]);
        }
        let client = self.0.clone();
        let settings = &client.settings;
        let body = match settings.dialect {
            Dialect::Anthropic => anthropic::request_body(settings, conversation, tools, config),
            Dialect::OpenAi => {
                let official = client.url.host_str() == Some("api.openai.com");
                openai::request_body(settings, official, conversation, tools, config)
            }
        };
        let body = serde_json::to_vec(&body).expect("JSON can be written");
        AnswerStream::from_task(|events| answer_with_retries(client, body, events))
    }
}

type BrainEventSender = mpsc::Sender<Result<BrainEvent, BrainError>>;

/// Sends the request until there is an answer, or until a retry makes no sense.
async fn answer_with_retries(client: Arc<ProviderClient>, body: Vec<u8>, events: BrainEventSender) {
    let retry_policy = client.settings.retry_policy;
    for attempts in 1.. {
        let mut attempt = AnswerAttempt {
            client: &client,
            events: &events,
            emitted: false,
        };
        let Err(error) = attempt.run(body.clone()).await else {
            return;
        };
        let mut error = client.redact_error(error);
        // Events that were sent cannot be taken back, and a retry would send them twice.
        let wait = match attempt.emitted {
            true => None,
            false => retry_policy.delay_after(attempts, &error),
        };
        let Some(wait) = wait else {
            if attempts > 1 {
                error
                    .message
                    .push_str(&format!(" (tried {attempts} times)"));
            }
            // If nobody listens any more, nobody needs to know.
            let _ = events.send(Err(error)).await;
            return;
        };
        tracing::debug!(%error, ?wait, "asking the provider again");
        let why = error.message;
        let _ = events.send(Ok(BrainEvent::Retrying { why, wait })).await;
        sleep(wait).await;
    }
}

/// One attempt to get an answer.
struct AnswerAttempt<'a> {
    client: &'a ProviderClient,
    events: &'a BrainEventSender,
    /// Whether an event was sent that people may have seen.
    emitted: bool,
}

impl AnswerAttempt<'_> {
    async fn run(&mut self, body: Vec<u8>) -> Result<(), BrainError> {
        let mut response = self.client.post(body).await?;
        if !response.status().is_success() {
            return Err(self.client.error_from_response(response).await);
        }
        let kind = header_text(&response, "content-type").unwrap_or_default();
        if !kind.starts_with("text/event-stream") {
            return Err(self.client.error_from_non_stream(response, &kind).await);
        }
        let answer_timeout = self.client.settings.answer_timeout;
        let read = timeout(answer_timeout, self.read_stream(&mut response)).await;
        read.unwrap_or_else(|_| {
            let seconds = answer_timeout.as_secs();
            let message = format!("the provider's answer did not end in {seconds} s");
            Err(BrainError::new(BrainErrorKind::Refused, message))
        })?;
        // All events are sent; it does not matter if the rest does not arrive.
        let _ = timeout(TRAILING_TIMEOUT, response.chunk()).await;
        Ok(())
    }

    async fn read_stream(&mut self, response: &mut Response) -> Result<(), BrainError> {
        let mut decoder = AnswerDecoder::new(self.client.settings.dialect);
        loop {
            let timeout_for_chunk = match decoder.is_complete() {
                true => TRAILING_TIMEOUT,
                false => self.client.settings.idle_timeout,
            };
            let events = match self
                .client
                .with_timeout(timeout_for_chunk, response.chunk())
                .await
            {
                Ok(Some(bytes)) => decoder.push(&bytes),
                Ok(None) => decoder.finish(),
                // Only the formal end is missing, which some servers leave out.
                Err(_) if decoder.is_complete() => decoder.finish(),
                Err(error) => return Err(error),
            };
            for event in events {
                let event = event?;
                let ended = matches!(event, BrainEvent::Finished(_));
                self.emitted = true;
                if self.events.send(Ok(event)).await.is_err() || ended {
                    return Ok(());
                }
            }
        }
    }
}
