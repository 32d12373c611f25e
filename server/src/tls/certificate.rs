//! A certificate chain with its private key, and what is read from the certificate.

use std::sync::Arc;

use pvp_protocol::{KeyFingerprint, Timestamp};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use sha2::{Digest as _, Sha256};
use webpki::EndEntityCert;

use super::der;

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CertificateProblem {
    #[error("there is no certificate; the file begins with -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    #[error("the certificates are damaged: {0}")]
    BadCertificate(String),
    #[error("there is no private key; the file begins with -----BEGIN PRIVATE KEY----- ({0})")]
    NoKey(String),
    #[error("the key is not that of the certificate; the chain begins with the server's own")]
    OtherKey,
    #[error("the key cannot be used: {0}")]
    UnusableKey(String),
}

/// A certificate chain with its key.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    pub(super) certified: Arc<CertifiedKey>,
    /// The first of the chain.
    end_entity: CertificateDer<'static>,
}

impl Certificate {
    /// Reads a chain and its key, both in PEM; they may be one text.
    pub(super) fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, CertificateProblem> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
        let chain = chain.map_err(|error| CertificateProblem::BadCertificate(error.to_string()))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| CertificateProblem::NoKey(error.to_string()))?;
        Self::new(chain, key)
    }

    pub(super) fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, CertificateProblem> {
        let end_entity = chain.first().cloned();
        let end_entity = end_entity.ok_or(CertificateProblem::NoCertificate)?;
        EndEntityCert::try_from(&end_entity)
            .map_err(|error| CertificateProblem::BadCertificate(error.to_string()))?;
        let certified = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let is_other_key = |error: &_| matches!(error, rustls::Error::InconsistentKeys(_));
        let certified = certified.map_err(|error| match is_other_key(&error) {
            true => CertificateProblem::OtherKey,
            false => CertificateProblem::UnusableKey(error.to_string()),
        })?;
        Ok(Self {
            certified: Arc::new(certified),
            end_entity,
        })
    }

    /// When it expires; `None` if that cannot be read.
    pub(super) fn expires(&self) -> Option<Timestamp> {
        der::validity(&self.end_entity).map(|(_, until)| until)
    }

    /// From when on it should be replaced: when a third of its time is left, or thirty days.
    pub(super) fn renew_from(&self) -> Option<Timestamp> {
        const THIRTY_DAYS: u64 = 30 * 86_400;
        let (from, until) = der::validity(&self.end_entity)?;
        let third = until.millis_since(from) / 3000;
        Some(until.minus_seconds(third.min(THIRTY_DAYS)))
    }

    /// The fingerprint of its key.
    pub(super) fn key_fingerprint(&self) -> Option<KeyFingerprint> {
        let certificate = EndEntityCert::try_from(&self.end_entity).ok()?;
        let key = certificate.subject_public_key_info();
        Some(KeyFingerprint::of_public_key(key.as_ref()))
    }

    /// The SHA-256 of the certificate, written as browsers show it.
    pub(super) fn fingerprint(&self) -> String {
        let digits = Sha256::digest(&self.end_entity);
        let digits: Vec<_> = digits.iter().map(|byte| format!("{byte:02X}")).collect();
        digits.join(":")
    }

    /// The first name that it is for and that is no pattern.
    pub(super) fn name(&self) -> Option<String> {
        let certificate = EndEntityCert::try_from(&self.end_entity).ok()?;
        let mut names = certificate.valid_dns_names();
        let name = names.find(|name| !name.starts_with('*'));
        name.map(str::to_owned)
    }

    /// Whether both are the same chain.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.certified.cert == other.certified.cert
    }
}
