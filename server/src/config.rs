//! Reads the server's settings from a TOML file, then from `PVP_*` variables, then from flags.

mod notifications;
mod tls_settings;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use pvp_protocol::suggestion::unknown_name;
use pvp_protocol::{ExecutionLimits, Limits, UniqueFields};
use pvp_session::SessionSettings;
use toml::{Spanned, Value};

use self::tls_settings::{LETS_ENCRYPT, is_domain, is_email};
pub(crate) use notifications::all_events;
pub use notifications::{HookConfig, NotificationConfig, SmtpConfig, SmtpSecurity};

/// A setting that is not valid: where it is, what it says, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{location}: `{key}` is {found}; use {allowed}")]
    Invalid {
        location: String,
        key: String,
        found: String,
        allowed: String,
    },
    #[error("{location}: {problem}")]
    Unknown { location: String, problem: String },
    #[error("{location}: {problem}")]
    Syntax { location: String, problem: String },
    #[error("{0}")]
    Unsafe(String),
    #[error("{0}")]
    Conflict(&'static str),
}

/// A type that a setting can have.
trait SettingValue: Sized {
    fn read(value: &Value) -> Option<Self>;

    /// What is wrong with a value that cannot be read, where saying what is allowed is not enough.
    fn problem(_: &Value) -> Option<String> {
        None
    }
}

impl SettingValue for bool {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Boolean(value) => Some(*value),
            Value::String(text) => match text.as_str() {
                "true" | "1" | "yes" => Some(true),
                "false" | "0" | "no" => Some(false),
                _ => None,
            },
            Value::Integer(_)
            | Value::Float(_)
            | Value::Datetime(_)
            | Value::Array(_)
            | Value::Table(_) => None,
        }
    }
}

impl SettingValue for u64 {
    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(value) => u64::try_from(*value).ok(),
            Value::String(text) => text.parse().ok(),
            Value::Boolean(_)
            | Value::Float(_)
            | Value::Datetime(_)
            | Value::Array(_)
            | Value::Table(_) => None,
        }
    }
}

impl SettingValue for String {
    fn read(value: &Value) -> Option<Self> {
        value
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    }
}

impl SettingValue for PathBuf {
    fn read(value: &Value) -> Option<Self> {
        String::read(value).map(PathBuf::from)
    }
}

impl SettingValue for SocketAddr {
    fn read(value: &Value) -> Option<Self> {
        let text = match value.as_str()? {
            "localhost" => "127.0.0.1".to_owned(),
            text => text.replacen("localhost:", "127.0.0.1:", 1),
        };
        let without_port = || {
            let ip: IpAddr = text.parse().ok()?;
            Some(SocketAddr::new(ip, DEFAULT_PORT))
        };
        text.parse().ok().or_else(without_port)
    }
}

impl<T: SettingValue> SettingValue for Option<T> {
    fn read(value: &Value) -> Option<Self> {
        T::read(value).map(Some)
    }
}

/// One setting, as the documentation describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingDoc {
    pub key: &'static str,
    pub default: String,
    pub allowed: &'static str,
    pub meaning: &'static str,
}

macro_rules! settings {
    ($($(#[doc = $meaning:literal])* $key:ident: $type:ty = $default:expr, $allowed:literal, $check:expr;)*) => {
        /// Every setting of the server.
        #[derive(Debug, Clone, PartialEq)]
        pub struct ServerConfig {
            $($(#[doc = $meaning])* pub $key: $type,)*
        }

        impl Default for ServerConfig {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl ServerConfig {
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            /// Every setting with its default, its allowed values and its meaning.
            pub fn reference() -> Vec<SettingDoc> {
                let default = Self::default();
                vec![$(SettingDoc {
                    key: stringify!($key),
                    default: format!("{:?}", default.$key),
                    allowed: $allowed,
                    meaning: concat!($($meaning,)*).trim_ascii(),
                }),*]
            }

            fn set(&mut self, location: &str, key: &str, value: &Value) -> Result<(), ConfigError> {
                match key {
                    $(stringify!($key) => {
                        let check: fn(&$type) -> bool = $check;
                        let location = location.to_owned();
                        let bad = || match <$type as SettingValue>::problem(value) {
                            Some(problem) => ConfigError::Syntax {
                                location,
                                problem: format!("`{key}`: {problem}"),
                            },
                            None => ConfigError::Invalid {
                                location,
                                key: key.to_owned(),
                                found: value.to_string(),
                                allowed: $allowed.to_owned(),
                            },
                        };
                        self.$key = <$type as SettingValue>::read(value).filter(check).ok_or_else(bad)?;
                        Ok(())
                    })*
                    _ => Err(ConfigError::Unknown {
                        location: location.to_owned(),
                        problem: unknown_name("setting", key, Self::KEYS),
                    }),
                }
            }
        }
    };
}

const MIB: u64 = 1024 * 1024;

/// Where a server listens unless told otherwise.
const DEFAULT_PORT: u16 = 3000;

/// Where published git hooks ask unless told otherwise.
const DEFAULT_BRIDGE_PORT: u64 = 9847;

settings! {
    /// Where the server listens.
    listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT)), "an address, with or without a port, such as 127.0.0.1:3000 or 0.0.0.0", |_| true;
    /// Where the log, the tokens and the key are kept; if not set, `pvp` keeps them below the user's state directory, apart for each directory that it is started in.
    data: Option<PathBuf> = None, "a directory", |_| true;
    /// The key that signs the log, if it is not to be kept with the log.
    key_file: Option<PathBuf> = None, "a file outside of the data directory", |_| true;
    /// Anchors of all sessions are appended to this file, one JSON line each.
    anchor_file: Option<PathBuf> = None, "a file, best on another machine or append-only", |_| true;
    /// Anchors of all sessions are posted to this address, as JSON lines.
    anchor_url: Option<String> = None, "an address that begins with http://", |url| url.as_ref().is_none_or(|url| crate::anchoring::is_webhook(url));
    /// Seconds between anchors of an active session.
    anchor_seconds: u64 = 300, "1 to 86400", |n| (1..=86_400).contains(n);
    /// Run without login: anyone who can connect may take any role. For trusted loopback use.
    open: bool = false, "true or false", |_| true;
    /// With `open`: the port on 127.0.0.1 where published git hooks find the decision tracking; 0 opens none.
    bridge_port: u64 = DEFAULT_BRIDGE_PORT, "0 to 65535", |n| u16::try_from(*n).is_ok();
    /// The address that people reach the server by, if it is not the one it listens on.
    public_url: Option<String> = None, "an address that begins with http:// or https://", |url| url.as_ref().is_none_or(|url| crate::origin::authority_of(url).is_some());
    /// The certificate chain to serve HTTPS with, in PEM; read again when it changes and on SIGHUP.
    tls_cert: Option<PathBuf> = None, "a PEM file, with `tls_key`", |_| true;
    /// The private key of `tls_cert`.
    tls_key: Option<PathBuf> = None, "a PEM file, with `tls_cert`", |_| true;
    /// Serve HTTPS with a certificate that the server makes itself; links carry the fingerprint of its key, which clients check.
    tls_self_signed: bool = false, "true or false", |_| true;
    /// Serve HTTPS for this domain, with a certificate from an ACME authority, which must reach this server at port 443 of the domain.
    acme: Option<String> = None, "a domain such as pvp.example.com", |domain| domain.as_ref().is_none_or(|domain| is_domain(domain));
    /// Where the ACME authority writes to if there is a problem with the certificate.
    acme_email: Option<String> = None, "an e-mail address", |email| email.as_ref().is_none_or(|email| is_email(email));
    /// The directory of the ACME authority.
    acme_directory: String = LETS_ENCRYPT.to_owned(), "an address that begins with https://", |url| url.starts_with("https://") && crate::origin::authority_of(url).is_some();
    /// The certificates that the ACME authority's server is checked with, if it is not one that this machine trusts.
    acme_root: Option<PathBuf> = None, "a PEM file", |_| true;
    /// Rules to add to the built-in ones; reloaded on SIGHUP.
    policy: Option<PathBuf> = None, "a TOML file", |_| true;
    /// Told to every session as `session:working_directory` until an executor says otherwise; unless given, each session has a directory of its own below `workspaces` in the data directory.
    working_directory: Option<String> = None, "a path", |_| true;
    /// Make the directory that a session has for itself a git repository.
    git_init: bool = false, "true or false", |_| true;
    /// Largest message, in bytes.
    message_bytes: u64 = MIB, "1024 to 8388608", |n| (1024..=8 * MIB).contains(n);
    /// Deepest JSON.
    json_depth: u64 = 64, "8 to 120", |n| (8..=120).contains(n);
    /// Messages a second of one participant.
    messages_per_second: u64 = 200, "1 to 1000000", |n| (1..=1_000_000).contains(n);
    /// Messages of one participant that may come at once.
    message_burst: u64 = 1000, "1 to 1000000", |n| (1..=1_000_000).contains(n);
    /// Participants of one session.
    participants: u64 = 200, "1 to 100000", |n| (1..=100_000).contains(n);
    /// Open proposals of one agent.
    open_proposals: u64 = 32, "1 to 10000", |n| (1..=10_000).contains(n);
    /// Open gates of one session.
    open_gates: u64 = 100, "1 to 10000", |n| (1..=10_000).contains(n);
    /// Context of one session, in bytes.
    context_bytes: u64 = 8 * MIB, "1024 to 1073741824", |n| (1024..=1024 * MIB).contains(n);
    /// Proposals over the life of one session.
    proposals: u64 = 100_000, "1 to 10000000", |n| (1..=10_000_000).contains(n);
    /// Sessions that the store holds.
    sessions: u64 = 10_000, "1 to 10000000", |n| (1..=10_000_000).contains(n);
    /// Sessions in the store that one token has made.
    sessions_per_token: u64 = 2000, "1 to 10000000", |n| (1..=10_000_000).contains(n);
    /// Sessions that one token has made and that have not ended.
    open_sessions_per_token: u64 = 500, "1 to 10000000", |n| (1..=10_000_000).contains(n);
    /// Sessions that one token may make in an hour.
    sessions_per_hour: u64 = 300, "1 to 1000000", |n| (1..=1_000_000).contains(n);
    /// Bytes of one session's log; a session that has them takes nothing more but its end.
    session_log_bytes: u64 = 4096 * MIB, "1048576 to 1099511627776", |n| (MIB..=1024 * 1024 * MIB).contains(n);
    /// Bytes of context that are added and updated over the life of one session.
    context_update_bytes: u64 = 256 * MIB, "1024 to 1099511627776", |n| (1024..=1024 * 1024 * MIB).contains(n);
    /// Bytes of long texts that one session keeps beside its log, on a server without login.
    long_text_bytes: u64 = 256 * MIB, "1024 to 1099511627776", |n| (1024..=1024 * 1024 * MIB).contains(n);
    /// Days after which sessions that have ended are archived and deleted; 0 keeps them forever.
    retention_days: u64 = 0, "0 to 36500", |n| (0..=36_500).contains(n);
    /// Where sessions are archived before retention deletes them; `archives` in the data directory unless given.
    archive_directory: Option<PathBuf> = None, "a directory", |_| true;
    /// Connections at a time.
    connections: u64 = 10_000, "1 to 1000000", |n| (1..=1_000_000).contains(n);
    /// Percent of the connections that are kept for those who are logged in.
    reserved_percent: u64 = 50, "0 to 95", |n| (0..=95).contains(n);
    /// Connections at a time of one address that are not logged in; the oldest is closed for another.
    connections_per_address: u64 = 1000, "1 to 1000000", |n| (1..=1_000_000).contains(n);
    /// Connections at a time of one token: sockets, and requests that wait.
    connections_per_token: u64 = 16, "1 to 100000", |n| (1..=100_000).contains(n);
    /// Requests at a time of one token, until their answers are read.
    requests_per_token: u64 = 32, "1 to 100000", |n| (1..=100_000).contains(n);
    /// Transcripts and archives that are sent at a time, to all together.
    transcripts: u64 = 128, "1 to 100000", |n| (1..=100_000).contains(n);
    /// Seconds until a connection that has not joined, or sends no whole request, is closed.
    join_seconds: u64 = 5, "1 to 300", |n| (1..=300).contains(n);
    /// Seconds after which a participant without a connection is told to have left, on a server without login.
    disconnect_grace_seconds: u64 = 30, "1 to 86400", |n| (1..=86_400).contains(n);
    /// Seconds until a connection that does not read, or sends a body too slowly, is closed.
    stall_seconds: u64 = 30, "1 to 3600", |n| (1..=3600).contains(n);
    /// Seconds that a read may run.
    read_timeout_seconds: u64 = 30, "1 to 86400", |n| (1..=86_400).contains(n);
    /// Bytes that a read may print.
    read_output_bytes: u64 = 10 * MIB, "1024 to 1073741824", |n| (1024..=1024 * MIB).contains(n);
    /// Seconds that a write may run.
    write_timeout_seconds: u64 = 60, "1 to 86400", |n| (1..=86_400).contains(n);
    /// Bytes that a write may print.
    write_output_bytes: u64 = 5 * MIB, "1024 to 1073741824", |n| (1024..=1024 * MIB).contains(n);
    /// Seconds that a destructive command may run.
    destructive_timeout_seconds: u64 = 120, "1 to 86400", |n| (1..=86_400).contains(n);
    /// Bytes that a destructive command may print.
    destructive_output_bytes: u64 = MIB, "1024 to 1073741824", |n| (1024..=1024 * MIB).contains(n);
    /// Seconds that a command in `slow` mode may run.
    slow_timeout_seconds: u64 = 900, "1 to 86400", |n| (1..=86_400).contains(n);
    /// Bytes of a background or interactive command's output that are recorded.
    background_output_bytes: u64 = 64 * MIB, "1024 to 1073741824", |n| (1024..=1024 * MIB).contains(n);
    /// Seconds that a granted command may wait for its executor; one that comes later does not run.
    grant_life_seconds: u64 = 60, "1 to 3600", |n| (1..=3600).contains(n);
    /// How people are notified of gates, and by what.
    notifications: NotificationConfig = NotificationConfig::default(), "[a table](notifications.md#settings-of-the-operator)", |_| true;
}

/// A setting from the command line.
#[derive(Debug, Clone)]
pub struct ConfigFlag {
    pub key: &'static str,
    pub text: String,
}

impl ServerConfig {
    /// The data directory; the current one if none is set, which no server that stores anything is
    /// started without.
    pub(crate) fn data_directory(&self) -> &Path {
        self.data.as_deref().unwrap_or_else(|| Path::new("."))
    }

    /// Where sessions have directories of their own; `None` if they have none.
    pub(crate) fn workspaces_directory(&self) -> Option<PathBuf> {
        if self.working_directory.is_some() {
            return None;
        }
        let data = std::path::absolute(self.data.as_ref()?).ok()?;
        Some(data.join("workspaces"))
    }

    /// Reads the file (its name and text), then the environment, then the flags.
    pub fn load(
        file: Option<(&str, &str)>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[ConfigFlag],
    ) -> Result<Self, ConfigError> {
        Self::load_over(Self::default(), file, environment, flags)
    }

    /// As [`load`](Self::load), with other defaults.
    pub fn load_over(
        defaults: Self,
        file: Option<(&str, &str)>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[ConfigFlag],
    ) -> Result<Self, ConfigError> {
        let mut config = defaults;
        if let Some((name, text)) = file {
            config.read_file(name, text)?;
        }
        let environment: BTreeMap<_, _> = environment.into_iter().collect();
        for key in Self::KEYS {
            let variable = format!("PVP_{}", key.to_uppercase());
            if let Some(text) = environment.get(&variable) {
                config.set(&variable, key, &Value::String(text.clone()))?;
            }
        }
        for flag in flags {
            let location = format!("--{}", flag.key.replace('_', "-"));
            config.set(&location, flag.key, &Value::String(flag.text.clone()))?;
        }
        config.tls_source()?;
        Ok(config)
    }

    /// Reads TOML, or JSON if the text begins like JSON.
    fn read_file(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        if text.trim_start().starts_with('{') {
            return self.read_json(name, text);
        }
        let line = |at: usize| 1 + text[..at.min(text.len())].matches('\n').count();
        let settings: BTreeMap<String, Spanned<Value>> =
            toml::from_str(text).map_err(|error| ConfigError::Syntax {
                location: format!("{name}:{}", error.span().map_or(1, |span| line(span.start))),
                problem: error.message().to_owned(),
            })?;
        for (key, value) in settings {
            let location = format!("{name}:{}", line(value.span().start));
            self.set(&location, &key, value.get_ref())?;
        }
        Ok(())
    }

    fn read_json(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let invalid = |error: serde_json::Error| ConfigError::Syntax {
            location: name.to_owned(),
            problem: error.to_string(),
        };
        let _: UniqueFields = serde_json::from_str(text).map_err(invalid)?;
        let settings: BTreeMap<String, Value> = serde_json::from_str(text).map_err(invalid)?;
        for (key, value) in settings {
            self.set(name, &key, &value)?;
        }
        Ok(())
    }

    /// Where published git hooks find the decision tracking; `None` unless the server is open.
    pub fn bridge_address(&self) -> Option<SocketAddr> {
        let port = u16::try_from(self.bridge_port).ok()?;
        (self.open && port != 0).then(|| SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// Refuses `--open` on an address that other machines can reach, unless the user confirmed it.
    pub fn check_exposure(&self, exposure_confirmed: bool) -> Result<(), ConfigError> {
        if !self.open || self.listen.ip().is_loopback() || exposure_confirmed {
            return Ok(());
        }
        Err(ConfigError::Unsafe(format!(
            "--open lets anyone who reaches {} do anything; listen on 127.0.0.1, or add --i-know-this-is-open",
            self.listen
        )))
    }

    /// The settings that the session core uses.
    pub fn settings(&self) -> SessionSettings {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let run = |seconds: u64, output_bytes: u64| ExecutionLimits {
            timeout_ms: seconds * 1000,
            output_bytes,
        };
        // Agents of the published protocol share whole projects as they join.
        let generous = |configured: u64, usual: u64, open: u64| match self.open {
            true if configured == usual => open,
            true | false => configured,
        };
        let usual = Self::default();
        let (burst, rate, context) = (
            generous(self.message_burst, usual.message_burst, 10_000),
            generous(self.messages_per_second, usual.messages_per_second, 1000),
            generous(self.context_bytes, usual.context_bytes, 64 * MIB),
        );
        SessionSettings {
            limits: Limits {
                message_bytes: size(self.message_bytes),
                json_depth: size(self.json_depth),
                messages_per_second: count(rate),
                message_burst: count(burst),
                participants: count(self.participants),
                open_proposals: count(self.open_proposals),
                open_gates: count(self.open_gates),
                context_bytes: size(context),
                proposals: count(self.proposals),
            },
            open_mode: self.open,
            working_directory: self.working_directory.clone(),
            workspaces: self
                .workspaces_directory()
                .and_then(|root| root.to_str().map(str::to_owned)),
            read_limits: run(self.read_timeout_seconds, self.read_output_bytes),
            write_limits: run(self.write_timeout_seconds, self.write_output_bytes),
            destructive_limits: run(
                self.destructive_timeout_seconds,
                self.destructive_output_bytes,
            ),
            slow_timeout_ms: self.slow_timeout_seconds * 1000,
            background_output_bytes: self.background_output_bytes,
            grant_lifetime_seconds: self.grant_life_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(
        file: &str,
        env: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> Result<ServerConfig, ConfigError> {
        let env = env
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let flags: Vec<_> = flags
            .iter()
            .map(|(key, text)| ConfigFlag {
                key,
                text: (*text).to_owned(),
            })
            .collect();
        ServerConfig::load(Some(("pvp.toml", file)), env, &flags)
    }

    #[test]
    fn flags_override_the_environment_which_overrides_the_file() {
        let file = "listen = \"127.0.0.1:1\"\nopen_gates = 5\nparticipants = 7\n";
        let env = [
            ("PVP_LISTEN", "127.0.0.1:2"),
            ("PVP_OPEN_GATES", "6"),
            ("HOME", "x"),
        ];
        let config = load(file, &env, &[("listen", "127.0.0.1:3")]).unwrap();
        assert_eq!(config.listen.port(), 3);
        assert_eq!(config.open_gates, 6);
        assert_eq!(config.participants, 7);
        assert_eq!(config.data, None);
    }

    #[test]
    fn an_address_without_a_port_means_the_usual_one() {
        for (text, listen) in [
            ("0.0.0.0", "0.0.0.0:3000"),
            ("0.0.0.0:81", "0.0.0.0:81"),
            ("::", "[::]:3000"),
            ("[::1]:9", "[::1]:9"),
            ("localhost", "127.0.0.1:3000"),
            ("localhost:9", "127.0.0.1:9"),
        ] {
            let config = load("", &[], &[("listen", text)]).unwrap();
            assert_eq!(config.listen.to_string(), listen, "{text}");
        }
        for bad in ["", "3000", "example.org:3000", "127.0.0.1:x", "1.2.3"] {
            assert!(load("", &[], &[("listen", bad)]).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_invalid_value_is_reported_with_its_location_and_what_is_allowed() {
        let error = |result: Result<ServerConfig, ConfigError>| result.unwrap_err().to_string();
        assert_eq!(
            error(load("\nopen_gates = 0\n", &[], &[])),
            "pvp.toml:2: `open_gates` is 0; use 1 to 10000"
        );
        assert_eq!(
            error(load("", &[("PVP_LISTEN", "here")], &[])),
            "PVP_LISTEN: `listen` is \"here\"; use an address, with or without a port, such as 127.0.0.1:3000 or 0.0.0.0"
        );
        assert_eq!(
            error(load("", &[], &[("public_url", "ftp://x")])),
            "--public-url: `public_url` is \"ftp://x\"; use an address that begins with http:// or https://"
        );
        assert!(error(load("a = 1\nb = \n", &[], &[])).starts_with("pvp.toml:2: "));
        assert!(error(load("open_gate = 1", &[], &[])).starts_with(
            "pvp.toml:1: there is no setting `open_gate`; did you mean `open_gates`?"
        ));
        assert!(error(load("open = \"perhaps\"", &[], &[])).contains("true or false"));
    }

    #[test]
    fn settings_may_be_json_too() {
        let config = load(r#" {"open_gates": 7, "open": true}"#, &[], &[]).unwrap();
        assert_eq!((config.open_gates, config.open), (7, true));
        let error = |text: &str| load(text, &[], &[]).unwrap_err().to_string();
        assert_eq!(
            error(r#"{"open_gate": 7}"#),
            "pvp.toml: there is no setting `open_gate`; did you mean `open_gates`?"
        );
        assert_eq!(
            error(r#"{"open_gates": 0}"#),
            "pvp.toml: `open_gates` is 0; use 1 to 10000"
        );
        assert!(error("{").starts_with("pvp.toml: "));
        let twice = error(r#"{"open": false, "open": true}"#);
        assert!(
            twice.starts_with("pvp.toml: `open` is given twice"),
            "{twice}"
        );
    }

    #[test]
    fn open_on_a_reachable_address_must_be_confirmed() {
        let open = |listen: &str| load("open = true", &[], &[("listen", listen)]).unwrap();
        assert!(open("127.0.0.1:3000").check_exposure(false).is_ok());
        assert!(open("[::1]:3000").check_exposure(false).is_ok());
        assert!(open("0.0.0.0:3000").check_exposure(false).is_err());
        assert!(open("0.0.0.0:3000").check_exposure(true).is_ok());
    }

    #[test]
    fn the_port_for_git_hooks_is_there_only_without_login() {
        let port = |file: &str| {
            let address = load(file, &[], &[]).unwrap().bridge_address();
            address.map(|address| address.to_string())
        };
        assert_eq!(port(""), None);
        assert_eq!(port("bridge_port = 9000"), None);
        assert_eq!(port("open = true").as_deref(), Some("127.0.0.1:9847"));
        let reachable = "open = true\nlisten = \"0.0.0.0:3000\"\nbridge_port = 9000";
        assert_eq!(port(reachable).as_deref(), Some("127.0.0.1:9000"));
        assert_eq!(port("open = true\nbridge_port = 0"), None);
        assert!(load("bridge_port = 65536", &[], &[]).is_err());
    }

    #[test]
    fn the_defaults_are_the_documented_limits() {
        assert_eq!(
            ServerConfig::default().settings(),
            SessionSettings::default()
        );
        assert!(
            ServerConfig::reference()
                .iter()
                .all(|setting| !setting.meaning.is_empty())
        );
    }
}
