//! Serves HTTPS: where the certificate comes from, how it is renewed, and the handshake.

mod acme;
mod certificate;
mod der;
mod private_file;
mod resolver;
mod self_signed;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use pvp_protocol::KeyFingerprint;
use rustls::ServerConfig as TlsConfig;
use rustls::crypto::ring;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use self::acme::AcmeCertificate;
pub(crate) use self::acme::AcmeSettings;
use self::certificate::Certificate;
use self::resolver::{ACME_PROTOCOL, CertificateResolver};
use self::self_signed::SelfSigned;
use crate::network_stream::NetworkStream;

/// How often the files of a certificate are read, to see whether they were replaced.
const FILES_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How often it is looked whether a self-signed certificate is to be renewed.
const RENEWAL_CHECK_INTERVAL: Duration = Duration::from_secs(3600);

/// The first byte of a TLS connection: a record of the handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The most that is read of a request that came without TLS, before it is answered.
const MAX_PLAIN_REQUEST_BYTES: usize = 8 * 1024;

/// Where a certificate comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TlsSource {
    /// Two files in PEM.
    Files { chain: PathBuf, key: PathBuf },
    /// The server signs it itself.
    SelfSigned,
    /// An ACME authority.
    Acme(AcmeSettings),
}

enum Renewal {
    Files { chain: PathBuf, key: PathBuf },
    SelfSigned(SelfSigned),
    Acme(AcmeCertificate),
}

/// What a server needs to speak HTTPS.
pub(crate) struct Tls {
    acceptor: TlsAcceptor,
    resolver: Arc<CertificateResolver>,
    renewal: Renewal,
}

impl Tls {
    /// Loads or makes the certificate. `names` are the addresses by which the server is reached.
    pub(crate) async fn open(
        source: TlsSource,
        data: &Path,
        names: BTreeSet<String>,
    ) -> anyhow::Result<Self> {
        let (renewal, certificate) = match source {
            TlsSource::Files { chain, key } => {
                let certificate = read_files(&chain, &key).await?;
                (Renewal::Files { chain, key }, certificate)
            }
            TlsSource::SelfSigned => {
                let own = SelfSigned::new(data, names);
                let certificate = own.load_or_make(pvp_clock::now()).await?;
                (Renewal::SelfSigned(own), certificate)
            }
            TlsSource::Acme(settings) => {
                let (acme, certificate) = AcmeCertificate::open(data, settings).await?;
                (Renewal::Acme(acme), certificate)
            }
        };
        warn_if_expired(&certificate);
        let resolver = Arc::new(CertificateResolver::new(certificate));
        let config = tls_config(resolver.clone(), &renewal)?;
        Ok(Self {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            resolver,
            renewal,
        })
    }

    /// The fingerprint that clients check instead of asking whether they trust who signed the
    /// certificate; `None` if somebody else signs it.
    pub(crate) fn pinned_key(&self) -> Option<KeyFingerprint> {
        match self.renewal {
            Renewal::SelfSigned(_) => self.resolver.current().key_fingerprint(),
            Renewal::Files { .. } | Renewal::Acme(_) => None,
        }
    }

    /// The fingerprint of a self-signed certificate, as a browser shows it.
    pub(crate) fn certificate_fingerprint(&self) -> Option<String> {
        match self.renewal {
            Renewal::SelfSigned(_) => Some(self.resolver.current().fingerprint()),
            Renewal::Files { .. } | Renewal::Acme(_) => None,
        }
    }

    /// The name that the certificate of others is for.
    pub(crate) fn certified_name(&self) -> Option<String> {
        match self.renewal {
            Renewal::SelfSigned(_) => None,
            Renewal::Files { .. } | Renewal::Acme(_) => self.resolver.current().name(),
        }
    }

    /// Reads the files of the certificate again. Bad ones change nothing, and the error is logged.
    pub(crate) async fn reload(&self) {
        let Renewal::Files { chain, key } = &self.renewal else {
            return;
        };
        match read_files(chain, key).await {
            Ok(certificate) if certificate.is_same(&self.resolver.current()) => {}
            Ok(certificate) => {
                warn_if_expired(&certificate);
                tracing::info!(file = %chain.display(), "uses another certificate");
                self.resolver.replace(certificate);
            }
            Err(error) => tracing::error!("kept the old certificate: {error:#}"),
        }
    }

    /// Renews the certificate whenever that is due. Never ends.
    pub(crate) async fn keep_renewed(&self) {
        match &self.renewal {
            Renewal::Files { chain, key } => self.watch_files(chain, key).await,
            Renewal::SelfSigned(own) => self.renew_own(own).await,
            Renewal::Acme(acme) => acme.keep_renewed(&self.resolver).await,
        }
    }

    /// Reloads the files when their content changes; an error is logged once for each content.
    async fn watch_files(&self, chain: &Path, key: &Path) {
        let content = async || {
            let (chain, key) = (tokio::fs::read(chain).await, tokio::fs::read(key).await);
            (chain.unwrap_or_default(), key.unwrap_or_default())
        };
        let mut seen = Default::default();
        loop {
            tokio::time::sleep(FILES_CHECK_INTERVAL).await;
            let found = content().await;
            if found != seen {
                seen = found;
                self.reload().await;
            }
        }
    }

    async fn renew_own(&self, own: &SelfSigned) {
        loop {
            tokio::time::sleep(RENEWAL_CHECK_INTERVAL).await;
            match own.renew(&self.resolver.current(), pvp_clock::now()).await {
                Ok(certificate) => self.resolver.replace(certificate),
                Err(error) => tracing::error!("kept the old certificate: {error:#}"),
            }
        }
    }

    /// Shakes hands with whoever connected; `None` if they want nothing more. A request that comes
    /// without TLS is told where to go.
    pub(crate) async fn accept(
        &self,
        tcp: TcpStream,
        within: Duration,
        https_url: &str,
    ) -> Option<NetworkStream> {
        match timeout(within, self.shake_hands(tcp, https_url)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
            Err(_) => {
                let seconds = within.as_secs();
                tracing::debug!(seconds, "a TLS handshake took too long");
                None
            }
        }
    }

    async fn shake_hands(
        &self,
        tcp: TcpStream,
        https_url: &str,
    ) -> std::io::Result<Option<NetworkStream>> {
        let mut first = [0];
        if tcp.peek(&mut first).await? == 0 {
            return Ok(None);
        }
        if first != [TLS_HANDSHAKE] {
            answer_without_tls(tcp, https_url).await?;
            return Ok(None);
        }
        let tls = self.acceptor.accept(tcp).await?;
        // An ACME authority has seen what it wanted.
        let is_challenge = tls.get_ref().1.alpn_protocol() == Some(ACME_PROTOCOL);
        Ok((!is_challenge).then(|| NetworkStream::Tls(Box::new(tls))))
    }
}

fn tls_config(
    resolver: Arc<CertificateResolver>,
    renewal: &Renewal,
) -> Result<TlsConfig, rustls::Error> {
    let builder = TlsConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    if matches!(renewal, Renewal::Acme(_)) {
        config.alpn_protocols.push(ACME_PROTOCOL.to_vec());
    }
    Ok(config)
}

async fn read_files(chain: &Path, key: &Path) -> anyhow::Result<Certificate> {
    let read = async |path: &Path, what: &str| {
        let content = tokio::fs::read(path).await;
        content.with_context(|| format!("reading the {what} in {}", path.display()))
    };
    let (chain_pem, key_pem) = (read(chain, "certificate").await?, read(key, "key").await?);
    Certificate::from_pem(&chain_pem, &key_pem)
        .with_context(|| format!("{} with {}", chain.display(), key.display()))
}

fn warn_if_expired(certificate: &Certificate) {
    let now = pvp_clock::now();
    if let Some(expires) = certificate.expires().filter(|expires| *expires <= now) {
        tracing::warn!(%expires, "the certificate has expired; browsers and clients refuse it");
    }
}

/// Tells whoever speaks HTTP where HTTPS is.
async fn answer_without_tls(mut tcp: TcpStream, https_url: &str) -> std::io::Result<()> {
    // Read first: closing a connection with unread input can discard the answer.
    let mut request = vec![0; MAX_PLAIN_REQUEST_BYTES];
    let _ = tcp.read(&mut request).await?;
    let text = format!("This server speaks HTTPS: {https_url}/\n");
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: {https_url}/\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n{text}",
        text.len()
    );
    tcp.write_all(answer.as_bytes()).await?;
    tcp.shutdown().await
}
