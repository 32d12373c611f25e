//! Names the working directory that a session has for itself.

use pvp_protocol::{Digest, SessionId, hex};

/// How many bytes of the hash make up the name.
const NAME_BYTES: usize = 16;

/// The name of a session's directory: 32 hexadecimal digits of the SHA-256 of its id. The id itself,
/// which others choose, never becomes a path.
pub fn workspace_name(session: &SessionId) -> String {
    let digest = Digest::of_content(session.as_str().as_bytes());
    hex::encode(&digest.as_bytes()[..NAME_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_a_part_of_the_hash_whatever_the_id_is() {
        let name = |id: &str| workspace_name(&SessionId::parse(id).unwrap());
        // As `printf owl | sha256sum` prints it.
        assert_eq!(name("owl"), "10f7127b980b0b06ef157749f8a02cca");
        let longest = "a".repeat(128);
        let names: Vec<_> = ["owl", "Owl", "a..", "con", "a:b", "a.git", &longest]
            .map(name)
            .into();
        for (index, one) in names.iter().enumerate() {
            assert_eq!(one.len(), 32);
            assert!(one.bytes().all(|byte| byte.is_ascii_hexdigit()), "{one}");
            assert!(!names[..index].contains(one), "{one}");
        }
    }
}
