//! An ACME authority for tests: it checks domains by connecting to one address, and signs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use data_encoding::BASE64URL_NOPAD;
use pvp_protocol::Digest;
use rcgen::{PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

use super::tls::{TestAuthority, connect};

/// What the authority says to whoever cannot show a challenge.
pub const REJECTION: &str = "the wrong certificate was shown";

/// A running authority; it stops when it is dropped.
pub struct FakeAcme {
    pub authority: Arc<TestAuthority>,
    /// The address of its directory.
    pub directory: String,
    state: Arc<AcmeState>,
    task: tokio::task::JoinHandle<()>,
}

struct AcmeState {
    /// Who signs.
    authority: Arc<TestAuthority>,
    /// The address that its URLs begin with.
    base: String,
    /// The only domain that it knows.
    domain: String,
    /// Where connections to the domain go.
    checked_address: Mutex<Option<String>>,
    /// The fingerprint of the account's key, as RFC 7638 has it.
    thumbprint: Mutex<String>,
    /// `pending`, `ready`, `invalid` or `valid`.
    order: Mutex<&'static str>,
    /// The chain that was signed last, in PEM.
    certificate: Mutex<String>,
    /// Whether the certificates that it signs have expired.
    signs_expired: AtomicBool,
    /// How often each path was asked for.
    requests: Mutex<HashMap<String, usize>>,
}

impl Drop for FakeAcme {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeAcme {
    pub async fn start(domain: &str) -> Self {
        let authority = Arc::new(TestAuthority::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let base = format!("https://localhost:{port}");
        let state = Arc::new(AcmeState {
            authority: authority.clone(),
            base: base.clone(),
            domain: domain.to_owned(),
            checked_address: Mutex::default(),
            thumbprint: Mutex::default(),
            order: Mutex::new("pending"),
            certificate: Mutex::default(),
            signs_expired: AtomicBool::new(false),
            requests: Mutex::default(),
        });
        let acceptor = authority.acceptor(&["localhost"]);
        let serving = state.clone();
        let task = tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (acceptor, state) = (acceptor.clone(), serving.clone());
                tokio::spawn(async move {
                    if let Ok(tls) = acceptor.accept(tcp).await {
                        let _ = state.serve(tls).await;
                    }
                });
            }
        });
        Self {
            authority,
            directory: format!("{base}/directory"),
            state,
            task,
        }
    }

    /// Says where connections to the domain go.
    pub fn check_at(&self, address: &str) {
        *self.state.checked_address.lock().unwrap() = Some(address.to_owned());
    }

    /// Signs certificates that have expired, as they seem to a server whose clock is ahead.
    pub fn sign_expired(&self) {
        self.state.signs_expired.store(true, Ordering::Relaxed);
    }

    /// How often this path was asked for.
    pub fn count(&self, path: &str) -> usize {
        let requests = self.state.requests.lock().unwrap();
        requests.get(path).copied().unwrap_or(0)
    }
}

impl AcmeState {
    /// Answers the requests of one connection.
    async fn serve(&self, tls: TlsStream<TcpStream>) -> std::io::Result<()> {
        let mut stream = BufReader::new(tls);
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let mut words = line.split(' ');
            let (method, path) = (words.next().unwrap(), words.next().unwrap().to_owned());
            let is_head = method == "HEAD";
            let mut length = 0;
            loop {
                let mut header = String::new();
                stream.read_line(&mut header).await?;
                let header = header.trim().to_ascii_lowercase();
                if header.is_empty() {
                    break;
                }
                if let Some(value) = header.strip_prefix("content-length: ") {
                    length = value.parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await?;
            let (status, location, kind, answer) = self.answer(&path, &body).await;
            let answer = if is_head { String::new() } else { answer };
            let head = format!(
                "HTTP/1.1 {status} X\r\nReplay-Nonce: bm9uY2U\r\nLocation: {location}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
                answer.len()
            );
            stream.get_mut().write_all(head.as_bytes()).await?;
            stream.get_mut().write_all(answer.as_bytes()).await?;
            stream.get_mut().flush().await?;
        }
    }

    /// The status, the location, the content type and the body of an answer.
    async fn answer(&self, path: &str, body: &[u8]) -> (u16, String, &'static str, String) {
        *self
            .requests
            .lock()
            .unwrap()
            .entry(path.to_owned())
            .or_default() += 1;
        let base = &self.base;
        let json = "application/json";
        let ok = |body: Value| (200, String::new(), json, body.to_string());
        let (header, payload) = signed_parts(body);
        match path {
            "/directory" => ok(json!({
                "newNonce": format!("{base}/nonce"), "newAccount": format!("{base}/account"),
                "newOrder": format!("{base}/order"), "revokeCert": format!("{base}/revoke"),
                "keyChange": format!("{base}/key"),
            })),
            "/nonce" => ok(json!({})),
            "/account" => {
                *self.thumbprint.lock().unwrap() = thumbprint(&header["jwk"]);
                let body = json!({ "status": "valid" }).to_string();
                (201, format!("{base}/account/1"), json, body)
            }
            "/order" => {
                *self.order.lock().unwrap() = "pending";
                (
                    201,
                    format!("{base}/order/1"),
                    json,
                    self.order().to_string(),
                )
            }
            "/order/1" => ok(self.order()),
            "/authorization/1" => ok(self.authorization()),
            "/challenge/1" => {
                let is_shown = self.is_challenge_shown().await;
                *self.order.lock().unwrap() = if is_shown { "ready" } else { "invalid" };
                ok(self.challenge())
            }
            "/finalize/1" => {
                let request = payload["csr"].as_str().unwrap();
                let request = BASE64URL_NOPAD.decode(request.as_bytes()).unwrap();
                let key = RequestedKey::find_in(&request);
                let names = [self.domain.as_str()];
                let chain = match self.signs_expired.load(Ordering::Relaxed) {
                    true => self.authority.sign_expired(&names, &key),
                    false => self.authority.sign(&names, &key),
                };
                *self.certificate.lock().unwrap() = chain;
                *self.order.lock().unwrap() = "valid";
                ok(self.order())
            }
            "/certificate/1" => {
                let chain = self.certificate.lock().unwrap().clone();
                (
                    200,
                    String::new(),
                    "application/pem-certificate-chain",
                    chain,
                )
            }
            _ => (
                404,
                String::new(),
                json,
                json!({ "type": "unknown" }).to_string(),
            ),
        }
    }

    fn order(&self) -> Value {
        let (base, status) = (&self.base, *self.order.lock().unwrap());
        let mut order = json!({
            "status": status,
            "identifiers": [{ "type": "dns", "value": self.domain }],
            "authorizations": [format!("{base}/authorization/1")],
            "finalize": format!("{base}/finalize/1"),
        });
        if status == "valid" {
            order["certificate"] = format!("{base}/certificate/1").into();
        }
        order
    }

    fn authorization(&self) -> Value {
        let status = match *self.order.lock().unwrap() {
            "pending" => "pending",
            "invalid" => "invalid",
            _ => "valid",
        };
        json!({
            "identifier": { "type": "dns", "value": self.domain },
            "status": status,
            "challenges": [self.challenge()],
        })
    }

    fn challenge(&self) -> Value {
        let mut challenge = json!({
            "type": "tls-alpn-01", "url": format!("{}/challenge/1", self.base),
            "token": "token", "status": "pending",
        });
        if *self.order.lock().unwrap() == "invalid" {
            challenge["status"] = "invalid".into();
            challenge["error"] =
                json!({ "type": "urn:ietf:params:acme:error:unauthorized", "detail": REJECTION });
        }
        challenge
    }

    /// Connects to the domain as RFC 8737 says, and looks at the certificate.
    async fn is_challenge_shown(&self) -> bool {
        let address = self.checked_address.lock().unwrap().clone();
        let Some(address) = address else {
            return false;
        };
        let mut config = client_that_trusts_anybody();
        config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
        let Ok(tls) = connect(&address, &self.domain, config).await else {
            return false;
        };
        let session = tls.get_ref().1;
        let shown = session.peer_certificates().unwrap()[0].as_ref();
        let proof = format!("token.{}", self.thumbprint.lock().unwrap());
        let proof = Digest::of_content(proof.as_bytes());
        // The extension acmeIdentifier, which is critical, with the digest in it.
        let extension = [
            &b"\x06\x08\x2b\x06\x01\x05\x05\x07\x01\x1f\x01\x01\xff\x04\x22\x04\x20"[..],
            proof.as_bytes(),
        ]
        .concat();
        session.alpn_protocol() == Some(b"acme-tls/1")
            && shown.windows(extension.len()).any(|part| part == extension)
    }
}

/// The header and the payload of a signed request.
fn signed_parts(body: &[u8]) -> (Value, Value) {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let part = |name: &str| {
        let text = body[name].as_str().unwrap_or_default();
        let text = BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
        serde_json::from_slice(&text).unwrap_or_default()
    };
    (part("protected"), part("payload"))
}

fn thumbprint(key: &Value) -> String {
    let canonical = format!(
        r#"{{"crv":{},"kty":{},"x":{},"y":{}}}"#,
        key["crv"], key["kty"], key["x"], key["y"]
    );
    BASE64URL_NOPAD.encode(Digest::of_content(canonical.as_bytes()).as_bytes())
}

/// The public key of a certificate request.
struct RequestedKey(Vec<u8>);

impl RequestedKey {
    fn find_in(request: &[u8]) -> Self {
        // A bit string of 65 bytes, which is a point on P-256.
        let begins = [0x03, 0x42, 0x00, 0x04];
        let at = request.windows(4).position(|part| part == begins).unwrap();
        Self(request[at + 3..at + 3 + 65].to_vec())
    }
}

impl PublicKeyData for RequestedKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

/// An authority looks at what is shown, whoever has signed it.
#[derive(Debug)]
struct TrustsAnybody;

fn client_that_trusts_anybody() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TrustsAnybody))
        .with_no_client_auth()
}

impl ServerCertVerifier for TrustsAnybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
