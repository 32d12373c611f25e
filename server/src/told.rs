//! From stored records to what each viewer is told.

use bytes::Bytes;
use pvp_protocol::ServerMessage;
use pvp_session::{Entry, EntryError, GrantNonce};

use crate::feed::Told;
use crate::store::Record;
use crate::vault::Vault;

/// A durable entry on its way to the viewers.
pub(crate) fn from_entry(entry: &Entry, body: Bytes, vault: &Vault) -> Told {
    let private = entry
        .private
        .as_ref()
        .map(|private| (private.to.clone(), executor_copy(entry, private, vault)));
    Told {
        seq: entry.seq(),
        body,
        audience: entry.audience.clone(),
        private,
    }
}

/// A stored record; its body is read only if someone gets another copy of it than the rest.
pub(crate) fn from_record(record: &Record, vault: &Vault) -> Result<Told, EntryError> {
    let (audience, private, _) = Entry::decode_meta(&record.meta)?;
    if private.is_some() {
        let entry = Entry::decode(&record.meta, &record.body)?;
        return Ok(from_entry(&entry, record.body.clone(), vault));
    }
    Ok(Told {
        seq: record.seq,
        body: record.body.clone(),
        audience,
        private: None,
    })
}

/// The copy that may be acted on: with the nonce and the values of shared secrets.
fn executor_copy(entry: &Entry, private: &GrantNonce, vault: &Vault) -> Bytes {
    let mut envelope = entry.envelope.clone();
    if let ServerMessage::ToolExecute(execute) = &mut envelope.message {
        execute.grant.nonce = Some(private.nonce.clone());
        execute.grant.secret_env = vault.environment(&private.to);
    }
    envelope.to_json().into()
}
