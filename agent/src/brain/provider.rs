//! A model behind a provider's API: asked over HTTP, answered in a stream, asked again if need be.

mod anthropic;
mod decoding;
mod failure;
mod line;
mod openai;
mod request;
mod retry;
mod setup;
mod sse;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::payload::PromptConfig;
use reqwest::Response;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::conversation::{Conversation, tokens};
use super::tools::ToolOffer;
use super::{BrainError, BrainEvent, Reply, Trouble};
use decoding::Decoding;
use line::{Line, header};
pub use retry::Patience;
pub use setup::{Dialect, Settings, SetupError, Thinking};

/// How long to wait for the rest of a stream that has said everything that matters: what it cost,
/// and the end of it, so that its connection can be used again.
const REST: Duration = Duration::from_secs(5);

/// A model that can be asked.
#[derive(Debug, Clone)]
pub struct Provider(Arc<Line>);

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
    pub(super) fn room(&self, tools: &[ToolOffer], config: Option<&PromptConfig>) -> u64 {
        let settings = &self.0.settings;
        let answer = config.and_then(|config| config.max_tokens);
        let answer = answer.unwrap_or_else(|| settings.answer_tokens());
        let offered =
            |tool: &ToolOffer| tokens(&tool.description) + tokens(&tool.schema.to_string());
        let offered: u64 = tools.iter().map(offered).sum();
        let taken = answer.min(settings.context_tokens / 2) + offered;
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
        let Err(error) = course.ask(body.clone()).await else {
            return;
        };
        let mut error = line.presentable(error);
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
        let longest = self.line.settings.longest;
        let read = timeout(longest, self.read(&mut response)).await;
        read.unwrap_or_else(|_| {
            let seconds = longest.as_secs();
            let message = format!("the provider's answer did not end in {seconds} s");
            Err(BrainError::new(Trouble::Refused, message))
        })?;
        // All is told; a rest that does not come is no loss.
        let _ = timeout(REST, response.chunk()).await;
        Ok(())
    }

    async fn read(&mut self, response: &mut Response) -> Result<(), BrainError> {
        let mut decoding = Decoding::new(self.line.settings.dialect);
        loop {
            let patience = match decoding.is_whole() {
                true => REST,
                false => self.line.settings.silence,
            };
            let events = match self.line.patiently(patience, response.chunk()).await {
                Ok(Some(bytes)) => decoding.take(&bytes),
                Ok(None) => decoding.end(),
                // Only the formal end is missing, which some servers leave out.
                Err(_) if decoding.is_whole() => decoding.end(),
                Err(error) => return Err(error),
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
