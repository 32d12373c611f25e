//! Links: a server's address with a token and perhaps a session.

use std::fmt;
use std::str::FromStr;

use pvp_protocol::{KeyFingerprint, SessionId};

/// A server's address, a token to log in with, and perhaps a session. `Debug` and `Display` do not
/// show the token.
#[derive(Clone, PartialEq, Eq)]
pub struct Link {
    /// `http://` or `https://`, the host and perhaps a path, without a trailing slash.
    base_url: String,
    /// The only key that the server may have; `None` trusts whom the machine trusts.
    fingerprint: Option<KeyFingerprint>,
    token: Option<String>,
    session: Option<SessionId>,
}

/// Why a text is not a valid link.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error("a link begins with http:// or https://, such as http://127.0.0.1:3000/#token=…")]
    Scheme,
    #[error("the link names no host")]
    Host,
    #[error("the link's session: {0}")]
    Session(String),
    #[error("the link's fingerprint (`fp`) is damaged; copy the whole link")]
    Fingerprint,
    #[error("the link has a fingerprint (`fp`), so it begins with https://")]
    FingerprintWithoutTls,
    #[error("the link's token contains characters that a token cannot have")]
    Token,
}

impl Link {
    /// Parses a link as `pvp invite` prints it. The parameters may follow `?` or `#`.
    pub fn parse(text: &str) -> Result<Self, LinkError> {
        let text = text.trim();
        let (secure, rest) = [
            ("http://", false),
            ("ws://", false),
            ("https://", true),
            ("wss://", true),
        ]
        .into_iter()
        .find_map(|(scheme, secure)| Some((secure, text.strip_prefix(scheme)?)))
        .ok_or(LinkError::Scheme)?;
        let end = rest.find(['?', '#']).unwrap_or(rest.len());
        let (address, parameters) = rest.split_at(end);
        let address = address.trim_end_matches('/');
        let host_ends = address.find('/').unwrap_or(address.len());
        let host = &address[..host_ends];
        let is_url_char = |c: char| c.is_ascii_graphic() && !"@\\\"<>^`{|}".contains(c);
        if host.is_empty() || host.starts_with(':') || !address.chars().all(is_url_char) {
            return Err(LinkError::Host);
        }
        let mut link = Self {
            base_url: format!("http{}://{address}", if secure { "s" } else { "" }),
            fingerprint: None,
            token: None,
            session: None,
        };
        for pair in parameters.split(['?', '#', '&']) {
            match pair.split_once('=') {
                Some(("token", token)) => link.token = Some(parse_token(token)?),
                Some(("session", session)) => link.session = Some(parse_session(session)?),
                Some(("fp", _)) if !secure => return Err(LinkError::FingerprintWithoutTls),
                Some(("fp", text)) => link.fingerprint = Some(parse_fingerprint(text)?),
                Some(_) | None => {}
            }
        }
        Ok(link)
    }

    /// The address without its parameters.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// The only key that the server may have, if the link names one.
    pub fn fingerprint(&self) -> Option<KeyFingerprint> {
        self.fingerprint
    }

    /// The token, if the link has one.
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// The session, if the link names one.
    pub fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// The same link, but to this session.
    pub fn with_session(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    /// The same link, but to no session in particular.
    pub fn without_session(mut self) -> Self {
        self.session = None;
        self
    }

    /// A link to the same session with the same token, by another address of the server, which may
    /// have a fingerprint.
    pub fn with_base_url(self, base_url: &str) -> Result<Self, LinkError> {
        let Self { token, session, .. } = self;
        Ok(Self {
            token,
            session,
            ..Self::parse(base_url)?
        })
    }

    /// The same link with this token.
    pub fn with_token(self, token: &str) -> Result<Self, LinkError> {
        let token = Some(parse_token(token)?);
        Ok(Self { token, ..self })
    }

    /// The address of the server's WebSocket endpoint.
    pub fn websocket_url(&self) -> String {
        format!("{}/ws", self.base_url.replacen("http", "ws", 1))
    }

    /// The whole link, including the token, which follows `#` so that a browser does not send it.
    pub fn reveal(&self) -> String {
        let token = self.token.as_ref().map(|token| format!("token={token}"));
        let session = self.session.as_ref().map(|id| format!("session={id}"));
        let fingerprint = self.fingerprint.map(|key| format!("fp={key}"));
        let parameters = [token, session, fingerprint];
        let parameters: Vec<_> = parameters.into_iter().flatten().collect();
        match parameters.as_slice() {
            [] => format!("{}/", self.base_url),
            parameters => format!("{}/#{}", self.base_url, parameters.join("&")),
        }
    }
}

fn parse_token(token: &str) -> Result<String, LinkError> {
    let is_token_char = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
    if token.is_empty() || token.len() > 256 || !token.chars().all(is_token_char) {
        return Err(LinkError::Token);
    }
    Ok(token.to_owned())
}

fn parse_fingerprint(text: &str) -> Result<KeyFingerprint, LinkError> {
    KeyFingerprint::parse(text).map_err(|_| LinkError::Fingerprint)
}

fn parse_session(session: &str) -> Result<SessionId, LinkError> {
    SessionId::parse(session).map_err(|error| LinkError::Session(error.to_string()))
}

impl FromStr for Link {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        Self::parse(text)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base_url)?;
        match &self.session {
            Some(session) => write!(f, " session {session}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("Link")
            .field("base", &self.base_url)
            .field("fingerprint", &self.fingerprint)
            .field("token", &token)
            .field("session", &self.session)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parsed_link_prints_the_same_text() {
        for text in [
            "http://127.0.0.1:3000/#token=pvp_ab_cd&session=owl",
            "https://pvp.example/team/#token=pvp_ab_cd",
            "http://[::1]:3000/",
            "https://h/#token=t&session=owl&fp=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ] {
            assert_eq!(Link::parse(text).unwrap().reveal(), text);
        }
        let query = Link::parse("http://127.0.0.1:3000/?token=pvp_ab_cd&session=owl").unwrap();
        assert_eq!(
            query.reveal(),
            "http://127.0.0.1:3000/#token=pvp_ab_cd&session=owl"
        );
        let moved = query.with_base_url("https://pvp.example/").unwrap();
        assert_eq!(
            moved.without_session().with_token("t").unwrap().reveal(),
            "https://pvp.example/#token=t"
        );
        let link = Link::parse("wss://pvp.example#token=pvp_ab_cd&session=owl").unwrap();
        assert_eq!(link.base_url(), "https://pvp.example");
        assert_eq!(link.websocket_url(), "wss://pvp.example/ws");
        assert_eq!(link.session().unwrap().as_str(), "owl");
    }

    #[test]
    fn a_fingerprint_belongs_to_the_address() {
        let fp = "fp=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let link = Link::parse(&format!("https://h:1/#token=t&{fp}")).unwrap();
        let elsewhere = link.clone().with_base_url("https://pvp.example").unwrap();
        assert_eq!(elsewhere.reveal(), "https://pvp.example/#token=t");
        let back = elsewhere.with_base_url(&format!("https://h:1/#{fp}"));
        assert_eq!(back, Ok(link));
    }

    #[test]
    fn the_token_is_not_shown_by_accident() {
        let link = Link::parse("http://h/?token=pvp_ab_cd&session=owl").unwrap();
        assert_eq!(link.to_string(), "http://h session owl");
        assert!(!format!("{link:?}").contains("pvp_ab"));
    }

    #[test]
    fn an_invalid_link_is_refused_with_the_reason() {
        for (text, error) in [
            ("", LinkError::Scheme),
            ("127.0.0.1:3000", LinkError::Scheme),
            ("ftp://h", LinkError::Scheme),
            ("http://", LinkError::Host),
            ("http:///?token=a", LinkError::Host),
            ("http://a b/", LinkError::Host),
            ("http://user@h/", LinkError::Host),
            ("http://h/?token=", LinkError::Token),
            ("http://h/?token=a%20b", LinkError::Token),
            ("https://h/#fp=abc", LinkError::Fingerprint),
            (
                "http://h/#fp=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
                LinkError::FingerprintWithoutTls,
            ),
        ] {
            assert_eq!(Link::parse(text), Err(error), "{text}");
        }
        let error = Link::parse("http://h/?session=../x").unwrap_err();
        assert!(matches!(error, LinkError::Session(_)), "{error}");
    }
}
