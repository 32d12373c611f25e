//! Anchors: what a log was at one time, kept where whoever can write the log cannot write.
//!
//! An anchor is the last checkpoint of a log. With it, an audit finds that the log was cut or
//! rewritten before that point, even if every signature that is left is good.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, Read};
use std::path::Path;

use pvp_protocol::{SessionId, hex};
use serde::{Deserialize, Serialize};

use super::audit::{AuditError, AuditFinding, EntryFault, SessionReport};
use super::export::CheckpointFields;
use super::keys;
use super::sqlite::{LogReader, StoredLog};
use super::{Checkpoint, LogHead, genesis_hash};

/// The most bytes in a line of a file of anchors; an anchor has about 500.
const MAX_LINE_BYTES: u64 = 4096;

/// The last checkpoint of a session's log at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    pub session: SessionId,
    pub checkpoint: Checkpoint,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnchorLine<'a> {
    #[serde(borrow)]
    anchor: CheckpointFields<'a>,
}

impl Anchor {
    /// The anchor as one line of JSON, without the line break.
    pub fn to_json(&self) -> String {
        let line = AnchorLine {
            anchor: CheckpointFields::new(&self.session, &self.checkpoint),
        };
        serde_json::to_string(&line).expect("its fields are strings and numbers")
    }

    fn parse(line: &[u8]) -> Result<Self, String> {
        let line: AnchorLine<'_> = serde_json::from_slice(line)
            .map_err(|error| format!("it is not an anchor: {error}"))?;
        let (session, checkpoint) = line.anchor.parse()?;
        match checkpoint.is_signed(&session) {
            true => Ok(Self {
                session,
                checkpoint,
            }),
            false => Err("the anchor has a false signature".to_owned()),
        }
    }
}

/// Entries that the logs must contain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownHeads(BTreeMap<SessionId, Vec<LogHead>>);

impl KnownHeads {
    pub fn insert(&mut self, session: SessionId, head: LogHead) {
        let heads = self.0.entry(session).or_default();
        if !heads.contains(&head) {
            heads.push(head);
        }
    }

    /// Adds the anchors of a file, one JSON line each. Returns how many there are.
    pub fn read_anchors(&mut self, input: &mut dyn BufRead) -> Result<u64, AuditError> {
        let (mut line, mut number, mut count) = (Vec::new(), 0, 0);
        loop {
            line.clear();
            number += 1;
            let mut bounded = Read::take(&mut *input, MAX_LINE_BYTES + 1);
            let read = bounded.read_until(b'\n', &mut line)? as u64;
            let bad = |why: String| AuditError::Line { line: number, why };
            if read == 0 {
                return Ok(count);
            }
            if read > MAX_LINE_BYTES {
                return Err(bad(format!("it is longer than {MAX_LINE_BYTES} bytes")));
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let anchor = Anchor::parse(&line).map_err(bad)?;
            self.insert(anchor.session, anchor.checkpoint.head());
            count += 1;
        }
    }

    /// What the log of a session must contain.
    pub(super) fn of(&self, session: &SessionId) -> &[LogHead] {
        self.0.get(session).map_or(&[], Vec::as_slice)
    }

    /// A finding for each session that is known and was not found.
    pub(super) fn missing_sessions<'a>(
        &'a self,
        found: &'a BTreeSet<SessionId>,
    ) -> impl Iterator<Item = SessionReport> + use<'a> {
        let missing = self
            .0
            .iter()
            .filter(|(session, _)| !found.contains(*session));
        missing.map(|(session, heads)| {
            let anchored = heads.iter().map(|head| head.seq).max().unwrap_or_default();
            SessionReport {
                session: session.clone(),
                entries: 0,
                head: genesis_hash(session),
                checkpoints: 0,
                checkpoint_seq: 0,
                finding: Some(AuditFinding {
                    session: session.clone(),
                    seq: 1,
                    fault: EntryFault::CutBeforeAnchor { anchored },
                }),
            }
        })
    }
}

/// Passes the anchor of one session, or of each, to `each`. A running server may be using the
/// directory. Fails at a log whose last checkpoint is not a good one of the current key; an anchor
/// does not say that the whole log is intact, which only an audit can.
pub fn for_each_anchor(
    dir: &Path,
    only: Option<&SessionId>,
    each: &mut dyn FnMut(Anchor) -> Result<(), AuditError>,
) -> Result<(), AuditError> {
    let current = keys::read_stated(dir)?.current;
    let reader = LogReader::open(dir)?;
    let mut found = false;
    reader.for_each_session(|log| {
        if only.is_some_and(|only| *only != log.session) {
            return Ok(());
        }
        found = true;
        let checkpoint = find_good_checkpoint(&reader, log)?;
        let checkpoint = checkpoint.filter(|checkpoint| checkpoint.key == current);
        let Some(checkpoint) = checkpoint else {
            let (session, key) = (&log.session, hex::encode(&current));
            return Err(AuditError::Damaged(format!(
                "the log of session `{session}` does not have a good last checkpoint of the key {key}; run `pvp audit verify`"
            )));
        };
        each(Anchor {
            session: log.session.clone(),
            checkpoint,
        })
    })?;
    match only {
        Some(only) if !found => Err(AuditError::NoSession(only.clone())),
        Some(_) | None => Ok(()),
    }
}

/// The last checkpoint of a log, if it is signed and of the entry that is there.
fn find_good_checkpoint(
    reader: &LogReader,
    log: &StoredLog,
) -> Result<Option<Checkpoint>, AuditError> {
    let Some(checkpoint) = reader.last_checkpoint(log)? else {
        return Ok(None);
    };
    let stored = reader.entry_hash(log, checkpoint.seq)?;
    let is_good = checkpoint.is_signed(&log.session) && stored == Some(checkpoint.hash);
    Ok(is_good.then_some(checkpoint))
}
