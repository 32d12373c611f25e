//! The history of a server's keys, in which each key is certified by the one before it.

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use pvp_protocol::{Timestamp, hex};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::keys::PublicKey;

const SIGNING_CONTEXT: &[u8] = b"pvp.key-rotation.v1\0";

/// One key of the history, a line of `server.keys`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyRecord {
    #[serde(with = "hex_bytes")]
    pub(super) key: PublicKey,
    /// When its range begins; `None` for the first key of a directory from an earlier build, which
    /// did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<Timestamp>,
    /// When it was retired; `None` for the current key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// `None` for the first key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<KeyCertificate>,
}

/// Two signatures over the key before, the key itself and the time of the rotation.
///
/// Without the second one, a thief of the retired key could certify the same rotation at a later
/// time and use the key until then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyCertificate {
    #[serde(with = "hex_bytes")]
    by_previous: [u8; 64],
    #[serde(with = "hex_bytes")]
    by_itself: [u8; 64],
}

impl KeyRecord {
    pub(super) fn first(key: PublicKey, from: Option<Timestamp>) -> Self {
        Self {
            key,
            from,
            until: None,
            certificate: None,
        }
    }

    /// What keeps this record from following `previous`, if anything.
    fn fault_after(&self, previous: &Self) -> Result<(), &'static str> {
        let (Some(certificate), Some(at)) = (&self.certificate, self.from) else {
            return Err("the key has no certificate of the key before it");
        };
        if previous.until != Some(at) || previous.from > Some(at) {
            return Err("its range does not begin where the range of the key before it ends");
        }
        let message = rotation_message(&previous.key, &self.key, at);
        if !is_signed(&previous.key, &message, &certificate.by_previous) {
            return Err("the key before it did not sign its certificate");
        }
        if !is_signed(&self.key, &message, &certificate.by_itself) {
            return Err("the key did not sign its own certificate");
        }
        Ok(())
    }
}

/// The keys of a server, oldest first, of which each certifies the next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct KeyHistory(Vec<KeyRecord>);

/// What is wrong with the keys that logs are verified with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyFinding {
    #[error("key {number} of the history: {why}")]
    History { number: usize, why: String },
    #[error("the history ends with a retired key; the keys after it are missing")]
    CutOff,
    #[error("the history does not end with the current key, {0}")]
    OtherCurrent(String),
    #[error(
        "the current key, {0}, is not one of the given keys, and no certificate leads from them to it"
    )]
    UnknownCurrent(String),
    #[error(
        "a rotation was not finished; start the server or run `pvp server rotate-key` again, then verify again"
    )]
    UnfinishedRotation,
}

impl KeyHistory {
    /// The history of a directory that never rotated its key.
    pub(super) fn single(key: PublicKey, from: Option<Timestamp>) -> Self {
        Self(vec![KeyRecord::first(key, from)])
    }

    /// Takes the records up to the first one that does not follow from those before it.
    pub(super) fn verify(records: &[Value], current: &PublicKey) -> (Self, Option<KeyFinding>) {
        let mut history = Self::default();
        for record in records {
            let pushed = KeyRecord::deserialize(record)
                .map_err(|error| error.to_string())
                .and_then(|record| Ok(history.push(record)?));
            if let Err(why) = pushed {
                let number = history.0.len() + 1;
                return (history, Some(KeyFinding::History { number, why }));
            }
        }
        let finding = match history.0.last() {
            Some(last) if last.until.is_some() => Some(KeyFinding::CutOff),
            Some(last) if last.key == *current => None,
            Some(_) | None => Some(KeyFinding::OtherCurrent(hex::encode(current))),
        };
        (history, finding)
    }

    fn push(&mut self, record: KeyRecord) -> Result<(), &'static str> {
        match self.0.last() {
            None if record.certificate.is_some() => {
                return Err("the key that signed its certificate is missing before it");
            }
            None => {}
            Some(_) if self.0.iter().any(|earlier| earlier.key == record.key) => {
                return Err("the same key was there before");
            }
            Some(previous) => record.fault_after(previous)?,
        }
        self.0.push(record);
        Ok(())
    }

    pub(super) fn records(&self) -> &[KeyRecord] {
        &self.0
    }

    /// This history with one more key. The time is not before that of the last rotation.
    pub(super) fn rotated(&self, old: &SigningKey, new: &SigningKey, at: Timestamp) -> Self {
        let mut records = self.0.clone();
        let at = match records.last_mut() {
            Some(last) => {
                let at = last.from.map_or(at, |from| from.max(at));
                last.until = Some(at);
                at
            }
            None => at,
        };
        let key = new.verifying_key().to_bytes();
        let message = rotation_message(&old.verifying_key().to_bytes(), &key, at);
        let certificate = KeyCertificate {
            by_previous: old.sign(&message).to_bytes(),
            by_itself: new.sign(&message).to_bytes(),
        };
        records.push(KeyRecord {
            key,
            from: Some(at),
            until: None,
            certificate: Some(certificate),
        });
        Self(records)
    }
}

fn rotation_message(old: &PublicKey, new: &PublicKey, at: Timestamp) -> Vec<u8> {
    [SIGNING_CONTEXT, old, new, &at.as_millis().to_le_bytes()].concat()
}

fn is_signed(key: &PublicKey, message: &[u8], signature: &[u8; 64]) -> bool {
    let signature = Signature::from_bytes(signature);
    VerifyingKey::from_bytes(key).is_ok_and(|key| key.verify_strict(message, &signature).is_ok())
}

/// Bytes as a string of hexadecimal digits.
mod hex_bytes {
    use pvp_protocol::hex;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(bytes))
    }

    pub(super) fn deserialize<'de, const N: usize, D: Deserializer<'de>>(
        from: D,
    ) -> Result<[u8; N], D::Error> {
        let text = String::deserialize(from)?;
        let digits = 2 * N;
        hex::decode(&text)
            .ok_or_else(|| D::Error::custom(format!("it has not {digits} hex digits")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_bytes(&[seed; 32])
    }

    fn public(seed: u8) -> PublicKey {
        key(seed).verifying_key().to_bytes()
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    /// Keys 1, 2 and 3, rotated at 100 and 200.
    fn three_keys() -> Vec<KeyRecord> {
        let history = KeyHistory::single(public(1), Some(at(50)));
        let history = history.rotated(&key(1), &key(2), at(100));
        history.rotated(&key(2), &key(3), at(200)).0
    }

    fn verify(records: Vec<KeyRecord>, current: u8) -> (usize, Option<KeyFinding>) {
        let records: Vec<_> = records
            .iter()
            .map(|record| serde_json::to_value(record).unwrap())
            .collect();
        let (history, finding) = KeyHistory::verify(&records, &public(current));
        (history.0.len(), finding)
    }

    #[test]
    fn every_edit_of_a_history_is_found() {
        assert_eq!(verify(three_keys(), 3), (3, None));
        let history = |number, why: &str| {
            let why = why.to_owned();
            Some(KeyFinding::History { number, why })
        };
        let range = "its range does not begin where the range of the key before it ends";
        let previous = "the key before it did not sign its certificate";
        let own = "the key did not sign its own certificate";
        let none = "the key has no certificate of the key before it";
        let cut = "the key that signed its certificate is missing before it";
        type RecordsEdit = fn(&mut Vec<KeyRecord>);
        let cases: [(&str, RecordsEdit, usize, Option<KeyFinding>); 14] = [
            (
                "a later retirement",
                |it| it[0].until = Some(at(150)),
                1,
                history(2, range),
            ),
            (
                "a later rotation",
                |it| (it[0].until, it[1].from) = (Some(at(150)), Some(at(150))),
                1,
                history(2, previous),
            ),
            (
                "no retirement",
                |it| it[1].until = None,
                2,
                history(3, range),
            ),
            (
                "a range that ends first",
                |it| it[0].from = Some(at(101)),
                1,
                history(2, range),
            ),
            (
                "no certificate",
                |it| it[1].certificate = None,
                1,
                history(2, none),
            ),
            (
                "swapped certificates",
                |it| {
                    let second = it[1].certificate.take();
                    it[1].certificate = it[2].certificate.take();
                    it[2].certificate = second;
                },
                1,
                history(2, previous),
            ),
            ("swapped keys", |it| it.swap(1, 2), 1, history(2, range)),
            ("a key removed", |it| _ = it.remove(1), 1, history(2, range)),
            (
                "the first removed",
                |it| _ = it.remove(0),
                0,
                history(1, cut),
            ),
            (
                "the last removed",
                |it| _ = it.pop(),
                2,
                Some(KeyFinding::CutOff),
            ),
            (
                "the last removed without a trace",
                |it| {
                    it.pop();
                    it[1].until = None;
                },
                2,
                Some(KeyFinding::OtherCurrent(hex::encode(&public(3)))),
            ),
            (
                "all removed",
                |it| it.clear(),
                0,
                Some(KeyFinding::OtherCurrent(hex::encode(&public(3)))),
            ),
            (
                "a stranger's key appended",
                |it| *it = KeyHistory(it.clone()).rotated(&key(9), &key(8), at(300)).0,
                3,
                history(4, previous),
            ),
            (
                "the same key again",
                |it| *it = KeyHistory(it.clone()).rotated(&key(3), &key(1), at(300)).0,
                3,
                history(4, "the same key was there before"),
            ),
        ];
        for (name, edit, length, finding) in cases {
            let mut records = three_keys();
            edit(&mut records);
            assert_eq!(verify(records, 3), (length, finding), "{name}");
        }
        // A thief of the retired key 1 moves its retirement, but key 2 does not sign that.
        let mut forged = three_keys();
        let late = KeyHistory::single(public(1), None)
            .rotated(&key(1), &key(2), at(150))
            .0;
        forged[0].until = Some(at(150));
        let own_signature = forged[1].certificate.clone().unwrap().by_itself;
        forged[1] = late[1].clone();
        forged[1].until = Some(at(200));
        forged[1].certificate.as_mut().unwrap().by_itself = own_signature;
        assert_eq!(verify(forged, 3), (1, history(2, own)));
    }

    #[test]
    fn a_rotation_is_never_dated_before_the_one_before_it() {
        let history = KeyHistory(three_keys()).rotated(&key(3), &key(4), at(10));
        assert_eq!(history.0[3].from, Some(at(200)));
        assert_eq!(verify(history.0, 4), (4, None));
    }

    #[test]
    fn a_record_survives_as_a_line_and_unknown_fields_are_refused() {
        for record in three_keys() {
            let line = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<KeyRecord>(&line).unwrap(), record);
            let more = line.replacen('{', r#"{"note":1,"#, 1);
            assert!(serde_json::from_str::<KeyRecord>(&more).is_err());
        }
    }
}
