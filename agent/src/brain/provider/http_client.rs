//! The HTTP client of a provider: sends requests, applies timeouts, and explains failed responses.

use std::time::Duration;

use pvp_client::api::error_chain;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::{Response, Url};
use tokio::time::timeout;

use super::super::result_text::truncate_middle;
use super::super::{BrainError, BrainErrorKind};
use super::error_body::{error_from_body, parse_error_body};
use super::settings::ApiKey;
use super::{Dialect, ProviderSettings, retry};

/// Bytes that are read of an error body.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;

/// Bytes that are shown of an error message.
const MAX_ERROR_MESSAGE_BYTES: usize = 1500;

/// The address of a provider, and what requests to it need.
#[derive(Debug)]
pub(super) struct ProviderClient {
    pub(super) settings: ProviderSettings,
    pub(super) url: Url,
    pub(super) key: Option<ApiKey>,
    pub(super) client: reqwest::Client,
}

impl ProviderClient {
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
        self.with_timeout(self.settings.idle_timeout, request.send())
            .await
    }

    fn credentials(&self) -> Option<(HeaderName, HeaderValue)> {
        let ApiKey(key) = self.key.as_ref()?;
        let (name, value) = match self.settings.dialect {
            Dialect::Anthropic => (HeaderName::from_static("x-api-key"), key.clone()),
            Dialect::OpenAi => (reqwest::header::AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::from_str(&value).expect("the key was checked");
        value.set_sensitive(true);
        Some((name, value))
    }

    /// Waits for the provider, but not forever.
    pub(super) async fn with_timeout<T>(
        &self,
        limit: Duration,
        request: impl Future<Output = reqwest::Result<T>>,
    ) -> Result<T, BrainError> {
        match timeout(limit, request).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let message = format!(
                    "the connection to the provider failed: {}",
                    error_chain(&error)
                );
                Err(BrainError::new(BrainErrorKind::ConnectionLost, message))
            }
            Err(_) => {
                let message = format!("the provider sent nothing for {} s", limit.as_secs());
                Err(BrainError::new(BrainErrorKind::ConnectionLost, message))
            }
        }
    }

    /// The error of a response with a failure status.
    pub(super) async fn error_from_response(&self, mut response: Response) -> BrainError {
        let status = response.status().as_u16();
        let after = retry::retry_after(|name| header_text(&response, name));
        let text = self.read_body_prefix(&mut response).await;
        let mut error = error_from_body(Some(status), &parse_error_body(&text));
        if let BrainErrorKind::Busy { after: retry_after } = &mut error.kind {
            *retry_after = after;
            if after.is_some_and(|after| after > self.settings.retry_policy.max_retry_after) {
                let seconds = after.unwrap_or_default().as_secs();
                error
                    .message
                    .push_str(&format!("; it asks to wait {seconds} s"));
            }
        }
        let advice = match (status, self.settings.dialect) {
            (401 | 403, dialect) => format!("; is {} right?", dialect.key_variable()),
            (404, _) => format!("; check the model and the base URL ({})", self.url),
            (300..=399, _) => "; the base URL redirects, and redirects are not followed".to_owned(),
            _ => String::new(),
        };
        error.message.push_str(&advice);
        error
    }

    /// The error of a successful response that is no stream: a login page, or an error after all.
    pub(super) async fn error_from_non_stream(
        &self,
        mut response: Response,
        kind: &str,
    ) -> BrainError {
        let text = self.read_body_prefix(&mut response).await;
        let body = parse_error_body(&text);
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return error_from_body(None, &body);
        }
        let kind = if kind.is_empty() { "something" } else { kind };
        let message = format!(
            "the server answered with {} instead of a stream of events; is the base URL right \
             ({})? It began: {}",
            kind,
            self.url,
            text.trim()
        );
        BrainError::new(BrainErrorKind::Refused, message)
    }

    async fn read_body_prefix(&self, response: &mut Response) -> String {
        let mut bytes = Vec::new();
        while bytes.len() < MAX_ERROR_BODY_BYTES {
            match self
                .with_timeout(self.settings.idle_timeout, response.chunk())
                .await
            {
                Ok(Some(more)) => bytes.extend_from_slice(&more),
                // Report what has arrived so far.
                Ok(None) | Err(_) => break,
            }
        }
        bytes.truncate(MAX_ERROR_BODY_BYTES);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Removes the key from an error that may be shown: servers may repeat what they were sent.
    pub(super) fn redact_error(&self, error: BrainError) -> BrainError {
        let message = match &self.key {
            // Before truncating, because half a key is a secret too.
            Some(ApiKey(key)) => error.message.replace(key.as_str(), "[key]"),
            None => error.message,
        };
        BrainError::new(
            error.kind,
            truncate_middle(&message, MAX_ERROR_MESSAGE_BYTES),
        )
    }
}

pub(super) fn header_text(response: &Response, name: &str) -> Option<String> {
    let value = response.headers().get(name)?;
    Some(value.to_str().ok()?.to_owned())
}
