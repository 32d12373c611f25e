//! Checks that a server is the one that a link names by the fingerprint of its key.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use pvp_protocol::KeyFingerprint;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, SignatureScheme,
};
use webpki::EndEntityCert;

/// The server's key is not the one that the link names.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server has another key than the one in the link (`fp`); it was set up anew, or another server answers in its place: do not go on before you know which, then ask for a new link"
)]
pub(crate) struct WrongKey;

/// The settings of connections to a server with this key. Who signed its certificate, for which
/// names and until when, does not matter: nobody else has the key.
pub(crate) fn pinned_config(fingerprint: KeyFingerprint) -> Result<ClientConfig, Error> {
    let provider = Arc::new(ring::default_provider());
    let verifier = PinnedKey {
        fingerprint,
        provider: provider.clone(),
    };
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions()?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// What is wrong with the server's certificate, if that is why a connection failed.
pub(crate) fn certificate_problem(error: &(dyn StdError + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(tls) = tls_error(error) {
            return explain(tls);
        }
        next = error.source();
    }
    None
}

/// The TLS error that this error is, or that it was made from.
fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let inner = || tls_error(error.downcast_ref::<io::Error>()?.get_ref()?);
    error.downcast_ref().or_else(inner)
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the other errors are not about the certificate, or explain themselves"
)]
fn explain(error: &Error) -> Option<String> {
    match error {
        Error::InvalidCertificate(CertificateError::Other(OtherError(other))) => {
            other.downcast_ref::<WrongKey>().map(WrongKey::to_string)
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => Some(
            "nobody that this machine trusts has signed the server's certificate; use a link with `fp`, which a server with --tls-self-signed prints".to_owned(),
        ),
        Error::InvalidCertificate(problem) => {
            Some(format!("the server's certificate is not valid: {problem:?}"))
        }
        _ => None,
    }
}

/// Accepts the holder of one key, and nobody else.
#[derive(Debug)]
struct PinnedKey {
    fingerprint: KeyFingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = EndEntityCert::try_from(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let key = certificate.subject_public_key_info();
        match KeyFingerprint::of_public_key(key.as_ref()) == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => {
                let other = CertificateError::Other(OtherError(Arc::new(WrongKey)));
                Err(Error::InvalidCertificate(other))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
