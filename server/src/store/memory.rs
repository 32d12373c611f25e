//! A store in memory, with faults that tests inject.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use ed25519_dalek::SigningKey;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use pvp_protocol::{Digest, MessageId, SessionId, Timestamp};
use pvp_session::{IndexChange, IndexedChunk, ProposalRecord};
use tokio::sync::oneshot;

use super::audit::Anchor;
use super::checkpoint::snapshot_hash;
use super::memory_notifications::MemoryNotifications;
use super::output_slice::find_slice;
use super::{
    AnchorRow, AppendError, AppendRequest, CHECKPOINT_EVERY, Checkpoint, CheckpointTiming, Hash,
    JoinCodeRow, LogEnd, LogHead, LogRecord, LogSnapshot, LogState, MadeSessions, OutputQuery,
    OutputSlice, ReadLimit, ServerIdentity, SessionDeletion, SessionFilter, SessionIndex,
    SessionSummary, Store, StoreError, StoreResult, TokenRow, Tombstone, chain,
};

/// What goes wrong with an append.
pub(crate) enum AppendFault {
    /// Somebody else has appended this before; the append then conflicts.
    OvertakenBy(Vec<LogRecord>),
    /// Nothing is written.
    Fail,
    /// It is written, but the caller does not learn it.
    LoseAcknowledgement,
    /// It is not written, but the caller does not learn it.
    LoseRequest,
    /// It is written when the sender says so.
    Delay(oneshot::Receiver<()>),
    /// It fails when the sender says so.
    FailLater(oneshot::Receiver<()>),
}

/// A store in memory. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct MemoryStore(Arc<Mutex<MemoryState>>);

#[derive(Default)]
struct MemoryState {
    /// Every session, oldest first.
    logs: Vec<MemoryLog>,
    /// What remains of deleted sessions.
    tombstones: Vec<Tombstone>,
    /// Every token, by id.
    tokens: BTreeMap<String, TokenRow>,
    /// Every join code, by id.
    join_codes: BTreeMap<String, JoinCodeRow>,
    /// Channels and what belongs to them.
    notifications: MemoryNotifications,
    /// What goes wrong with the next appends.
    append_faults: VecDeque<AppendFault>,
    /// Why reading fails, while it does.
    read_fault: Option<String>,
    /// How many records were read.
    records_read: u64,
    /// Whether the store was closed.
    closed: bool,
}

struct MemoryLog {
    /// The session.
    session: SessionId,
    /// When it was created.
    created_at: Timestamp,
    /// When it was last appended to.
    updated_at: Timestamp,
    /// What can be looked up about it.
    index: SessionIndex,
    /// Its entries.
    records: Vec<LogRecord>,
    /// The signatures over them.
    checkpoints: Vec<Checkpoint>,
    /// Its closed proposals, by sequence number.
    proposals: BTreeMap<u64, ProposalRecord>,
    /// The chunks of output, by run, stream and number.
    outputs: BTreeMap<(u64, &'static str, u64), IndexedChunk>,
    /// The long texts that its messages refer to, by hash.
    contents: BTreeMap<Digest, String>,
    /// Its snapshots, oldest first.
    snapshots: Vec<LogSnapshot>,
    /// Where it ended before its last entry was removed.
    cut_head: Option<LogHead>,
}

impl MemoryLog {
    fn head(&self) -> LogHead {
        if let Some(head) = self.cut_head {
            return head;
        }
        let last = self.records.last();
        last.map_or_else(|| LogHead::empty(&self.session), LogRecord::head)
    }

    fn end(&self) -> LogEnd {
        let last = self.checkpoints.last();
        LogEnd {
            head: self.head(),
            signed: last.map_or_else(|| LogHead::empty(&self.session), Checkpoint::head),
        }
    }
}

impl MemoryStore {
    /// Makes the next append that has no fault yet go wrong.
    pub(crate) fn inject(&self, fault: AppendFault) {
        self.0.lock().append_faults.push_back(fault);
    }

    /// Makes the next append fail, but only when the returned sender is used or dropped.
    pub(crate) fn fail_next_append_later(&self) -> oneshot::Sender<()> {
        let (release, released) = oneshot::channel();
        self.inject(AppendFault::FailLater(released));
        release
    }

    /// Makes the next append wait until the returned sender is used or dropped.
    pub(crate) fn delay_next_append(&self) -> oneshot::Sender<()> {
        let (release, released) = oneshot::channel();
        self.inject(AppendFault::Delay(released));
        release
    }

    /// Makes all reads fail, or work again.
    pub(crate) fn set_read_fault(&self, why: Option<&str>) {
        self.0.lock().read_fault = why.map(str::to_owned);
    }

    /// How many records were read so far.
    pub(crate) fn records_read(&self) -> u64 {
        self.0.lock().records_read
    }

    /// Replaces the newest snapshot of a session by this text, without signing it.
    pub(crate) fn forge_snapshot(&self, session: &SessionId, body: impl Into<Bytes>) {
        let mut state = self.0.lock();
        let log = state.logs.iter_mut().find(|log| log.session == *session);
        let newest = log.and_then(|log| log.snapshots.last_mut());
        newest.expect("there is a snapshot").body = body.into();
    }

    /// Removes the last entry, but not what else says that it was there.
    pub(crate) fn cut_last_entry(&self, session: &SessionId) {
        let mut state = self.0.lock();
        let log = state.logs.iter_mut().find(|log| log.session == *session);
        let log = log.expect("there is such a log");
        log.cut_head = Some(log.head());
        log.records.pop();
    }

    /// Changes a byte of an entry.
    pub(crate) fn damage(&self, session: &SessionId, seq: u64) {
        let mut state = self.0.lock();
        let log = state.logs.iter_mut().find(|log| log.session == *session);
        let records = log.into_iter().flat_map(|log| &mut log.records);
        for record in records.filter(|record| record.seq == seq) {
            let mut body = record.body.to_vec();
            body[0] ^= 1;
            record.body = body.into();
        }
    }

    /// The log of a session.
    pub(crate) fn log(&self, session: &SessionId) -> Vec<LogRecord> {
        let state = self.0.lock();
        let log = state.find(session);
        log.map_or_else(Vec::new, |log| log.records.clone())
    }

    /// The checkpoints of a session.
    pub(crate) fn checkpoints(&self, session: &SessionId) -> Vec<Checkpoint> {
        let state = self.0.lock();
        let log = state.find(session);
        log.map_or_else(Vec::new, |log| log.checkpoints.clone())
    }

    fn read_state<T>(&self, read: impl FnOnce(&mut MemoryState) -> T) -> Result<T, StoreError> {
        let mut state = self.0.lock();
        match &state.read_fault {
            Some(why) => Err(StoreError::Failed(why.clone())),
            None => Ok(read(&mut state)),
        }
    }

    pub(super) fn with_notifications<'a, T: Send + 'a>(
        &self,
        run: impl FnOnce(&mut MemoryNotifications) -> T,
    ) -> StoreResult<'a, T> {
        self.ready(|state| run(&mut state.notifications))
    }

    fn ready<'a, T: Send + 'a>(
        &self,
        read: impl FnOnce(&mut MemoryState) -> T,
    ) -> StoreResult<'a, T> {
        let result = self.read_state(read);
        Box::pin(std::future::ready(result))
    }
}

impl MemoryState {
    fn find(&self, session: &SessionId) -> Option<&MemoryLog> {
        self.logs.iter().find(|log| log.session == *session)
    }

    fn append(&mut self, append: &AppendRequest) -> Result<(), AppendError> {
        if self.closed {
            return Err(AppendError::Unwritable("the store is closed".into()));
        }
        let position = self
            .logs
            .iter()
            .position(|log| log.session == append.session);
        let found = position.map_or_else(
            || LogHead::empty(&append.session),
            |position| self.logs[position].head(),
        );
        if found != append.prev {
            let expected = append.prev;
            return Err(AppendError::Conflict { expected, found });
        }
        let head = chain::verify_append(append)?;
        let position = position.unwrap_or_else(|| {
            self.logs.push(MemoryLog {
                session: append.session.clone(),
                created_at: append.at,
                updated_at: append.at,
                index: SessionIndex::default(),
                records: Vec::new(),
                checkpoints: Vec::new(),
                proposals: BTreeMap::new(),
                outputs: BTreeMap::new(),
                contents: BTreeMap::new(),
                snapshots: Vec::new(),
                cut_head: None,
            });
            self.logs.len() - 1
        });
        let log = &mut self.logs[position];
        log.records.extend(append.records.iter().cloned());
        if !append.records.is_empty() {
            log.updated_at = append.at;
        }
        if let Some(index) = &append.index {
            let made_by = log.index.made_by.take();
            log.index = index.clone();
            log.index.made_by = made_by.or(log.index.made_by.take());
        }
        for change in append.index_changes.iter().cloned() {
            match change {
                IndexChange::Closed(proposal) => {
                    log.proposals.insert(proposal.seqs.proposed, proposal);
                }
                IndexChange::Output(chunk) => {
                    let key = (chunk.run, chunk.stream.as_str(), chunk.number());
                    log.outputs.insert(key, chunk);
                }
            }
        }
        if let Some(snapshot) = &append.snapshot {
            log.checkpoints
                .retain(|checkpoint| checkpoint.seq != snapshot.head.seq);
            let hash = Some(snapshot_hash(&snapshot.body));
            log.checkpoints
                .push(sign(&log.session, snapshot.head, append.at, hash));
            log.snapshots.push(snapshot.clone());
        }
        let covered = log.checkpoints.last().map_or(0, |last| last.seq);
        let requested = log.index.ended || append.checkpoint == CheckpointTiming::Now;
        let uncovered = head.seq - covered;
        let due = uncovered >= CHECKPOINT_EVERY && !append.records.is_empty();
        if due || (requested && uncovered > 0) {
            log.checkpoints
                .push(sign(&log.session, head, append.at, None));
        }
        Ok(())
    }

    fn overtake(&mut self, session: &SessionId, records: Vec<LogRecord>) {
        let log = self.logs.iter_mut().find(|log| log.session == *session);
        if let Some(log) = log {
            log.records.extend(records);
            let head = log.head();
            log.checkpoints
                .push(sign(&log.session, head, Timestamp::default(), None));
        }
    }
}

fn sign(session: &SessionId, head: LogHead, at: Timestamp, snapshot: Option<Hash>) -> Checkpoint {
    Checkpoint::sign(
        &SigningKey::from_bytes(&[5; 32]),
        session,
        head,
        at,
        snapshot,
    )
}

impl Store for MemoryStore {
    fn append(&self, append: Arc<AppendRequest>) -> BoxFuture<'static, Result<(), AppendError>> {
        let lost = || AppendError::Unknown("the answer was lost".to_owned());
        let mut state = self.0.lock();
        let result = match state.append_faults.pop_front() {
            None => state.append(&append),
            Some(AppendFault::OvertakenBy(records)) => {
                state.overtake(&append.session, records);
                state.append(&append)
            }
            Some(AppendFault::Fail) => Err(AppendError::Unwritable("the disk is full".into())),
            Some(AppendFault::LoseAcknowledgement) => state.append(&append).and(Err(lost())),
            Some(AppendFault::LoseRequest) => Err(lost()),
            Some(AppendFault::FailLater(released)) => {
                return Box::pin(async move {
                    let _ = released.await;
                    Err(AppendError::Unwritable("the disk is full".into()))
                });
            }
            Some(AppendFault::Delay(released)) => {
                let state = self.0.clone();
                // In a task of its own: it is written whether or not anyone still waits for it.
                let writing = tokio::spawn(async move {
                    // A dropped sender releases it too.
                    let _ = released.await;
                    state.lock().append(&append)
                });
                return Box::pin(async { writing.await.expect("nothing in it panics") });
            }
        };
        Box::pin(std::future::ready(result))
    }

    fn head<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<LogHead>> {
        self.ready(|state| state.find(session).map(MemoryLog::head))
    }

    fn log_end<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<LogEnd>> {
        self.ready(|state| state.find(session).map(MemoryLog::end))
    }

    fn checkpoint_up_to<'a>(
        &'a self,
        session: &'a SessionId,
        seq: u64,
    ) -> StoreResult<'a, Option<Checkpoint>> {
        self.ready(|state| {
            let mut checkpoints = state.find(session)?.checkpoints.iter().rev();
            checkpoints.find(|one| one.seq <= seq).cloned()
        })
    }

    fn open_log<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<LogState>> {
        self.ready(|state| {
            let log = state.find(session)?;
            let is_signed = |snapshot: &&LogSnapshot| {
                let mut checkpoints = log.checkpoints.iter();
                checkpoints.any(|checkpoint| checkpoint.covers(snapshot))
            };
            Some(LogState {
                end: log.end(),
                indexed: true,
                snapshot: log.snapshots.iter().rev().find(is_signed).cloned(),
                usage: log.index.usage,
            })
        })
    }

    fn closed_proposals<'a>(
        &'a self,
        session: &'a SessionId,
        before: u64,
        limit: usize,
    ) -> StoreResult<'a, Vec<ProposalRecord>> {
        self.ready(|state| {
            let Some(log) = state.find(session) else {
                return Vec::new();
            };
            let earlier = log.proposals.range(..before).rev().take(limit);
            earlier.map(|(_, proposal)| proposal.clone()).collect()
        })
    }

    fn find_closed_proposal<'a>(
        &'a self,
        session: &'a SessionId,
        name: &'a MessageId,
    ) -> StoreResult<'a, Option<ProposalRecord>> {
        self.ready(|state| {
            let newest = || {
                state
                    .find(session)
                    .into_iter()
                    .flat_map(|log| log.proposals.values().rev())
            };
            let by_id = newest().find(|proposal| proposal.id == *name);
            let by_gate = || newest().find(|proposal| proposal.gate.as_ref() == Some(name));
            by_id.or_else(by_gate).cloned()
        })
    }

    fn closed_proposals_named<'a>(
        &'a self,
        session: Option<&'a SessionId>,
        text: &'a str,
        limit: usize,
    ) -> StoreResult<'a, Vec<(SessionId, ProposalRecord)>> {
        self.ready(|state| {
            let logs = state.logs.iter();
            let wanted = logs.filter(|log| session.is_none_or(|session| *session == log.session));
            wanted
                .flat_map(|log| log.proposals.values().map(|it| (&log.session, it)))
                .filter(|(_, proposal)| proposal.is_named_by(text))
                .map(|(session, proposal)| (session.clone(), proposal.clone()))
                .take(limit)
                .collect()
        })
    }

    fn output_slice<'a>(
        &'a self,
        session: &'a SessionId,
        query: OutputQuery,
    ) -> StoreResult<'a, OutputSlice> {
        let slice = self.read_state(|state| {
            let log = state.find(session);
            let outputs = log.map(|log| &log.outputs);
            find_slice(&query, |stream, chunk| {
                let key = (query.run, stream.as_str(), chunk);
                Ok(outputs.and_then(|outputs| outputs.get(&key).cloned()))
            })
        });
        Box::pin(std::future::ready(slice.and_then(|slice| slice)))
    }

    fn read<'a>(
        &'a self,
        session: &'a SessionId,
        from: u64,
        limit: ReadLimit,
    ) -> StoreResult<'a, Vec<LogRecord>> {
        self.ready(|state| {
            let records = state.find(session).map_or(&[][..], |log| &log.records);
            let start = records.partition_point(|record| record.seq < from);
            let mut bytes = 0;
            let mut page: Vec<LogRecord> = Vec::new();
            for record in records[start..].iter().take(limit.records.max(1)) {
                bytes += record.meta.len() + record.body.len();
                if bytes > limit.bytes && !page.is_empty() {
                    break;
                }
                page.push(record.clone());
            }
            state.records_read += page.len() as u64;
            page
        })
    }

    fn read_each<'a>(
        &'a self,
        session: &'a SessionId,
        mut seqs: Vec<u64>,
    ) -> StoreResult<'a, Vec<LogRecord>> {
        seqs.sort_unstable();
        self.ready(|state| {
            let records = state.find(session).map_or(&[][..], |log| &log.records);
            let wanted = |record: &&LogRecord| seqs.binary_search(&record.seq).is_ok();
            let found: Vec<_> = records.iter().filter(wanted).cloned().collect();
            state.records_read += found.len() as u64;
            found
        })
    }

    fn list_sessions(
        &self,
        filter: SessionFilter,
        limit: usize,
    ) -> StoreResult<'_, Vec<SessionSummary>> {
        self.ready(|state| {
            let named = |id: &SessionId| state.logs.iter().position(|log| log.session == *id);
            let end = match &filter.before {
                Some(before) => named(before).unwrap_or(0),
                None => state.logs.len(),
            };
            let matches = |log: &&MemoryLog| {
                let session = filter.session.as_ref();
                session.is_none_or(|session| log.session == *session)
                    && filter.ended.is_none_or(|ended| log.index.ended == ended)
            };
            let logs = state.logs[..end].iter().rev().filter(matches).take(limit);
            logs.map(|log| SessionSummary {
                session: log.session.clone(),
                seq: log.head().seq,
                created_at: log.created_at,
                updated_at: log.updated_at,
                index: log.index.clone(),
            })
            .collect()
        })
    }

    fn sessions_with_open_gates(&self) -> StoreResult<'_, Vec<SessionId>> {
        self.ready(|state| {
            let gated = state.logs.iter().filter(|log| log.index.open_gates > 0);
            gated.map(|log| log.session.clone()).collect()
        })
    }

    fn count_sessions(&self) -> StoreResult<'_, u64> {
        self.ready(|state| state.logs.len() as u64)
    }

    fn sessions_made_by<'a>(&'a self, token: &'a str) -> StoreResult<'a, MadeSessions> {
        self.ready(|state| {
            let is_maker = |log: &&MemoryLog| log.index.made_by.as_deref() == Some(token);
            let made: Vec<_> = state.logs.iter().filter(is_maker).collect();
            MadeSessions {
                stored: made.len() as u64,
                open: made.iter().filter(|log| !log.index.ended).count() as u64,
            }
        })
    }

    fn due_sessions(&self, now: Timestamp, limit: usize) -> StoreResult<'_, Vec<SessionId>> {
        self.ready(|state| {
            let deadline = |log: &MemoryLog| log.index.next_deadline;
            let mut due: Vec<_> = state
                .logs
                .iter()
                .filter(|log| deadline(log).is_some_and(|deadline| deadline <= now))
                .collect();
            due.sort_by_key(|log| deadline(log));
            due.iter()
                .take(limit)
                .map(|log| log.session.clone())
                .collect()
        })
    }

    fn next_deadline(&self) -> StoreResult<'_, Option<Timestamp>> {
        self.ready(|state| {
            let deadlines = state.logs.iter().filter_map(|log| log.index.next_deadline);
            deadlines.min()
        })
    }

    fn ended_sessions(&self, before: Timestamp, limit: usize) -> StoreResult<'_, Vec<SessionId>> {
        self.ready(|state| {
            let is_old = |log: &&MemoryLog| log.index.ended && log.updated_at < before;
            let old = state.logs.iter().filter(is_old).take(limit);
            old.map(|log| log.session.clone()).collect()
        })
    }

    fn archive_session(&self, session: SessionId, to: PathBuf) -> StoreResult<'_, LogHead> {
        let why = "a store in memory writes no files".to_owned();
        let failed = StoreError::NotArchived { session, to, why };
        Box::pin(std::future::ready(Err(failed)))
    }

    fn delete_session(&self, deletion: SessionDeletion) -> StoreResult<'_, Tombstone> {
        let mut state = self.0.lock();
        let found = state.find(&deletion.session).map(MemoryLog::head);
        let result = match found == Some(deletion.head) {
            false => Err(StoreError::LogChanged(deletion.session)),
            true => {
                state.logs.retain(|log| log.session != deletion.session);
                let key = SigningKey::from_bytes(&[5; 32]);
                let tombstone = Tombstone::sign(&key, &deletion, Timestamp::default());
                state.tombstones.push(tombstone.clone());
                Ok(tombstone)
            }
        };
        Box::pin(std::future::ready(result))
    }

    fn find_tombstone<'a>(&'a self, session: &'a SessionId) -> StoreResult<'a, Option<Tombstone>> {
        self.ready(|state| {
            let mut tombstones = state.tombstones.iter();
            tombstones.find(|one| one.session == *session).cloned()
        })
    }

    fn anchors(&self, after: i64, limit: usize) -> StoreResult<'_, Vec<AnchorRow>> {
        self.ready(|state| {
            let rows = (1_i64..).zip(&state.logs);
            let rows = rows.filter(|(row, _)| *row > after).take(limit);
            rows.map(|(row, log)| AnchorRow {
                row,
                anchor: log.checkpoints.last().map(|last| Anchor {
                    session: log.session.clone(),
                    checkpoint: last.clone(),
                }),
            })
            .collect()
        })
    }

    fn identity(&self) -> ServerIdentity {
        ServerIdentity::default()
    }

    fn insert_token(&self, token: TokenRow) -> StoreResult<'_, ()> {
        let mut state = self.0.lock();
        let result = match state.tokens.contains_key(&token.id) {
            true => Err(StoreError::TokenExists(token.id)),
            false => {
                state.tokens.insert(token.id.clone(), token);
                Ok(())
            }
        };
        Box::pin(std::future::ready(result))
    }

    fn find_token<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<TokenRow>> {
        self.ready(|state| state.tokens.get(id).cloned())
    }

    fn revoke_token<'a>(&'a self, id: &'a str, at: Timestamp) -> StoreResult<'a, bool> {
        self.ready(|state| {
            let token = state.tokens.get_mut(id);
            let token = token.filter(|token| token.revoked_at.is_none());
            token.map(|token| token.revoked_at = Some(at)).is_some()
        })
    }

    fn list_tokens(&self) -> StoreResult<'_, Vec<TokenRow>> {
        self.ready(|state| state.tokens.values().cloned().collect())
    }

    fn count_ended_tokens(&self, now: Timestamp) -> StoreResult<'_, u64> {
        self.ready(|state| {
            let tokens = state.tokens.values();
            tokens.filter(|it| it.end_before(now).is_some()).count() as u64
        })
    }

    fn ended_tokens(&self, now: Timestamp) -> StoreResult<'_, BTreeSet<String>> {
        self.ready(|state| {
            let tokens = state.tokens.values();
            let ended = tokens.filter(|token| token.end_before(now).is_some());
            ended.map(|token| token.id.clone()).collect()
        })
    }

    fn last_written_at(&self) -> StoreResult<'_, Option<Timestamp>> {
        self.ready(|state| state.logs.iter().map(|log| log.updated_at).max())
    }

    fn count_tokens(&self) -> StoreResult<'_, u64> {
        self.ready(|state| state.tokens.len() as u64)
    }

    fn record_token_uses(&self, uses: Vec<(String, Timestamp)>) -> StoreResult<'_, ()> {
        self.ready(|state| {
            for (id, at) in uses {
                if let Some(token) = state.tokens.get_mut(&id) {
                    token.used_at = token.used_at.max(Some(at));
                }
            }
        })
    }

    fn keep_content<'a>(
        &'a self,
        session: &'a SessionId,
        content: String,
        limit: u64,
    ) -> StoreResult<'a, bool> {
        self.ready(|state| {
            let Some(log) = state.logs.iter_mut().find(|log| log.session == *session) else {
                return false;
            };
            let hash = Digest::of_content(content.as_bytes());
            let used: usize = log.contents.values().map(String::len).sum();
            let has_room = (used + content.len()) as u64 <= limit;
            if has_room {
                log.contents.insert(hash, content);
            }
            has_room || log.contents.contains_key(&hash)
        })
    }

    fn find_content<'a>(
        &'a self,
        session: &'a SessionId,
        hash: Digest,
    ) -> StoreResult<'a, Option<String>> {
        self.ready(|state| state.find(session)?.contents.get(&hash).cloned())
    }

    fn insert_join_code(
        &self,
        code: JoinCodeRow,
        limit: usize,
        forget_before: Timestamp,
    ) -> StoreResult<'_, bool> {
        self.ready(|state| {
            let codes = &mut state.join_codes;
            codes.retain(|_, code| code.expires_at >= forget_before);
            let now = code.created_at;
            let outstanding = codes.values().filter(|code| code.is_outstanding(now));
            let has_room = outstanding.count() < limit;
            if has_room {
                codes.insert(code.id.clone(), code);
            }
            has_room
        })
    }

    fn find_join_code<'a>(&'a self, id: &'a str) -> StoreResult<'a, Option<JoinCodeRow>> {
        self.ready(|state| state.join_codes.get(id).cloned())
    }

    fn outstanding_join_codes(&self, now: Timestamp) -> StoreResult<'_, Vec<JoinCodeRow>> {
        self.ready(|state| {
            let codes = state.join_codes.values();
            codes
                .filter(|code| code.is_outstanding(now))
                .cloned()
                .collect()
        })
    }

    fn redeem_join_code<'a>(
        &'a self,
        id: &'a str,
        token: TokenRow,
        at: Timestamp,
    ) -> StoreResult<'a, bool> {
        self.ready(|state| {
            let code = state.join_codes.get_mut(id);
            let Some(code) = code.filter(|code| code.is_outstanding(at)) else {
                return false;
            };
            (code.ended_at, code.token) = (Some(at), Some(token.id.clone()));
            state.tokens.insert(token.id.clone(), token);
            true
        })
    }

    fn revoke_join_code<'a>(&'a self, id: &'a str, at: Timestamp) -> StoreResult<'a, bool> {
        self.ready(|state| {
            let code = state.join_codes.get_mut(id);
            let code = code.filter(|code| code.is_outstanding(at));
            code.map(|code| code.ended_at = Some(at)).is_some()
        })
    }

    fn close(&self, at: Timestamp) -> StoreResult<'_, ()> {
        self.ready(|state| {
            state.closed = true;
            for log in &mut state.logs {
                let head = log.head();
                if log.checkpoints.last().map_or(0, |last| last.seq) < head.seq {
                    log.checkpoints.push(sign(&log.session, head, at, None));
                }
            }
        })
    }
}
