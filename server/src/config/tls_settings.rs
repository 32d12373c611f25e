//! The settings that are about HTTPS, taken together.

use std::net::IpAddr;

use super::{ConfigError, ServerConfig};
use crate::tls::{AcmeSettings, TlsSource};

/// The ACME authority unless told otherwise.
pub(super) const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

impl ServerConfig {
    /// Where the certificate for HTTPS comes from; `None` for plain HTTP.
    pub(crate) fn tls_source(&self) -> Result<Option<TlsSource>, ConfigError> {
        let files = match (&self.tls_cert, &self.tls_key) {
            (Some(chain), Some(key)) => Some(TlsSource::Files {
                chain: chain.clone(),
                key: key.clone(),
            }),
            (None, None) => None,
            (Some(_), None) => return Err(ConfigError::Conflict("`tls_cert` needs `tls_key`")),
            (None, Some(_)) => return Err(ConfigError::Conflict("`tls_key` needs `tls_cert`")),
        };
        let acme = self.acme.as_ref().map(|domain| AcmeSettings {
            domain: domain.to_ascii_lowercase(),
            email: self.acme_email.clone(),
            directory: self.acme_directory.clone(),
            root: self.acme_root.clone(),
        });
        let has_acme_details = self.acme_email.is_some()
            || self.acme_root.is_some()
            || self.acme_directory != LETS_ENCRYPT;
        if acme.is_none() && has_acme_details {
            let problem = "`acme_email`, `acme_directory` and `acme_root` need `acme`";
            return Err(ConfigError::Conflict(problem));
        }
        let own = self.tls_self_signed.then_some(TlsSource::SelfSigned);
        let mut sources = [files, own, acme.map(TlsSource::Acme)]
            .into_iter()
            .flatten();
        let source = sources.next();
        if sources.next().is_some() {
            let problem = "choose one of `tls_cert` with `tls_key`, `tls_self_signed` and `acme`";
            return Err(ConfigError::Conflict(problem));
        }
        let public = self.public_url.as_deref().unwrap_or_default();
        if source.is_some() && public.starts_with("http://") {
            let problem = "`public_url` begins with http://, but the server speaks HTTPS";
            return Err(ConfigError::Conflict(problem));
        }
        Ok(source)
    }

    /// Whether the server speaks HTTPS itself.
    pub(crate) fn speaks_tls(&self) -> bool {
        self.tls_cert.is_some() || self.tls_self_signed || self.acme.is_some()
    }

    /// How the addresses of this server begin.
    pub(crate) fn scheme(&self) -> &'static str {
        match self.speaks_tls() {
            true => "https",
            false => "http",
        }
    }
}

/// Whether a certificate can be for this name.
pub(super) fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        (1..=63).contains(&label.len())
            && label.chars().all(is_plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let is_address = text.parse::<IpAddr>().is_ok();
    text.len() <= 253 && text.contains('.') && text.split('.').all(is_label) && !is_address
}

/// Whether this looks like an e-mail address.
pub(super) fn is_email(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_graphic() && !"<>,;:\"\\".contains(c);
    let parts = text.split_once('@');
    text.chars().all(is_plain)
        && parts.is_some_and(|(name, domain)| !name.is_empty() && is_domain(domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(settings: &str) -> Result<Option<TlsSource>, String> {
        let loaded = ServerConfig::load(Some(("pvp.toml", settings)), [], &[]);
        let config = loaded.map_err(|error| error.to_string())?;
        config.tls_source().map_err(|error| error.to_string())
    }

    #[test]
    fn a_certificate_comes_from_one_place() {
        assert_eq!(source(""), Ok(None));
        let files = TlsSource::Files {
            chain: "c.pem".into(),
            key: "k.pem".into(),
        };
        assert_eq!(
            source("tls_cert = \"c.pem\"\ntls_key = \"k.pem\""),
            Ok(Some(files))
        );
        assert_eq!(
            source("tls_self_signed = true"),
            Ok(Some(TlsSource::SelfSigned))
        );
        let acme = TlsSource::Acme(AcmeSettings {
            domain: "pvp.example.com".to_owned(),
            email: Some("ops@example.com".to_owned()),
            directory: LETS_ENCRYPT.to_owned(),
            root: None,
        });
        let settings = "acme = \"PVP.example.com\"\nacme_email = \"ops@example.com\"";
        assert_eq!(source(settings), Ok(Some(acme)));
        for (settings, problem) in [
            ("tls_cert = \"c.pem\"", "`tls_cert` needs `tls_key`"),
            ("tls_key = \"k.pem\"", "`tls_key` needs `tls_cert`"),
            (
                "tls_self_signed = true\nacme = \"pvp.example.com\"",
                "choose one of `tls_cert` with `tls_key`, `tls_self_signed` and `acme`",
            ),
            (
                "acme_email = \"ops@example.com\"",
                "`acme_email`, `acme_directory` and `acme_root` need `acme`",
            ),
            (
                "tls_self_signed = true\npublic_url = \"http://pvp.example.com\"",
                "`public_url` begins with http://, but the server speaks HTTPS",
            ),
        ] {
            assert_eq!(source(settings), Err(problem.to_owned()), "{settings}");
        }
    }

    #[test]
    fn only_names_that_an_authority_can_check_are_domains() {
        for good in ["pvp.example.com", "a-b.example", "xn--bcher-kva.example"] {
            assert!(is_domain(good), "{good}");
        }
        for bad in [
            "localhost",
            "192.0.2.7",
            "*.example.com",
            "-a.example",
            "a..example",
            "a.example/../x",
            "",
        ] {
            assert!(!is_domain(bad), "{bad}");
        }
        assert!(is_email("ops@example.com"));
        for bad in [
            "ops",
            "@example.com",
            "ops@localhost",
            "a b@example.com",
            "a@b.c,d@e.f",
        ] {
            assert!(!is_email(bad), "{bad}");
        }
    }
}
