//! A certificate that the server signs itself, kept in its data directory.
//!
//! The key stays the same for as long as its file does, so that the fingerprint in links does. The
//! certificate is made again when it is about to expire or when the machine has another address.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pvp_protocol::{KeyFingerprint, Timestamp};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, PublicKeyData,
};
use time::{Duration, OffsetDateTime};

use super::certificate::Certificate;
use super::private_file;

const KEY_FILE: &str = "tls-key.pem";
const CERTIFICATE_FILE: &str = "tls-certificate.pem";

/// The longest time that browsers and phones accept.
const VALID_DAYS: i64 = 397;

/// Clocks of clients may be behind.
const BACKDATED_DAYS: i64 = 1;

/// Names of earlier networks are kept up to so many, so that coming back needs no other certificate.
const MAX_NAMES: usize = 32;

/// How the line begins that says which names a certificate is for.
const NAMES_LINE: &str = "# names: ";

/// The self-signed certificate of a data directory.
pub(super) struct SelfSigned {
    directory: PathBuf,
    /// The addresses and names by which the server is reached.
    names: BTreeSet<String>,
}

impl SelfSigned {
    pub(super) fn new(directory: &Path, names: BTreeSet<String>) -> Self {
        Self {
            directory: directory.to_owned(),
            names,
        }
    }

    /// The certificate that is kept, or another one if it does not fit any more.
    pub(super) async fn load_or_make(&self, now: Timestamp) -> anyhow::Result<Certificate> {
        let key = match self.load_key().await? {
            Some(key) => key,
            None => self.make_key().await?,
        };
        self.certificate_for(&key, now).await
    }

    /// The same while the server runs and clients know it by the key of the certificate in use, so
    /// that a key that is missing or another one is an error.
    pub(super) async fn renew(
        &self,
        in_use: &Certificate,
        now: Timestamp,
    ) -> anyhow::Result<Certificate> {
        let path = self.directory.join(KEY_FILE);
        let key = self.load_key().await?;
        let key = key.with_context(|| {
            format!(
                "the key in {} is missing; restore it, or restart the server to make another, after which links with its fingerprint must be sent again",
                path.display()
            )
        })?;
        let found = KeyFingerprint::of_public_key(&key.subject_public_key_info());
        if in_use.key_fingerprint() != Some(found) {
            bail!(
                "the key in {} is not the one in use; restore that one, or restart the server to use another, after which links with the fingerprint must be sent again",
                path.display()
            );
        }
        self.certificate_for(&key, now).await
    }

    /// The certificate that is kept, if it fits this key, the time and the names; else another one.
    async fn certificate_for(&self, key: &KeyPair, now: Timestamp) -> anyhow::Result<Certificate> {
        let path = self.directory.join(CERTIFICATE_FILE);
        let kept = private_file::read(&path).await;
        let kept = kept.with_context(|| format!("reading {}", path.display()))?;
        let kept = kept.unwrap_or_default();
        let kept_names = names_in(&kept);
        let certificate = Certificate::from_pem(&kept, key.serialize_pem().as_bytes());
        if let Ok(certificate) = certificate
            && certificate.renew_from().is_some_and(|from| now < from)
            && self.names.is_subset(&kept_names)
        {
            return Ok(certificate);
        }
        let names = self.names_to_sign(kept_names);
        let pem = sign(key, &names, now)?;
        private_file::write(&path, pem.as_bytes())
            .await
            .with_context(|| format!("writing {}", path.display()))?;
        tracing::info!(names = names.join(", "), "made a self-signed certificate");
        let certificate = Certificate::from_pem(pem.as_bytes(), key.serialize_pem().as_bytes());
        certificate.context("the certificate that was just made")
    }

    /// The server's names, and those that it had before.
    fn names_to_sign(&self, kept: BTreeSet<String>) -> Vec<String> {
        let earlier = kept.difference(&self.names).cloned();
        let names = self.names.iter().cloned().chain(earlier);
        names.take(MAX_NAMES).collect()
    }

    async fn make_key(&self) -> anyhow::Result<KeyPair> {
        let path = self.directory.join(KEY_FILE);
        let key = KeyPair::generate().context("making a key for TLS")?;
        private_file::write(&path, key.serialize_pem().as_bytes())
            .await
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(key)
    }

    /// The key that is kept; `None` if there is none. One that cannot be read is not replaced: links
    /// name it.
    async fn load_key(&self) -> anyhow::Result<Option<KeyPair>> {
        let path = self.directory.join(KEY_FILE);
        let kept = private_file::read(&path).await;
        let kept = kept.with_context(|| format!("reading {}", path.display()))?;
        let Some(pem) = kept else { return Ok(None) };
        let key = String::from_utf8(pem)
            .map_err(anyhow::Error::from)
            .and_then(|pem| Ok(KeyPair::from_pem(&pem)?));
        let key = key.with_context(|| {
            format!(
                "the key in {} is damaged; restore it, or remove it to make another, after which links with its fingerprint must be sent again",
                path.display()
            )
        })?;
        Ok(Some(key))
    }
}

/// The names that the lines before a certificate list.
fn names_in(pem: &[u8]) -> BTreeSet<String> {
    let text = String::from_utf8_lossy(pem);
    let names = text.lines().find_map(|line| line.strip_prefix(NAMES_LINE));
    let names = names.unwrap_or_default().split(", ").map(str::to_owned);
    names.filter(|name| !name.is_empty()).collect()
}

fn sign(key: &KeyPair, names: &[String], now: Timestamp) -> anyhow::Result<String> {
    let mut params = CertificateParams::new(names).context("the server's names")?;
    let now =
        OffsetDateTime::from_unix_timestamp(unix_seconds(now)).context("the machine's clock")?;
    params.not_before = now - Duration::days(BACKDATED_DAYS);
    params.not_after = now + Duration::days(VALID_DAYS - BACKDATED_DAYS);
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, "PVP server");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.self_signed(key).context("signing a certificate")?;
    let names = names.join(", ");
    Ok(format!("{NAMES_LINE}{names}\n{}", certificate.pem()))
}

fn unix_seconds(at: Timestamp) -> i64 {
    i64::try_from(at.as_millis() / 1000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[tokio::test]
    async fn the_certificate_stays_until_it_expires_or_the_address_changes_and_the_key_stays() {
        let data = tempfile::tempdir().unwrap();
        let now = pvp_clock::now();
        let home = SelfSigned::new(data.path(), names(&["127.0.0.1", "192.0.2.7", "localhost"]));
        let first = home.load_or_make(now).await.unwrap();
        for file in [KEY_FILE, CERTIFICATE_FILE] {
            let file = std::fs::metadata(data.path().join(file)).unwrap();
            assert_eq!(file.permissions().mode() & 0o777, 0o600);
        }
        assert!(home.load_or_make(now).await.unwrap().is_same(&first));
        let later = now.plus_seconds(366 * 86_400 - 60);
        assert!(home.load_or_make(later).await.unwrap().is_same(&first));

        let due = now.plus_seconds(367 * 86_400);
        let renewed = home.load_or_make(due).await.unwrap();
        assert!(!renewed.is_same(&first));
        assert_eq!(renewed.key_fingerprint(), first.key_fingerprint());
        assert_ne!(renewed.fingerprint(), first.fingerprint());

        // Another network, and back again.
        let cafe = SelfSigned::new(data.path(), names(&["127.0.0.1", "198.51.100.9"]));
        let there = cafe.load_or_make(now).await.unwrap();
        assert!(!there.is_same(&renewed));
        assert_eq!(there.key_fingerprint(), first.key_fingerprint());
        assert!(home.load_or_make(now).await.unwrap().is_same(&there));
    }

    #[tokio::test]
    async fn a_damaged_key_is_an_error_and_a_damaged_certificate_is_made_again() {
        let data = tempfile::tempdir().unwrap();
        let now = pvp_clock::now();
        let server = SelfSigned::new(data.path(), names(&["127.0.0.1"]));
        let first = server.load_or_make(now).await.unwrap();
        std::fs::write(data.path().join(CERTIFICATE_FILE), "nonsense\u{0}").unwrap();
        let again = server.load_or_make(now).await.unwrap();
        assert_eq!(again.key_fingerprint(), first.key_fingerprint());
        std::fs::write(data.path().join(KEY_FILE), "nonsense").unwrap();
        let error = server.load_or_make(now).await.unwrap_err();
        assert!(format!("{error:#}").contains("is damaged"), "{error:#}");
        let kept = std::fs::read_to_string(data.path().join(KEY_FILE)).unwrap();
        assert_eq!(kept, "nonsense", "it was not replaced");
    }

    #[tokio::test]
    async fn while_the_server_runs_a_key_that_is_gone_or_another_is_an_error_and_none_is_made() {
        let data = tempfile::tempdir().unwrap();
        let key_file = data.path().join(KEY_FILE);
        let due = pvp_clock::now().plus_seconds(367 * 86_400);
        let server = SelfSigned::new(data.path(), names(&["127.0.0.1"]));
        let in_use = server.load_or_make(pvp_clock::now()).await.unwrap();
        let key = std::fs::read(&key_file).unwrap();

        std::fs::remove_file(&key_file).unwrap();
        let error = server.renew(&in_use, due).await.unwrap_err();
        assert!(format!("{error:#}").contains("is missing"), "{error:#}");
        assert!(!key_file.exists(), "no other key was made");

        let other = KeyPair::generate().unwrap().serialize_pem();
        std::fs::write(&key_file, other).unwrap();
        let error = server.renew(&in_use, due).await.unwrap_err();
        let is_named = format!("{error:#}").contains("is not the one in use");
        assert!(is_named, "{error:#}");

        std::fs::write(&key_file, key).unwrap();
        let renewed = server.renew(&in_use, due).await.unwrap();
        assert!(!renewed.is_same(&in_use));
        assert_eq!(renewed.key_fingerprint(), in_use.key_fingerprint());
    }
}
