//! Encrypts the content of a push message for one browser (RFC 8291, with RFC 8188 `aes128gcm`).

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::SystemRandom;

/// An uncompressed point on P-256.
pub(super) type PublicPoint = [u8; 65];

/// Bytes of one record; all of a message is in one.
const RECORD_BYTES: u32 = 4096;

/// The most bytes of content that fit in a message that every push service takes: 4096 bytes, of
/// which the header takes 86, the tag of the cipher 16 and the delimiter 1.
const MAX_PLAINTEXT_BYTES: usize = 3993;

/// Contents are padded to a multiple of this, so that their length says little about them.
const PADDING_BYTES: usize = 512;

/// What a browser gave to those who send to it.
pub(super) struct ReceiverKeys {
    pub(super) public: PublicPoint,
    pub(super) auth: [u8; 16],
}

/// Encrypts with a key pair and a salt of its own; `None` if the receiver's key is not a point on
/// the curve, or the content is too long.
pub(super) fn encrypt(receiver: &ReceiverKeys, plaintext: &[u8]) -> Option<Vec<u8>> {
    let random = SystemRandom::new();
    let private = EphemeralPrivateKey::generate(&ECDH_P256, &random).ok()?;
    let public = private.compute_public_key().ok()?;
    let sender: PublicPoint = public.as_ref().try_into().ok()?;
    let salt = pvp_clock::random_bytes::<16>();
    let peer = UnparsedPublicKey::new(&ECDH_P256, receiver.public);
    let sealed = agree_ephemeral(private, &peer, |secret| {
        seal(receiver, &sender, &salt, secret, &pad(plaintext)?)
    });
    sealed.ok()?
}

/// The content, the delimiter of the last record and zeros.
fn pad(plaintext: &[u8]) -> Option<Vec<u8>> {
    if plaintext.len() > MAX_PLAINTEXT_BYTES {
        return None;
    }
    let padded = (plaintext.len() + 1).next_multiple_of(PADDING_BYTES);
    let mut record = plaintext.to_vec();
    record.push(2);
    record.resize(padded.min(MAX_PLAINTEXT_BYTES + 1), 0);
    Some(record)
}

/// The header and the encrypted record, given the secret that both sides have agreed on.
fn seal(
    receiver: &ReceiverKeys,
    sender: &PublicPoint,
    salt: &[u8; 16],
    secret: &[u8],
    record: &[u8],
) -> Option<Vec<u8>> {
    let key_info = [b"WebPush: info\0", &receiver.public[..], sender];
    let input: [u8; 32] = expand(
        &Salt::new(HKDF_SHA256, &receiver.auth).extract(secret),
        &key_info,
    )?;
    let prk = Salt::new(HKDF_SHA256, salt).extract(&input);
    let key: [u8; 16] = expand(&prk, &[b"Content-Encoding: aes128gcm\0"])?;
    let nonce: [u8; 12] = expand(&prk, &[b"Content-Encoding: nonce\0"])?;
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?);
    let mut sealed = record.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(nonce, Aad::empty(), &mut sealed)
        .ok()?;
    let mut message = salt.to_vec();
    message.extend(RECORD_BYTES.to_be_bytes());
    message.push(65);
    message.extend(sender);
    message.extend(sealed);
    Some(message)
}

/// A length of output, as `ring` wants to be told it.
struct OutputLength(usize);

impl KeyType for OutputLength {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand<const N: usize>(prk: &Prk, info: &[&[u8]]) -> Option<[u8; N]> {
    let mut output = [0; N];
    let expanded = prk.expand(info, OutputLength(N)).ok()?;
    expanded.fill(&mut output).ok()?;
    Some(output)
}

#[cfg(test)]
mod tests {
    use data_encoding::BASE64URL_NOPAD;

    use super::*;

    fn decode<const N: usize>(text: &str) -> [u8; N] {
        let bytes = BASE64URL_NOPAD.decode(text.as_bytes()).unwrap();
        bytes.try_into().unwrap()
    }

    #[test]
    fn the_example_of_the_standard_is_encrypted_as_it_says() {
        // RFC 8291, section 5 and appendix A.
        let receiver = ReceiverKeys {
            public: decode(
                "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
            ),
            auth: decode("BTBZMqHH6r4Tts7J_aSIgg"),
        };
        let sender = decode(
            "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8",
        );
        let salt = decode("DGv6ra1nlYgDCS1FRnbzlw");
        let secret: [u8; 32] = decode("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs");
        let record = b"When I grow up, I want to be a watermelon\x02";
        let message = seal(&receiver, &sender, &salt, &secret, record).unwrap();
        assert_eq!(
            BASE64URL_NOPAD.encode(&message),
            "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml\
             mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT\
             pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
        );
    }

    #[test]
    fn a_message_fits_and_its_length_says_little() {
        let lengths = |content: usize| pad(&vec![b'x'; content]).map(|record| record.len());
        assert_eq!(lengths(0), Some(512));
        assert_eq!(lengths(511), Some(512));
        assert_eq!(lengths(512), Some(1024));
        assert_eq!(lengths(3993), Some(3994));
        assert_eq!(lengths(3994), None);
        assert_eq!(86 + 3994 + 16, 4096);
    }
}
