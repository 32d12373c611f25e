//! A browser that has subscribed to push messages: it decrypts them with its own key (RFC 8291) and
//! checks who signed them (RFC 8292).

use data_encoding::BASE64URL_NOPAD;
use p256::ecdsa::signature::Verifier;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::{PublicKey, SecretKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use serde_json::{Value, json};

use super::http_receiver::ReceiverRequest;

pub struct PushBrowser {
    secret: SecretKey,
    auth: [u8; 16],
}

/// A length, as `ring` wants to be told it.
struct HkdfLength(usize);

impl KeyType for HkdfLength {
    fn len(&self) -> usize {
        self.0
    }
}

impl Default for PushBrowser {
    fn default() -> Self {
        // Any number below the order of the curve is a key.
        let mut number: [u8; 32] = pvp_clock::random_bytes();
        number[0] = 1;
        Self {
            secret: SecretKey::from_slice(&number).unwrap(),
            auth: pvp_clock::random_bytes(),
        }
    }
}

impl PushBrowser {
    /// What the browser gives to the page, for this address of a push service.
    pub fn subscription(&self, endpoint: &str) -> Value {
        json!({
            "endpoint": endpoint,
            "keys": { "p256dh": BASE64URL_NOPAD.encode(&self.public()), "auth": BASE64URL_NOPAD.encode(&self.auth) },
        })
    }

    fn public(&self) -> Vec<u8> {
        self.secret.public_key().to_sec1_bytes().to_vec()
    }

    /// The content of a message.
    pub fn decrypt(&self, request: &ReceiverRequest) -> Value {
        assert_eq!(request.headers["content-encoding"], "aes128gcm");
        let (salt, rest) = request.body.split_at(16);
        let (record_size, rest) = rest.split_at(4);
        assert_eq!(record_size, 4096_u32.to_be_bytes());
        assert_eq!(rest[0], 65, "the length of the sender's key");
        let (sender, sealed) = rest[1..].split_at(65);
        let sender_key = PublicKey::from_sec1_bytes(sender).unwrap();
        let shared = self.secret.diffie_hellman(&sender_key);
        let public = self.public();
        let info: [&[u8]; 3] = [b"WebPush: info\0", &public, sender];
        let agreed = Salt::new(HKDF_SHA256, &self.auth).extract(shared.raw_secret_bytes());
        let input: [u8; 32] = expand(&agreed, &info);
        let prk = Salt::new(HKDF_SHA256, salt).extract(&input);
        let key: [u8; 16] = expand(&prk, &[b"Content-Encoding: aes128gcm\0"]);
        let nonce: [u8; 12] = expand(&prk, &[b"Content-Encoding: nonce\0"]);
        let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
        let mut record = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let record = key.open_in_place(nonce, Aad::empty(), &mut record).unwrap();
        let end = record.iter().rposition(|byte| *byte != 0).unwrap();
        assert_eq!(record[end], 2, "the delimiter of the last record");
        serde_json::from_slice(&record[..end]).unwrap()
    }
}

fn expand<const N: usize>(prk: &Prk, info: &[&[u8]]) -> [u8; N] {
    let mut output = [0; N];
    let expanded = prk.expand(info, HkdfLength(N)).unwrap();
    expanded.fill(&mut output).unwrap();
    output
}

/// Checks that a message is signed with this key for this push service; returns the claims.
pub fn check_vapid(request: &ReceiverRequest, key: &str, origin: &str) -> Value {
    let header = request.headers["authorization"].as_str();
    let (token, named) = header
        .strip_prefix("vapid t=")
        .and_then(|rest| rest.split_once(", k="))
        .unwrap();
    assert_eq!(named, key);
    let decode = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let signature = Signature::from_slice(&decode(signature)).unwrap();
    VerifyingKey::from_sec1_bytes(&decode(key))
        .unwrap()
        .verify(signed.as_bytes(), &signature)
        .unwrap();
    let (head, claims) = signed.split_once('.').unwrap();
    let head: Value = serde_json::from_slice(&decode(head)).unwrap();
    assert_eq!(head, json!({ "typ": "JWT", "alg": "ES256" }));
    let claims: Value = serde_json::from_slice(&decode(claims)).unwrap();
    assert_eq!(claims["aud"], origin);
    let now = pvp_clock::now().as_millis() / 1000;
    let expires = claims["exp"].as_u64().unwrap();
    assert!((now..=now + 86_400).contains(&expires), "{claims}");
    claims
}
