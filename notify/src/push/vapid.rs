//! The key by which push services know this server, and the tokens that it signs (RFC 8292).

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use data_encoding::{BASE64, BASE64URL_NOPAD};
use pvp_protocol::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

/// The file in the data directory.
const KEY_FILE: &str = "push.key";

/// How long a token is valid; push services refuse more than a day.
const TOKEN_SECONDS: u64 = 12 * 3600;

/// Why the key cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the key for push messages `{}` cannot be used: {why}", path.display())]
pub struct VapidKeyError {
    path: PathBuf,
    why: String,
}

/// The key that subscriptions of browsers are bound to.
pub struct VapidKey {
    pair: EcdsaKeyPair,
    /// Whom a push service may ask about this server: a `mailto:` or `https:` address.
    contact: Option<String>,
}

impl VapidKey {
    /// Loads the key of a data directory, or makes one if there is none.
    pub async fn load_or_create(
        directory: &Path,
        contact: Option<String>,
    ) -> Result<Self, VapidKeyError> {
        let path = directory.join(KEY_FILE);
        let reading = path.clone();
        let read = tokio::task::spawn_blocking(move || match read_private(&reading) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => create(&reading),
            read => read,
        });
        let read = read
            .await
            .unwrap_or_else(|panic| Err(io::Error::other(panic)));
        let failed = |why: String| VapidKeyError {
            path: path.clone(),
            why,
        };
        let text = read.map_err(|error| failed(error.to_string()))?;
        let damaged = || {
            failed("it is damaged; remove it to make another one, after which browsers have to subscribe again".to_owned())
        };
        let pkcs8 = BASE64.decode(text.trim_ascii().as_bytes());
        let pkcs8 = pkcs8.map_err(|_| damaged())?;
        let pair = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &pkcs8,
            &SystemRandom::new(),
        );
        Ok(Self {
            pair: pair.map_err(|_| damaged())?,
            contact,
        })
    }

    /// The public half as browsers take it: the uncompressed point in base64url.
    pub fn public(&self) -> String {
        BASE64URL_NOPAD.encode(self.pair.public_key().as_ref())
    }

    /// What tells the push service at `origin` who sends.
    pub(super) fn authorization(&self, origin: &str, now: Timestamp) -> String {
        let expires = now.as_millis() / 1000 + TOKEN_SECONDS;
        let mut claims = json!({ "aud": origin, "exp": expires });
        if let Some(contact) = &self.contact {
            claims["sub"] = json!(contact);
        }
        let header = json!({ "typ": "JWT", "alg": "ES256" });
        let encode = |part: String| BASE64URL_NOPAD.encode(part.as_bytes());
        let signed = format!(
            "{}.{}",
            encode(header.to_string()),
            encode(claims.to_string())
        );
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes());
        let signature = signature.expect("the kernel's random source always answers");
        let signature = BASE64URL_NOPAD.encode(signature.as_ref());
        format!("vapid t={signed}.{signature}, k={}", self.public())
    }
}

/// Reads the key, if nobody else can.
fn read_private(path: &Path) -> io::Result<String> {
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & 0o077 != 0 {
        let advice = format!(
            "others may read or write it; run `chmod 600 {}`",
            path.display()
        );
        return Err(io::Error::other(advice));
    }
    fs::read_to_string(path)
}

/// Makes a key. Its file is there with all of its content, or not at all.
fn create(path: &Path) -> io::Result<String> {
    let pkcs8 =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
    let pkcs8 = pkcs8.map_err(|_| io::Error::other("no key could be made"))?;
    let text = BASE64.encode(pkcs8.as_ref()) + "\n";
    let unfinished = path.with_extension("key.new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
    use serde_json::Value;

    use super::*;

    async fn load(directory: &Path) -> Result<VapidKey, VapidKeyError> {
        VapidKey::load_or_create(directory, Some("mailto:ops@example.com".to_owned())).await
    }

    #[tokio::test]
    async fn the_key_is_made_once_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let first = load(directory.path()).await.unwrap().public();
        assert_eq!(load(directory.path()).await.unwrap().public(), first);
        let path = directory.path().join(KEY_FILE);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let names = fs::read_dir(directory.path()).unwrap();
        assert_eq!(names.count(), 1, "nothing else is left");
        let other = tempfile::tempdir().unwrap();
        assert_ne!(load(other.path()).await.unwrap().public(), first);
    }

    #[tokio::test]
    async fn a_key_that_others_can_read_or_that_is_damaged_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        load(directory.path()).await.unwrap();
        let path = directory.path().join(KEY_FILE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = load(directory.path()).await.err().unwrap().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "x").unwrap();
        let refused = load(directory.path()).await.err().unwrap().to_string();
        assert!(refused.contains("it is damaged"), "{refused}");
    }

    #[tokio::test]
    async fn a_token_names_the_push_service_and_is_signed() {
        let directory = tempfile::tempdir().unwrap();
        let key = load(directory.path()).await.unwrap();
        let now = Timestamp::from_millis(1_000_000_500);
        let header = key.authorization("https://push.example.com", now);
        let token = header.strip_prefix("vapid t=").unwrap();
        let (token, public) = token.split_once(", k=").unwrap();
        assert_eq!(public, key.public());
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let decode = |text: &str| BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, decode(public))
            .verify(signed.as_bytes(), &decode(signature))
            .unwrap();
        let parts: Vec<Value> = signed
            .split('.')
            .map(|part| serde_json::from_slice(&decode(part)).unwrap())
            .collect();
        assert_eq!(
            parts,
            [
                json!({ "typ": "JWT", "alg": "ES256" }),
                json!({
                    "aud": "https://push.example.com", "exp": 1_043_200,
                    "sub": "mailto:ops@example.com",
                }),
            ]
        );
    }
}
