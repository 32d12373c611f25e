//! Exports logs as JSON lines that can be verified without the store.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{BufRead, Read, Write};
use std::mem;
use std::path::Path;

use bytes::Bytes;
use pvp_protocol::{SessionId, Timestamp, hex};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::audit::{AuditError, AuditReport, KeySource, LogItem, SessionReport, for_each_log_item};
use super::verifier::LogVerifier;
use super::{Checkpoint, LogRecord, PublicKey, keys};

/// The most bytes in a line; an export never contains a longer one.
const MAX_LINE_BYTES: u64 = 32 * 1024 * 1024;

const EXPORT_FORMAT: u64 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportHeader<'a> {
    pvp_export: u64,
    key: Cow<'a, str>,
}

#[derive(Serialize)]
struct RecordLine<'a> {
    session: &'a SessionId,
    seq: u64,
    hash: String,
    meta: Option<&'a RawValue>,
    entry: &'a RawValue,
}

#[derive(Serialize)]
struct CheckpointLine<'a> {
    checkpoint: CheckpointFields<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckpointFields<'a> {
    /// The session that the checkpoint belongs to.
    session: Cow<'a, SessionId>,
    /// The sequence number of the last entry that it covers.
    seq: u64,
    /// The hash of that entry, in hex.
    hash: Cow<'a, str>,
    /// When it was signed.
    at: Timestamp,
    /// The public key of the signer, in hex.
    key: Cow<'a, str>,
    /// The Ed25519 signature, in hex.
    signature: Cow<'a, str>,
}

/// Either kind of line. An untagged enum would not keep the exact bytes of `meta` and `entry`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportLine<'a> {
    /// The entry's session; `None` for a checkpoint.
    session: Option<SessionId>,
    /// The entry's sequence number; `None` for a checkpoint.
    seq: Option<u64>,
    /// The entry's hash, in hex; `None` for a checkpoint.
    hash: Option<String>,
    /// The entry's metadata; `None` if it is empty, and for a checkpoint.
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    /// The entry's envelope; `None` for a checkpoint.
    #[serde(borrow)]
    entry: Option<&'a RawValue>,
    /// The checkpoint; `None` for an entry.
    #[serde(borrow)]
    checkpoint: Option<CheckpointFields<'a>>,
}

/// Writes the log of one session, or of all, as JSON lines. A running server may be using the
/// directory.
pub fn export(dir: &Path, only: Option<&SessionId>, out: &mut dyn Write) -> Result<(), AuditError> {
    let header = ExportHeader {
        pvp_export: EXPORT_FORMAT,
        key: hex::encode(&keys::read_public(dir)?).into(),
    };
    write_line(out, &header)?;
    for_each_log_item(dir, only, &mut |session, item| match item {
        LogItem::Record(record) => write_record(out, session, &record),
        LogItem::Checkpoint(checkpoint) => write_line(out, &checkpoint_line(session, &checkpoint)),
    })?;
    Ok(out.flush()?)
}

/// Verifies an export, holding one line in memory at a time.
pub fn verify_export(
    input: &mut dyn BufRead,
    pinned: Option<&PublicKey>,
) -> Result<AuditReport, AuditError> {
    let mut lines = ExportReader::new(input);
    let header = lines.read_header()?;
    let (key, key_source) = match pinned {
        Some(key) => (*key, KeySource::Pinned),
        None => (header, KeySource::ExportHeader),
    };
    let mut sessions = SessionVerifiers::default();
    while let Some((session, item)) = lines.next_item()? {
        sessions
            .verifier_for(session, key)
            .map_err(|why| lines.line_error(why))?
            .verify_item(&item);
    }
    Ok(AuditReport {
        key,
        key_source,
        sessions: sessions.finish(),
    })
}

fn write_record(
    out: &mut dyn Write,
    session: &SessionId,
    record: &LogRecord,
) -> Result<(), AuditError> {
    let unfit = |why: &str| {
        let seq = record.seq;
        AuditError::Damaged(format!("session `{session}`, entry {seq}: {why}"))
    };
    let meta = match record.meta.is_empty() {
        true => None,
        false => Some(
            as_raw_json(&record.meta).ok_or_else(|| unfit("its meta is not one line of JSON"))?,
        ),
    };
    let entry =
        as_raw_json(&record.body).ok_or_else(|| unfit("its text is not one line of JSON"))?;
    let line = RecordLine {
        session,
        seq: record.seq,
        hash: hex::encode(&record.hash),
        meta,
        entry,
    };
    write_line(out, &line)
}

/// The bytes as JSON, if a line can carry them unchanged.
fn as_raw_json(bytes: &[u8]) -> Option<&RawValue> {
    let value: &RawValue = serde_json::from_slice(bytes).ok()?;
    (value.get().len() == bytes.len() && !bytes.contains(&b'\n')).then_some(value)
}

fn checkpoint_line<'a>(session: &'a SessionId, checkpoint: &Checkpoint) -> CheckpointLine<'a> {
    CheckpointLine {
        checkpoint: CheckpointFields {
            session: Cow::Borrowed(session),
            seq: checkpoint.seq,
            hash: hex::encode(&checkpoint.hash).into(),
            at: checkpoint.at,
            key: hex::encode(&checkpoint.key).into(),
            signature: hex::encode(&checkpoint.signature).into(),
        },
    }
}

fn write_line(out: &mut dyn Write, line: &impl Serialize) -> Result<(), AuditError> {
    serde_json::to_writer(&mut *out, line).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

struct ExportReader<'a> {
    input: &'a mut dyn BufRead,
    number: u64,
    line: Vec<u8>,
}

impl<'a> ExportReader<'a> {
    fn new(input: &'a mut dyn BufRead) -> Self {
        Self {
            input,
            number: 0,
            line: Vec::new(),
        }
    }

    /// Reads the next line into `self.line`; false at the end.
    fn advance(&mut self) -> Result<bool, AuditError> {
        self.line.clear();
        self.number += 1;
        let mut bounded = Read::take(&mut *self.input, MAX_LINE_BYTES + 1);
        let read = bounded.read_until(b'\n', &mut self.line)?;
        if read as u64 > MAX_LINE_BYTES {
            return Err(self.line_error("it is longer than 32 MiB".into()));
        }
        Ok(read > 0)
    }

    fn read_header(&mut self) -> Result<PublicKey, AuditError> {
        self.advance()?;
        let header: ExportHeader<'_> = serde_json::from_slice(&self.line)
            .map_err(|error| self.line_error(format!("this is not a PVP export: {error}")))?;
        if header.pvp_export != EXPORT_FORMAT {
            let found = header.pvp_export;
            return Err(self.line_error(format!(
                "export format {found}, this program knows {EXPORT_FORMAT}; upgrade this program"
            )));
        }
        hex::decode(&header.key).ok_or_else(|| self.line_error("`key` is not 64 hex digits".into()))
    }

    fn next_item(&mut self) -> Result<Option<(SessionId, LogItem)>, AuditError> {
        if !self.advance()? {
            return Ok(None);
        }
        parse_line(&self.line)
            .map(Some)
            .map_err(|why| self.line_error(why))
    }

    fn line_error(&self, why: String) -> AuditError {
        AuditError::Line {
            line: self.number,
            why,
        }
    }
}

fn parse_line(line: &[u8]) -> Result<(SessionId, LogItem), String> {
    let line: ExportLine<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match line {
        ExportLine {
            session: None,
            seq: None,
            hash: None,
            meta: None,
            entry: None,
            checkpoint: Some(fields),
        } => parse_checkpoint(fields),
        ExportLine {
            session: Some(session),
            seq: Some(seq),
            hash: Some(hash),
            meta,
            entry: Some(entry),
            checkpoint: None,
        } => {
            let bytes = |value: &RawValue| Bytes::copy_from_slice(value.get().as_bytes());
            let record = LogRecord {
                seq,
                meta: meta.map(bytes).unwrap_or_default(),
                body: bytes(entry),
                hash: hex::decode(&hash).ok_or("`hash` is not 64 hex digits")?,
            };
            Ok((session, LogItem::Record(record)))
        }
        ExportLine { .. } => Err("it is neither an entry nor a checkpoint".into()),
    }
}

fn parse_checkpoint(fields: CheckpointFields<'_>) -> Result<(SessionId, LogItem), String> {
    let checkpoint = Checkpoint {
        seq: fields.seq,
        hash: hex::decode(&fields.hash).ok_or("`hash` is not 64 hex digits")?,
        at: fields.at,
        key: hex::decode(&fields.key).ok_or("`key` is not 64 hex digits")?,
        signature: hex::decode(&fields.signature).ok_or("`signature` is not 128 hex digits")?,
    };
    Ok((fields.session.into_owned(), LogItem::Checkpoint(checkpoint)))
}

/// Verifies the sessions of an export one at a time, in the order of the file.
#[derive(Default)]
struct SessionVerifiers {
    current: Option<LogVerifier>,
    seen: BTreeSet<SessionId>,
    finished: Vec<SessionReport>,
}

impl SessionVerifiers {
    fn verifier_for(
        &mut self,
        session: SessionId,
        key: PublicKey,
    ) -> Result<&mut LogVerifier, String> {
        if self.current.as_ref().map(LogVerifier::session) != Some(&session) {
            self.end_current();
            if !self.seen.insert(session.clone()) {
                return Err(format!("session `{session}` begins a second time"));
            }
        }
        Ok(self
            .current
            .get_or_insert_with(|| LogVerifier::new(session, key)))
    }

    fn end_current(&mut self) {
        let ended = self.current.take().map(|verifier| verifier.finish(None));
        self.finished.extend(ended);
    }

    fn finish(mut self) -> Vec<SessionReport> {
        self.end_current();
        mem::take(&mut self.finished)
    }
}
