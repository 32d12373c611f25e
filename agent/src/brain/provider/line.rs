//! The line to a provider: asks, waits, and makes sense of what is no answer.

use std::time::Duration;

use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Response, Url};
use tokio::time::timeout;

use super::super::digest::ends;
use super::super::{BrainError, Trouble};
use super::failure::{failure, said};
use super::setup::Key;
use super::{Dialect, Settings, retry};

/// Bytes that are read of an answer that says what went wrong.
const COMPLAINT: usize = 64 * 1024;

/// Bytes that are shown of what went wrong.
const MESSAGE: usize = 1500;

/// Where a provider is, and what it is asked with.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) settings: Settings,
    pub(super) url: Url,
    pub(super) key: Option<Key>,
    pub(super) client: reqwest::Client,
}

impl Line {
    pub(super) async fn post(&self, body: Vec<u8>) -> Result<Response, BrainError> {
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
        self.patiently(self.settings.silence, request.send()).await
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
    pub(super) async fn patiently<T>(
        &self,
        silence: Duration,
        something: impl Future<Output = reqwest::Result<T>>,
    ) -> Result<T, BrainError> {
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
    pub(super) async fn complaint(&self, mut response: Response) -> BrainError {
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
    pub(super) async fn not_a_stream(&self, mut response: Response, kind: &str) -> BrainError {
        let text = self.beginning(&mut response).await;
        let said = said(&text);
        if said.get("error").is_some_and(|error| !error.is_null()) {
            return failure(None, &said);
        }
        let kind = if kind.is_empty() { "something" } else { kind };
        let message = format!(
            "the server answered with {} instead of a stream of events; is the base URL right \
             ({})? It began: {}",
            kind,
            self.url,
            text.trim()
        );
        BrainError::new(Trouble::Refused, message)
    }

    async fn beginning(&self, response: &mut Response) -> String {
        let mut bytes = Vec::new();
        while bytes.len() < COMPLAINT {
            match self
                .patiently(self.settings.silence, response.chunk())
                .await
            {
                Ok(Some(more)) => bytes.extend_from_slice(&more),
                // What came is all there is to tell.
                Ok(None) | Err(_) => break,
            }
        }
        bytes.truncate(COMPLAINT);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// An error that may be shown: servers like to repeat what they were sent.
    pub(super) fn presentable(&self, error: BrainError) -> BrainError {
        let message = match &self.key {
            // First, because half a key is a secret too.
            Some(Key(key)) => error.message.replace(key.as_str(), "[key]"),
            None => error.message,
        };
        BrainError::new(error.trouble, ends(&message, MESSAGE))
    }
}

pub(super) fn header(response: &Response, name: &str) -> Option<String> {
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
    text
}
