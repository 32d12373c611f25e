//! Certificates for tests, and a TLS client that shows what a server answers with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PublicKeyData,
    date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::TEST_TIMEOUT;

/// An authority that signs certificates.
pub struct TestAuthority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl TestAuthority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let names = &mut params.distinguished_name;
        names.push(DnType::CommonName, "test authority");
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        Self { issuer }
    }

    /// Its own certificate, in PEM.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// Signs a certificate for these names; returns it in PEM.
    pub fn sign(&self, names: &[&str], key: &impl PublicKeyData) -> String {
        let params = certificate_params(names);
        params.signed_by(key, &self.issuer).unwrap().pem()
    }

    /// Signs a certificate that has expired; returns it in PEM.
    pub fn sign_expired(&self, names: &[&str], key: &impl PublicKeyData) -> String {
        let mut params = certificate_params(names);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2020, 3, 31);
        params.signed_by(key, &self.issuer).unwrap().pem()
    }

    /// Writes a new key and a certificate for it into a directory.
    pub fn write_pair(&self, directory: &Path, names: &[&str]) -> PairFiles {
        let key = KeyPair::generate().unwrap();
        let files = PairFiles::at(directory);
        files.write(&self.sign(names, &key), &key.serialize_pem());
        files
    }

    /// Accepts connections to a server with one of these names.
    pub fn acceptor(&self, names: &[&str]) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let chain = self.sign(names, &key);
        let chain = CertificateDer::from_pem_slice(chain.as_bytes()).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }

    /// What a client needs that trusts this authority alone.
    pub fn client(&self) -> ClientConfig {
        client_that_trusts(&self.pem())
    }
}

fn certificate_params(names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    CertificateParams::new(names).unwrap()
}

/// The files of a certificate and its key.
pub struct PairFiles {
    pub chain: PathBuf,
    pub key: PathBuf,
}

impl PairFiles {
    fn at(directory: &Path) -> Self {
        Self {
            chain: directory.join("chain.pem"),
            key: directory.join("key.pem"),
        }
    }

    pub fn write(&self, chain: &str, key: &str) {
        std::fs::write(&self.chain, chain).unwrap();
        std::fs::write(&self.key, key).unwrap();
    }

    /// The flags of a server that uses them.
    pub fn flags(&self) -> [&str; 4] {
        let (chain, key) = (self.chain.to_str().unwrap(), self.key.to_str().unwrap());
        ["--tls-cert", chain, "--tls-key", key]
    }
}

/// What a client needs that trusts the certificates in this text alone.
pub fn client_that_trusts(pem: &str) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// Shakes hands with a server that is asked for by this name.
pub async fn connect(
    address: &str,
    name: &str,
    config: ClientConfig,
) -> std::io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(address).await?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, tcp);
    tokio::time::timeout(TEST_TIMEOUT, connecting)
        .await
        .unwrap()
}

/// The certificate that a server shows.
pub async fn served_certificate(
    address: &str,
    name: &str,
    config: ClientConfig,
) -> std::io::Result<CertificateDer<'static>> {
    let tls = connect(address, name, config).await?;
    let chain = tls.get_ref().1.peer_certificates().unwrap();
    Ok(chain[0].clone().into_owned())
}

/// Sends a request over TLS; returns the whole answer.
pub async fn exchange(address: &str, name: &str, config: ClientConfig, request: &str) -> String {
    let mut tls = connect(address, name, config).await.unwrap();
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = tokio::io::AsyncReadExt::read_to_end(&mut tls, &mut answer);
    tokio::time::timeout(TEST_TIMEOUT, reading)
        .await
        .unwrap()
        .unwrap();
    String::from_utf8(answer).unwrap()
}

/// The only certificate of a PEM text.
pub fn certificate_in(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}
