//! Remembers which session was last active and which commits git hooks reported, for the published
//! decision tracking of a server without login.
//!
//! All of it is bounded and kept in memory only: what happened in a session is read from its log,
//! and the link from a commit to a decision is in the repository itself.

mod log_facts;

use std::collections::VecDeque;

use parking_lot::Mutex;
use pvp_protocol::{SessionId, Timestamp};
use serde::Serialize;

pub(crate) use log_facts::{FactRange, LogFacts, read_facts, shortened};

/// How many reported commits are remembered.
const MAX_COMMITS: usize = 100;

/// For how many sessions it is remembered where their last commit was.
const MAX_MARKS: usize = 100;

/// The session that the published routes speak of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ActiveSession {
    /// Nothing has happened since the server started: the store knows which was the last.
    Unknown,
    /// A client said that its session has ended, and nothing has happened since.
    Ended,
    Session(SessionId),
}

/// A commit that a hook reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct ReportedCommit {
    /// The commit's hash.
    pub(crate) sha: String,
    /// When it was reported.
    pub(crate) timestamp: Timestamp,
    /// The first line of its message.
    pub(crate) message: String,
    /// The files it changes, as far as they were reported.
    pub(crate) files: Vec<String>,
    /// The session that was active then.
    pub(crate) session_id: Option<SessionId>,
    /// Whether a session was active, so that the hooks had something to write.
    pub(crate) had_pvp_metadata: bool,
    /// The names of those who were present.
    pub(crate) participants: Vec<String>,
    /// How many messages were logged since the commit before.
    pub(crate) message_count: u64,
}

/// Where the log of a session ended when its last commit was reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommitMark {
    pub(crate) seq: u64,
    pub(crate) sha: Option<String>,
}

/// What the published decision tracking remembers.
pub(crate) struct DecisionTracker {
    started_at: Timestamp,
    state: Mutex<TrackerState>,
}

struct TrackerState {
    active: ActiveSession,
    /// Newest first.
    commits: VecDeque<ReportedCommit>,
    commit_count: u64,
    /// Newest first.
    marks: VecDeque<(SessionId, CommitMark)>,
}

impl DecisionTracker {
    pub(crate) fn new(started_at: Timestamp) -> Self {
        Self {
            started_at,
            state: Mutex::new(TrackerState {
                active: ActiveSession::Unknown,
                commits: VecDeque::new(),
                commit_count: 0,
                marks: VecDeque::new(),
            }),
        }
    }

    pub(crate) fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub(crate) fn active(&self) -> ActiveSession {
        self.state.lock().active.clone()
    }

    /// Notes that somebody sent something to this session.
    pub(crate) fn record_activity(&self, session: &SessionId) {
        let mut state = self.state.lock();
        if !matches!(&state.active, ActiveSession::Session(active) if active == session) {
            state.active = ActiveSession::Session(session.clone());
        }
    }

    /// Notes that the active session has ended; `None` means whichever it is.
    pub(crate) fn record_end(&self, session: Option<&SessionId>) {
        let mut state = self.state.lock();
        let is_meant = match (&state.active, session) {
            (ActiveSession::Session(active), Some(session)) => active == session,
            (ActiveSession::Unknown | ActiveSession::Ended, Some(_)) => false,
            (_, None) => true,
        };
        if is_meant {
            state.active = ActiveSession::Ended;
        }
    }

    /// Where the session's last commit was.
    pub(crate) fn mark(&self, session: &SessionId) -> CommitMark {
        let state = self.state.lock();
        let mut marks = state.marks.iter();
        let found = marks.find(|(marked, _)| marked == session);
        found.map(|(_, mark)| mark.clone()).unwrap_or_default()
    }

    /// Counts from this entry of the session on, as if there had been a commit.
    pub(crate) fn set_mark(&self, session: &SessionId, mark: CommitMark) {
        let mut state = self.state.lock();
        state.marks.retain(|(marked, _)| marked != session);
        state.marks.push_front((session.clone(), mark));
        state.marks.truncate(MAX_MARKS);
    }

    pub(crate) fn add_commit(&self, commit: ReportedCommit) {
        let mut state = self.state.lock();
        state.commit_count += 1;
        state.commits.push_front(commit);
        state.commits.truncate(MAX_COMMITS);
    }

    /// The newest commits.
    pub(crate) fn commits(&self, limit: usize) -> Vec<ReportedCommit> {
        self.state
            .lock()
            .commits
            .iter()
            .take(limit)
            .cloned()
            .collect()
    }

    /// How many commits were reported since the server started.
    pub(crate) fn commit_count(&self) -> u64 {
        self.state.lock().commit_count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str) -> SessionId {
        SessionId::parse(id).unwrap()
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let tracker = DecisionTracker::new(Timestamp::default());
        for n in 0..250_u64 {
            let id = session(&format!("s{n}"));
            let sha = Some(format!("{n:040x}"));
            tracker.set_mark(&id, CommitMark { seq: n, sha });
            tracker.add_commit(ReportedCommit {
                sha: format!("{n:040x}"),
                timestamp: Timestamp::default(),
                message: String::new(),
                files: Vec::new(),
                session_id: Some(id),
                had_pvp_metadata: true,
                participants: Vec::new(),
                message_count: 0,
            });
        }
        assert_eq!(tracker.commits(usize::MAX).len(), MAX_COMMITS);
        assert_eq!(tracker.commits(1)[0].sha, format!("{:040x}", 249));
        assert_eq!(tracker.commit_count(), 250);
        assert_eq!(tracker.mark(&session("s249")).seq, 249);
        assert_eq!(tracker.mark(&session("s0")), CommitMark::default());
        assert_eq!(tracker.state.lock().marks.len(), MAX_MARKS);
    }

    #[test]
    fn the_session_that_was_active_last_is_spoken_of_until_it_ends() {
        let tracker = DecisionTracker::new(Timestamp::default());
        assert_eq!(tracker.active(), ActiveSession::Unknown);
        tracker.record_activity(&session("owl"));
        tracker.record_activity(&session("fox"));
        tracker.record_end(Some(&session("owl")));
        assert_eq!(tracker.active(), ActiveSession::Session(session("fox")));
        tracker.record_end(Some(&session("fox")));
        assert_eq!(tracker.active(), ActiveSession::Ended);
        tracker.record_activity(&session("owl"));
        tracker.record_end(None);
        assert_eq!(tracker.active(), ActiveSession::Ended);
    }
}
