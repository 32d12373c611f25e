//! Short hashes that stand for ids where remembering whole ids would take too much memory.

use std::collections::BTreeSet;

use data_encoding::BASE64;
use pvp_protocol::{Digest, MessageId};
use serde::{Deserialize, Deserializer, Serializer, de};

/// 64 bits that stand for an id.
pub(crate) fn short_hash(id: &MessageId) -> u64 {
    truncate(&Digest::of(&[id.as_str().as_bytes()]))
}

/// The first 64 bits of a digest, or 1 if they are all 0, which stands for no digest.
pub(crate) fn truncate(digest: &Digest) -> u64 {
    read_u64(digest.as_bytes()).max(1)
}

/// Reads the first 8 bytes.
pub(crate) fn read_u64(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Writes a set of hashes as one string, in ascending order.
pub(crate) fn serialize<S: Serializer>(
    hashes: &BTreeSet<u64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect();
    serializer.serialize_str(&BASE64.encode(&bytes))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeSet<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let bytes = BASE64.decode(text.as_bytes()).map_err(de::Error::custom)?;
    let (hashes, rest) = bytes.as_chunks::<8>();
    if !rest.is_empty() {
        return Err(de::Error::custom("a hash has 8 bytes"));
    }
    Ok(hashes
        .iter()
        .map(|hash| u64::from_le_bytes(*hash))
        .collect())
}
