//! Builds deliveries from entries and from stored records.

use bytes::Bytes;
use pvp_protocol::ServerMessage;
use pvp_session::{Entry, EntryError, GrantNonce};

use crate::feed::Delivery;
use crate::secrets::SecretStore;
use crate::store::LogRecord;

/// The delivery of a durable entry.
pub(crate) fn from_entry(entry: &Entry, body: Bytes, secrets: &SecretStore) -> Delivery {
    let executor_copy = entry.grant_nonce.as_ref().map(|private| {
        (
            private.to.clone(),
            encode_executor_copy(entry, private, secrets),
        )
    });
    Delivery {
        seq: entry.seq(),
        body,
        audience: entry.audience.clone(),
        executor_copy,
        can_wait: matches!(entry.envelope.message, ServerMessage::Announce(_)),
    }
}

/// The delivery of a stored record. The body is parsed only if an executor gets its own copy.
pub(crate) fn from_record(
    record: &LogRecord,
    secrets: &SecretStore,
) -> Result<Delivery, EntryError> {
    let (audience, private, _) = Entry::decode_meta(&record.meta)?;
    if private.is_some() {
        let entry = Entry::decode(&record.meta, &record.body)?;
        return Ok(from_entry(&entry, record.body.clone(), secrets));
    }
    Ok(Delivery {
        seq: record.seq,
        body: record.body.clone(),
        audience,
        executor_copy: None,
        can_wait: false,
    })
}

/// The copy that the executor acts on: it has the nonce and the values of shared secrets.
fn encode_executor_copy(entry: &Entry, private: &GrantNonce, secrets: &SecretStore) -> Bytes {
    let mut envelope = entry.envelope.clone();
    if let ServerMessage::ToolExecute(execute) = &mut envelope.message {
        execute.grant.nonce = Some(private.nonce.clone());
        let names = &execute.grant.action.secrets;
        execute.grant.secret_env = secrets.environment_for(&private.to, names);
    }
    envelope.to_json().into()
}
