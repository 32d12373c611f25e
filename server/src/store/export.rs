//! Logs as JSON lines that carry their own proof.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{BufRead, Read, Write};
use std::mem;
use std::path::Path;

use bytes::Bytes;
use pvp_protocol::{SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::audit::{AuditError, Item, KeySource, Report, SessionReport, visit};
use super::check::Check;
use super::{Checkpoint, PublicKey, Record, hex, keys, unhex};

/// A longer line was not written by us.
const MAX_LINE_BYTES: u64 = 32 * 1024 * 1024;

const FORMAT: u64 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
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
    checkpoint: SealFields<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SealFields<'a> {
    session: Cow<'a, SessionId>,
    seq: u64,
    hash: Cow<'a, str>,
    at: Timestamp,
    key: Cow<'a, str>,
    signature: Cow<'a, str>,
}

/// Either kind of line. An untagged enum would not keep the exact bytes of `meta` and `entry`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    session: Option<SessionId>,
    seq: Option<u64>,
    hash: Option<String>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    #[serde(borrow)]
    entry: Option<&'a RawValue>,
    #[serde(borrow)]
    checkpoint: Option<SealFields<'a>>,
}

/// Writes the logs of one session, or all, as JSON lines; a server may be running in the directory.
pub fn export(dir: &Path, only: Option<&SessionId>, out: &mut dyn Write) -> Result<(), AuditError> {
    let header = Header {
        pvp_export: FORMAT,
        key: hex(&keys::read_public(dir)?).into(),
    };
    write_line(out, &header)?;
    visit(dir, only, &mut |session, item| match item {
        Item::Record(record) => write_record(out, session, &record),
        Item::Checkpoint(checkpoint) => write_line(out, &checkpoint_line(session, &checkpoint)),
    })?;
    Ok(out.flush()?)
}

/// Verifies an export line by line, holding one line at a time.
pub fn verify_export(
    input: &mut dyn BufRead,
    pinned: Option<&PublicKey>,
) -> Result<Report, AuditError> {
    let mut lines = Lines::new(input);
    let header = lines.header()?;
    let (key, key_source) = match pinned {
        Some(key) => (*key, KeySource::Pinned),
        None => (header, KeySource::ExportHeader),
    };
    let mut sessions = Sessions::default();
    while let Some((session, item)) = lines.next_item()? {
        sessions
            .check(session, key)
            .map_err(|why| lines.bad(why))?
            .item(&item);
    }
    Ok(Report {
        key,
        key_source,
        sessions: sessions.finish(),
    })
}

fn write_record(
    out: &mut dyn Write,
    session: &SessionId,
    record: &Record,
) -> Result<(), AuditError> {
    let unfit = |why: &str| {
        let seq = record.seq;
        AuditError::Damaged(format!("session `{session}`, entry {seq}: {why}"))
    };
    let meta = match record.meta.is_empty() {
        true => None,
        false => Some(raw(&record.meta).ok_or_else(|| unfit("its meta is not one line of JSON"))?),
    };
    let entry = raw(&record.body).ok_or_else(|| unfit("its text is not one line of JSON"))?;
    let line = RecordLine {
        session,
        seq: record.seq,
        hash: hex(&record.hash),
        meta,
        entry,
    };
    write_line(out, &line)
}

/// Only JSON that a line can carry byte for byte.
fn raw(bytes: &[u8]) -> Option<&RawValue> {
    let value: &RawValue = serde_json::from_slice(bytes).ok()?;
    (value.get().len() == bytes.len() && !bytes.contains(&b'\n')).then_some(value)
}

fn checkpoint_line<'a>(session: &'a SessionId, checkpoint: &Checkpoint) -> CheckpointLine<'a> {
    CheckpointLine {
        checkpoint: SealFields {
            session: Cow::Borrowed(session),
            seq: checkpoint.seq,
            hash: hex(&checkpoint.hash).into(),
            at: checkpoint.at,
            key: hex(&checkpoint.key).into(),
            signature: hex(&checkpoint.signature).into(),
        },
    }
}

fn write_line(out: &mut dyn Write, line: &impl Serialize) -> Result<(), AuditError> {
    serde_json::to_writer(&mut *out, line).map_err(std::io::Error::from)?;
    Ok(out.write_all(b"\n")?)
}

struct Lines<'a> {
    input: &'a mut dyn BufRead,
    number: u64,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
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
            return Err(self.bad("it is longer than 32 MiB".into()));
        }
        Ok(read > 0)
    }

    fn header(&mut self) -> Result<PublicKey, AuditError> {
        self.advance()?;
        let header: Header<'_> = serde_json::from_slice(&self.line)
            .map_err(|error| self.bad(format!("this is not a PVP export: {error}")))?;
        if header.pvp_export != FORMAT {
            let found = header.pvp_export;
            return Err(self.bad(format!(
                "export format {found}, this program knows {FORMAT}; upgrade this program"
            )));
        }
        unhex(&header.key).ok_or_else(|| self.bad("`key` is not 64 hex digits".into()))
    }

    fn next_item(&mut self) -> Result<Option<(SessionId, Item)>, AuditError> {
        if !self.advance()? {
            return Ok(None);
        }
        parse(&self.line).map(Some).map_err(|why| self.bad(why))
    }

    fn bad(&self, why: String) -> AuditError {
        AuditError::Line {
            line: self.number,
            why,
        }
    }
}

fn parse(line: &[u8]) -> Result<(SessionId, Item), String> {
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    match line {
        Line {
            session: None,
            seq: None,
            hash: None,
            meta: None,
            entry: None,
            checkpoint: Some(fields),
        } => parse_checkpoint(fields),
        Line {
            session: Some(session),
            seq: Some(seq),
            hash: Some(hash),
            meta,
            entry: Some(entry),
            checkpoint: None,
        } => {
            let bytes = |value: &RawValue| Bytes::copy_from_slice(value.get().as_bytes());
            let record = Record {
                seq,
                meta: meta.map(bytes).unwrap_or_default(),
                body: bytes(entry),
                hash: unhex(&hash).ok_or("`hash` is not 64 hex digits")?,
            };
            Ok((session, Item::Record(record)))
        }
        Line { .. } => Err("it is neither an entry nor a checkpoint".into()),
    }
}

fn parse_checkpoint(fields: SealFields<'_>) -> Result<(SessionId, Item), String> {
    let checkpoint = Checkpoint {
        seq: fields.seq,
        hash: unhex(&fields.hash).ok_or("`hash` is not 64 hex digits")?,
        at: fields.at,
        key: unhex(&fields.key).ok_or("`key` is not 64 hex digits")?,
        signature: unhex(&fields.signature).ok_or("`signature` is not 128 hex digits")?,
    };
    Ok((fields.session.into_owned(), Item::Checkpoint(checkpoint)))
}

/// Sessions in the order of the file, one at a time.
#[derive(Default)]
struct Sessions {
    current: Option<Check>,
    seen: BTreeSet<SessionId>,
    finished: Vec<SessionReport>,
}

impl Sessions {
    fn check(&mut self, session: SessionId, key: PublicKey) -> Result<&mut Check, String> {
        if self.current.as_ref().map(Check::session) != Some(&session) {
            self.end_current();
            if !self.seen.insert(session.clone()) {
                return Err(format!("session `{session}` begins a second time"));
            }
        }
        Ok(self.current.get_or_insert_with(|| Check::new(session, key)))
    }

    fn end_current(&mut self) {
        let ended = self.current.take().map(|check| check.finish(None));
        self.finished.extend(ended);
    }

    fn finish(mut self) -> Vec<SessionReport> {
        self.end_current();
        mem::take(&mut self.finished)
    }
}
