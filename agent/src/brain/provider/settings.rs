//! The settings of a provider: which model, at which address, with which key.

use std::net::IpAddr;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderValue;

use super::retry::RetryPolicy;

/// How long a connection attempt may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The API that a provider implements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Anthropic's Messages API.
    Anthropic,
    /// Chat Completions, of OpenAI or of a compatible server.
    OpenAi,
}

impl Dialect {
    /// The environment variable that holds the key.
    pub fn key_variable(self) -> &'static str {
        match self {
            Dialect::Anthropic => "ANTHROPIC_API_KEY",
            Dialect::OpenAi => "OPENAI_API_KEY",
        }
    }

    fn default_base_url(self) -> &'static str {
        match self {
            Dialect::Anthropic => "https://api.anthropic.com",
            Dialect::OpenAi => "https://api.openai.com/v1",
        }
    }
}

/// How a request asks for thinking that people can see. Only requests to Anthropic ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkingMode {
    /// The request does not mention it.
    Unspecified,
    /// As much as the model decides.
    Adaptive,
    /// At most this many tokens; for models that support nothing else.
    Budget(u64),
}

/// Which model to use, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSettings {
    /// The API that the provider implements.
    pub dialect: Dialect,
    /// The model's name, as the provider knows it.
    pub model: String,
    /// The base URL; `None` for the provider's own.
    pub base_url: Option<String>,
    /// Tokens of one answer, at most; `None` for a default.
    pub max_tokens: Option<u64>,
    /// The size of the model's context in tokens, for input and output together.
    pub context_tokens: u64,
    /// How requests ask for thinking.
    pub thinking: ThinkingMode,
    /// How long a provider may be silent before the connection counts as lost.
    pub idle_timeout: Duration,
    /// How long one answer may take in total, even if the stream stays active.
    pub answer_timeout: Duration,
    /// When to retry a request.
    pub retry_policy: RetryPolicy,
}

impl ProviderSettings {
    pub fn new(dialect: Dialect, model: impl Into<String>) -> Self {
        Self {
            dialect,
            model: model.into(),
            base_url: None,
            max_tokens: None,
            context_tokens: match dialect {
                Dialect::Anthropic => 200_000,
                Dialect::OpenAi => 128_000,
            },
            thinking: ThinkingMode::Adaptive,
            // A model that thinks without showing it may be silent for minutes.
            idle_timeout: Duration::from_secs(300),
            answer_timeout: Duration::from_secs(3600),
            retry_policy: RetryPolicy::default(),
        }
    }

    /// Tokens to reserve for an answer.
    pub(super) fn max_answer_tokens(&self) -> u64 {
        let thinking = match self.thinking {
            ThinkingMode::Unspecified | ThinkingMode::Adaptive => 0,
            ThinkingMode::Budget(tokens) => tokens,
        };
        self.max_tokens
            .unwrap_or_else(|| thinking.saturating_add(16_000))
    }
}

/// An API key, which its `Debug` output hides.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ApiKey(pub(super) String);

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[key]")
    }
}

/// Why a provider cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderSetupError {
    #[error("the name of the model is empty; choose one with --model")]
    NoModel,
    #[error("`{0}` is not a URL that begins with http:// or https://")]
    BadUrl(String),
    #[error(
        "a base URL cannot contain a user name, a password or a query; set the key in the environment"
    )]
    UrlWithCredentials,
    #[error("no API key; set {0} in the environment")]
    NoKey(&'static str),
    #[error("{0} contains characters that an API key cannot have")]
    BadKey(&'static str),
    #[error("the key would travel to `{0}` unencrypted; use https")]
    PlainText(String),
    #[error("cannot prepare connections: {0}")]
    Client(String),
}

pub(super) fn endpoint(settings: &ProviderSettings) -> Result<Url, ProviderSetupError> {
    let base = settings.base_url.as_deref();
    let base = base.unwrap_or(settings.dialect.default_base_url());
    let base = base.trim().trim_end_matches('/');
    let path = match settings.dialect {
        Dialect::Anthropic if base.ends_with("/v1") => "/messages",
        Dialect::Anthropic => "/v1/messages",
        Dialect::OpenAi => "/chat/completions",
    };
    let bad = || ProviderSetupError::BadUrl(base.to_owned());
    let url = Url::parse(&format!("{base}{path}")).map_err(|_| bad())?;
    let web = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    match (web, plain) {
        (true, true) => Ok(url),
        // It may hold a secret, so the message does not repeat it.
        (true, false) => Err(ProviderSetupError::UrlWithCredentials),
        (false, _) => Err(bad()),
    }
}

/// The key. Only a local server needs none, and only a local one may get it without encryption.
pub(super) fn api_key(
    dialect: Dialect,
    url: &Url,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<ApiKey>, ProviderSetupError> {
    let name = dialect.key_variable();
    let key = variable(name).map(|key| key.trim().to_owned());
    let key = key.filter(|key| !key.is_empty()).map(ApiKey);
    let local = is_local(url);
    match &key {
        None if !local => Err(ProviderSetupError::NoKey(name)),
        Some(_) if !local && url.scheme() != "https" => {
            Err(ProviderSetupError::PlainText(url.to_string()))
        }
        Some(ApiKey(text)) if HeaderValue::from_str(text).is_err() => {
            Err(ProviderSetupError::BadKey(name))
        }
        Some(_) | None => Ok(key),
    }
}

/// Whether the address is on this machine or its network: loopback and private addresses, names
/// without a dot, `.localhost` and `.local`.
fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_private(),
        Ok(IpAddr::V6(address)) => address.is_loopback() || address.is_unique_local(),
        Err(_) => !host.contains('.') || host.ends_with(".localhost") || host.ends_with(".local"),
    }
}

pub(super) fn http_client(url: &Url) -> reqwest::Result<reqwest::Client> {
    // Only the first call has an effect; a provider that was installed earlier is fine too.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect must not carry the key to another server.
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("pvp-agent/", env!("CARGO_PKG_VERSION")));
    let builder = if is_local(url) {
        builder.no_proxy()
    } else {
        builder
    };
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint_with_key(
        dialect: Dialect,
        base: Option<&str>,
        key: Option<&str>,
    ) -> Result<String, ProviderSetupError> {
        let mut settings = ProviderSettings::new(dialect, "m");
        settings.base_url = base.map(str::to_owned);
        let url = endpoint(&settings)?;
        let name = dialect.key_variable();
        super::api_key(dialect, &url, |variable| {
            (variable == name).then(|| key.map(str::to_owned)).flatten()
        })?;
        Ok(url.to_string())
    }

    #[test]
    fn endpoints_are_those_that_providers_document() {
        let ask = |dialect, base| endpoint_with_key(dialect, base, Some("k")).unwrap();
        assert_eq!(
            ask(Dialect::Anthropic, None),
            "https://api.anthropic.com/v1/messages"
        );
        assert_eq!(
            ask(Dialect::Anthropic, Some("http://localhost:8080/v1/")),
            "http://localhost:8080/v1/messages"
        );
        assert_eq!(
            ask(Dialect::OpenAi, None),
            "https://api.openai.com/v1/chat/completions"
        );
        assert_eq!(
            ask(Dialect::OpenAi, Some("http://[::1]:11434/v1")),
            "http://[::1]:11434/v1/chat/completions"
        );
    }

    #[test]
    fn only_local_servers_need_no_key_and_no_encryption() {
        for local in [
            "http://localhost:1/v1",
            "http://127.0.0.1:1",
            "http://192.168.1.7:1",
            "http://ollama:11434/v1",
            "https://10.0.0.1",
        ] {
            assert!(
                endpoint_with_key(Dialect::OpenAi, Some(local), None).is_ok(),
                "{local}"
            );
            assert!(
                endpoint_with_key(Dialect::OpenAi, Some(local), Some("k")).is_ok(),
                "{local}"
            );
        }
        let no_key = ProviderSetupError::NoKey("ANTHROPIC_API_KEY");
        assert_eq!(
            endpoint_with_key(Dialect::Anthropic, None, None),
            Err(no_key.clone())
        );
        assert_eq!(
            endpoint_with_key(Dialect::Anthropic, None, Some(" \n")),
            Err(no_key)
        );
        let far = endpoint_with_key(
            Dialect::OpenAi,
            Some("http://api.example.com/v1"),
            Some("k"),
        );
        assert!(matches!(far, Err(ProviderSetupError::PlainText(_))));
        let odd = endpoint_with_key(Dialect::OpenAi, None, Some("a\nb"));
        assert_eq!(odd, Err(ProviderSetupError::BadKey("OPENAI_API_KEY")));
    }

    #[test]
    fn invalid_addresses_are_refused() {
        for base in ["", "ftp://x", "nonsense"] {
            let refused = endpoint_with_key(Dialect::OpenAi, Some(base), Some("k"));
            assert_eq!(refused, Err(ProviderSetupError::BadUrl(base.to_owned())));
        }
        for base in ["https://user:pass@x", "https://x/?key=pass"] {
            let refused = endpoint_with_key(Dialect::OpenAi, Some(base), Some("k")).unwrap_err();
            assert!(
                !refused.to_string().contains("pass@") && !refused.to_string().contains("=pass")
            );
            assert_eq!(refused, ProviderSetupError::UrlWithCredentials);
        }
    }

    #[test]
    fn a_key_is_hidden_in_debug_output() {
        assert_eq!(format!("{:?}", ApiKey("secret".to_owned())), "[key]");
    }
}
