//! Exports logs as JSON lines that can be verified without the store.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{BufRead, Read, Write};
use std::mem;
use std::path::Path;

use bytes::Bytes;
use pvp_protocol::api::SessionTombstone;
use pvp_protocol::{SessionId, Timestamp, hex};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::anchor::KnownHeads;
use super::audit::{
    AuditError, AuditReport, KeySource, LogItem, SessionReport, StatedKeys, TombstoneReport,
    for_each_log_item, read_tombstones,
};
use super::key_set::{KeyRange, KeySet};
use super::verifier::LogVerifier;
use super::{Checkpoint, LogRecord, Tombstone, keys};

/// The most bytes in a line; an export never contains a longer one.
const MAX_LINE_BYTES: u64 = 32 * 1024 * 1024;

/// The format with tombstones, which earlier builds do not read.
const TOMBSTONE_FORMAT: u64 = 3;

/// The format with a history of keys.
const EXPORT_FORMAT: u64 = 2;

/// The format that names only the current key, which earlier builds read too.
const SINGLE_KEY_FORMAT: u64 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportHeader<'a> {
    pvp_export: u64,
    /// The current key, in hex.
    key: Cow<'a, str>,
    /// The history of keys as the directory states it, oldest first; `None` if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keys: Option<Vec<Value>>,
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
struct TombstoneLine {
    tombstone: SessionTombstone,
}

#[derive(Serialize)]
struct CheckpointLine<'a> {
    checkpoint: CheckpointFields<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CheckpointFields<'a> {
    /// The session that the checkpoint belongs to.
    session: Cow<'a, SessionId>,
    /// The sequence number of the last entry that it covers.
    seq: u64,
    /// The hash of that entry, in hex.
    hash: Cow<'a, str>,
    /// When it was signed.
    at: Timestamp,
    /// The hash of the snapshot that it vouches for, in hex; left out if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<Cow<'a, str>>,
    /// The public key of the signer, in hex.
    key: Cow<'a, str>,
    /// The Ed25519 signature, in hex.
    signature: Cow<'a, str>,
}

impl<'a> CheckpointFields<'a> {
    pub(super) fn new(session: &'a SessionId, checkpoint: &Checkpoint) -> Self {
        Self {
            session: Cow::Borrowed(session),
            seq: checkpoint.seq,
            hash: hex::encode(&checkpoint.hash).into(),
            at: checkpoint.at,
            snapshot: checkpoint.snapshot.map(|hash| hex::encode(&hash).into()),
            key: hex::encode(&checkpoint.key).into(),
            signature: hex::encode(&checkpoint.signature).into(),
        }
    }

    pub(super) fn parse(self) -> Result<(SessionId, Checkpoint), String> {
        let snapshot = match &self.snapshot {
            Some(hash) => Some(hex::decode(hash).ok_or("`snapshot` is not 64 hex digits")?),
            None => None,
        };
        let checkpoint = Checkpoint {
            seq: self.seq,
            snapshot,
            hash: hex::decode(&self.hash).ok_or("`hash` is not 64 hex digits")?,
            at: self.at,
            key: hex::decode(&self.key).ok_or("`key` is not 64 hex digits")?,
            signature: hex::decode(&self.signature).ok_or("`signature` is not 128 hex digits")?,
        };
        Ok((self.session.into_owned(), checkpoint))
    }
}

/// Any kind of line. An untagged enum would not keep the exact bytes of `meta` and `entry`.
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
    /// The tombstone, on a line of its own.
    #[serde(default)]
    tombstone: Option<SessionTombstone>,
}

/// Writes the log of one session, or of all, as JSON lines. A running server may be using the
/// directory.
pub fn export(dir: &Path, only: Option<&SessionId>, out: &mut dyn Write) -> Result<(), AuditError> {
    let stated = keys::read_stated(dir)?;
    let tombstones = match only {
        None => read_tombstones(dir)?,
        Some(_) => Vec::new(),
    };
    let header = ExportHeader {
        pvp_export: match stated.records {
            _ if !tombstones.is_empty() => TOMBSTONE_FORMAT,
            Some(_) => EXPORT_FORMAT,
            None => SINGLE_KEY_FORMAT,
        },
        key: hex::encode(&stated.current).into(),
        keys: stated.records.clone(),
    };
    write_line(out, &header)?;
    for tombstone in &tombstones {
        let tombstone = tombstone.to_text();
        write_line(out, &TombstoneLine { tombstone })?;
    }
    for_each_log_item(dir, only, &mut |session, item| match item {
        LogItem::Record(record) => write_record(out, session, &record),
        LogItem::Checkpoint(checkpoint) => write_line(out, &checkpoint_line(session, &checkpoint)),
    })?;
    if keys::read_stated(dir)? != stated {
        return Err(AuditError::Rotated);
    }
    Ok(out.flush()?)
}

/// Verifies an export, holding one line in memory at a time. Without pinned keys, those that the
/// export states are trusted.
pub fn verify_export(
    input: &mut dyn BufRead,
    pins: &[KeyRange],
) -> Result<AuditReport, AuditError> {
    verify_export_since(input, pins, &KnownHeads::default())
}

/// As [`verify_export`], where the logs must contain these entries.
pub fn verify_export_since(
    input: &mut dyn BufRead,
    pins: &[KeyRange],
    known: &KnownHeads,
) -> Result<AuditReport, AuditError> {
    let mut lines = ExportReader::new(input);
    let stated = lines.read_header()?;
    let (keys, key_source, key_finding) = stated.trusted(pins, KeySource::ExportHeader)?;
    let mut sessions = SessionVerifiers::new(known);
    let mut tombstones = Vec::new();
    while let Some(item) = lines.next_item()? {
        match item {
            ExportItem::Log(session, item) => sessions
                .verifier_for(session, &keys)
                .map_err(|why| lines.line_error(why))?
                .verify_item(&item),
            ExportItem::Tombstone(tombstone) => {
                // What was deleted is accounted for by its tombstone.
                sessions.deleted.insert(tombstone.session.clone());
                tombstones.push(tombstone);
            }
        }
    }
    let sessions = sessions.finish();
    let tombstones = tombstones
        .into_iter()
        .map(|tombstone| TombstoneReport::new(tombstone, &keys, &sessions))
        .collect();
    Ok(AuditReport {
        keys,
        key_source,
        key_finding,
        sessions,
        tombstones,
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
        checkpoint: CheckpointFields::new(session, checkpoint),
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

    fn read_header(&mut self) -> Result<StatedKeys, AuditError> {
        self.advance()?;
        let header: ExportHeader<'_> = serde_json::from_slice(&self.line)
            .map_err(|error| self.line_error(format!("this is not a PVP export: {error}")))?;
        let found = header.pvp_export;
        if !(SINGLE_KEY_FORMAT..=TOMBSTONE_FORMAT).contains(&found) {
            return Err(self.line_error(format!(
                "export format {found}, this program knows up to {TOMBSTONE_FORMAT}; upgrade this program"
            )));
        }
        let current = hex::decode(&header.key)
            .ok_or_else(|| self.line_error("`key` is not 64 hex digits".into()))?;
        Ok(StatedKeys::new(current, header.keys))
    }

    fn next_item(&mut self) -> Result<Option<ExportItem>, AuditError> {
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

/// What one line of an export says.
enum ExportItem {
    Log(SessionId, LogItem),
    Tombstone(Tombstone),
}

fn parse_line(line: &[u8]) -> Result<ExportItem, String> {
    let line: ExportLine<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match line {
        ExportLine {
            session: None,
            seq: None,
            hash: None,
            meta: None,
            entry: None,
            checkpoint: Some(fields),
            tombstone: None,
        } => {
            let (session, checkpoint) = fields.parse()?;
            Ok(ExportItem::Log(session, LogItem::Checkpoint(checkpoint)))
        }
        ExportLine {
            session: None,
            seq: None,
            hash: None,
            meta: None,
            entry: None,
            checkpoint: None,
            tombstone: Some(text),
        } => Ok(ExportItem::Tombstone(Tombstone::from_text(text)?)),
        ExportLine {
            session: Some(session),
            seq: Some(seq),
            hash: Some(hash),
            meta,
            entry: Some(entry),
            checkpoint: None,
            tombstone: None,
        } => {
            let bytes = |value: &RawValue| Bytes::copy_from_slice(value.get().as_bytes());
            let record = LogRecord {
                seq,
                meta: meta.map(bytes).unwrap_or_default(),
                body: bytes(entry),
                hash: hex::decode(&hash).ok_or("`hash` is not 64 hex digits")?,
            };
            Ok(ExportItem::Log(session, LogItem::Record(record)))
        }
        ExportLine { .. } => Err("it is neither an entry nor a checkpoint nor a tombstone".into()),
    }
}

/// Verifies the sessions of an export one at a time, in the order of the file.
struct SessionVerifiers<'k> {
    known: &'k KnownHeads,
    current: Option<LogVerifier<'k>>,
    seen: BTreeSet<SessionId>,
    /// The sessions of the tombstones.
    deleted: BTreeSet<SessionId>,
    finished: Vec<SessionReport>,
}

impl<'k> SessionVerifiers<'k> {
    fn new(known: &'k KnownHeads) -> Self {
        Self {
            known,
            current: None,
            seen: BTreeSet::new(),
            deleted: BTreeSet::new(),
            finished: Vec::new(),
        }
    }

    fn verifier_for(
        &mut self,
        session: SessionId,
        keys: &'k KeySet,
    ) -> Result<&mut LogVerifier<'k>, String> {
        if self.current.as_ref().map(LogVerifier::session) != Some(&session) {
            self.end_current();
            if !self.seen.insert(session.clone()) {
                return Err(format!("session `{session}` begins a second time"));
            }
        }
        let known = self.known.of(&session);
        Ok(self
            .current
            .get_or_insert_with(|| LogVerifier::new(session, keys, known)))
    }

    fn end_current(&mut self) {
        let ended = self.current.take().map(|verifier| verifier.finish(None));
        self.finished.extend(ended);
    }

    fn finish(mut self) -> Vec<SessionReport> {
        self.end_current();
        let accounted_for = self.seen.union(&self.deleted).cloned().collect();
        self.finished
            .extend(self.known.missing_sessions(&accounted_for));
        mem::take(&mut self.finished)
    }
}
