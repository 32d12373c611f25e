//! Chooses the certificate of a handshake: the server's own, or what an ACME authority asks to see.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// The protocol that an ACME authority asks for when it checks who holds a domain (RFC 8737).
pub(super) const ACME_PROTOCOL: &[u8] = b"acme-tls/1";

/// The certificates that are in use at the moment.
#[derive(Debug)]
pub(super) struct CertificateResolver {
    current: RwLock<Certificate>,
    /// What an ACME authority is shown; `None` unless it is asked for a certificate.
    challenge: RwLock<Option<Arc<CertifiedKey>>>,
}

impl CertificateResolver {
    pub(super) fn new(certificate: Certificate) -> Self {
        Self {
            current: RwLock::new(certificate),
            challenge: RwLock::default(),
        }
    }

    pub(super) fn current(&self) -> Certificate {
        self.current.read().clone()
    }

    /// Uses another certificate, from the next handshake on.
    pub(super) fn replace(&self, certificate: Certificate) {
        *self.current.write() = certificate;
    }

    pub(super) fn set_challenge(&self, challenge: Option<Arc<CertifiedKey>>) {
        *self.challenge.write() = challenge;
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut protocols = hello.alpn().into_iter().flatten();
        match protocols.any(|protocol| protocol == ACME_PROTOCOL) {
            true => self.challenge.read().clone(),
            false => Some(self.current.read().certified.clone()),
        }
    }
}
