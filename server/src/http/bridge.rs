//! The published routes of decision tracking, which git hooks and the published panel ask without a
//! token: they exist on a server without login only.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::response::Json;
use axum::routing::{get, post};
use pvp_protocol::api::CommitContext;
use pvp_protocol::{JsonObject, Refusal, SessionId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::RefusalResponse;
use super::commit_context::SessionActivity;
use super::extractors::LenientBody;
use crate::decisions::{ActiveSession, CommitMark, ReportedCommit, shortened};
use crate::directory::SessionDirectory;
use crate::store::SessionFilter;

/// Commits in an answer unless the caller gives a number, and the most they may ask for.
const DEFAULT_COMMITS: usize = 20;
const MAX_COMMITS: usize = 100;

/// The most characters of a commit's message, and of a file's name, that are remembered.
const MAX_MESSAGE_CHARS: usize = 200;
const MAX_FILE_CHARS: usize = 200;

/// The most files of a commit that are remembered.
const MAX_FILES: usize = 50;

/// How many sessions are searched for the one that was active last, after a start.
const MAX_SEARCHED_SESSIONS: usize = 1000;

/// The names under which a client may report the hash of a commit.
const HASH_NAMES: [&str; 4] = ["commit_sha", "hash", "sha", "commit"];

/// The routes, without the prefix that they have on the server's own address.
pub(super) fn routes() -> Router<Arc<SessionDirectory>> {
    Router::new()
        .route("/commit-context", get(commit_context))
        .route("/extended-metadata", get(extended_metadata))
        .route("/status", get(status))
        .route("/commits", get(commits))
        .route("/commit-created", post(commit_created))
        .route("/session-started", post(session_started))
        .route("/session-ended", post(session_ended))
        .route("/message", post(message))
        .route("/reset", post(reset))
}

type Tracking = State<Arc<SessionDirectory>>;

async fn commit_context(
    State(directory): Tracking,
) -> Result<Json<CommitContext>, RefusalResponse> {
    let Some(active) = ActiveSessionFacts::read(&directory).await? else {
        return Ok(Json(CommitContext {
            session_id: None,
            last_commit: None,
            messages_since_last_commit: 0,
            active_participants: String::new(),
            decision_summary: None,
            tool_executions: String::new(),
            prompts_count: 0,
            approvals_count: 0,
        }));
    };
    Ok(Json(active.activity.published_context(active.mark.sha)))
}

async fn extended_metadata(State(directory): Tracking) -> Result<Json<Value>, RefusalResponse> {
    let Some(active) = ActiveSessionFacts::read(&directory).await? else {
        return Ok(Json(json!({
            "session_id": null, "session_name": null, "participants": [], "messages": [],
            "message_ids": [], "tools": [], "context_keys": [], "forks": [],
            "gates_processed": 0, "total_token_usage": 0, "last_commit_hash": null,
        })));
    };
    let (activity, facts) = (&active.activity, &active.activity.facts);
    let participants: Vec<_> = activity
        .people
        .iter()
        .map(|person| &person.announce)
        .map(|it| json!({ "id": it.id, "name": it.name, "type": it.kind, "roles": it.roles }))
        .collect();
    Ok(Json(json!({
        "session_id": active.session,
        "session_name": activity.name,
        "participants": participants,
        "messages": facts.summaries,
        "message_ids": facts.message_ids(),
        "tools": facts.tool_uses(),
        "context_keys": facts.context_keys(),
        "forks": [],
        "gates_processed": facts.gates,
        "total_token_usage": facts.tokens,
        "last_commit_hash": active.mark.sha,
    })))
}

/// What the tracking itself does.
#[derive(Serialize)]
struct TrackingStatus {
    /// It answers, so it runs.
    running: bool,
    /// Whether there is a session to speak of.
    session_active: bool,
    /// That session.
    session_id: Option<SessionId>,
    /// Since the server started.
    uptime_seconds: u64,
    /// Entries in the log of that session.
    messages_processed: u64,
    /// Commits that hooks reported since the server started.
    commits_tracked: u64,
}

async fn status(State(directory): Tracking) -> Result<Json<TrackingStatus>, RefusalResponse> {
    let session = active_session(&directory).await?;
    let head = match &session {
        Some(session) => directory.store.head(session).await.map_err(Refusal::from)?,
        None => None,
    };
    let tracker = &directory.decisions;
    let uptime_ms = pvp_clock::now().millis_since(tracker.started_at());
    Ok(Json(TrackingStatus {
        running: true,
        session_active: session.is_some(),
        session_id: session,
        uptime_seconds: uptime_ms / 1000,
        messages_processed: head.map_or(0, |head| head.seq),
        commits_tracked: tracker.commit_count(),
    }))
}

/// Published clients may send more than this.
#[derive(Deserialize)]
struct CommitsQuery {
    limit: Option<usize>,
}

async fn commits(
    State(directory): Tracking,
    query: Result<Query<CommitsQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Vec<ReportedCommit>>, RefusalResponse> {
    let Query(query) = query.map_err(|error| Refusal::Malformed(error.body_text()))?;
    let limit = query.limit.unwrap_or(DEFAULT_COMMITS).min(MAX_COMMITS);
    Ok(Json(directory.decisions.commits(limit)))
}

async fn commit_created(
    State(directory): Tracking,
    LenientBody(body): LenientBody,
) -> Result<Json<Value>, RefusalResponse> {
    let sha = reported_hash(&body)?;
    let active = ActiveSessionFacts::read(&directory).await?;
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let first_line = text("message").lines().next().unwrap_or_default();
    let commit = ReportedCommit {
        sha: sha.clone(),
        timestamp: pvp_clock::now(),
        message: shortened(first_line, MAX_MESSAGE_CHARS),
        files: reported_files(body.get("files")),
        session_id: active.as_ref().map(|active| active.session.clone()),
        had_pvp_metadata: active.is_some(),
        participants: active
            .as_ref()
            .map_or_else(Vec::new, |active| active.activity.present()),
        message_count: active
            .as_ref()
            .map_or(0, |active| active.activity.facts.messages),
    };
    directory.decisions.add_commit(commit);
    if let Some(active) = active {
        let mark = CommitMark {
            seq: active.activity.head,
            sha: Some(sha),
        };
        directory.decisions.set_mark(&active.session, mark);
    }
    Ok(done())
}

/// The hash of a commit, which is hexadecimal, so that nothing else gets into an answer by it.
fn reported_hash(body: &JsonObject) -> Result<String, Refusal> {
    let found = HASH_NAMES.iter().find_map(|name| body.get(*name)?.as_str());
    let is_hash =
        |sha: &&str| (4..=64).contains(&sha.len()) && sha.chars().all(|c| c.is_ascii_hexdigit());
    let sha = found.filter(is_hash).map(str::to_ascii_lowercase);
    sha.ok_or_else(|| {
        Refusal::Malformed("`commit_sha` must be the hash of a commit, in hex".to_owned())
    })
}

/// The names of files, in a list or in lines.
fn reported_files(files: Option<&Value>) -> Vec<String> {
    let names: Vec<&str> = match files {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(lines)) => lines.lines().collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => vec![],
    };
    let names = names.into_iter().filter(|name| !name.is_empty());
    names
        .take(MAX_FILES)
        .map(|name| shortened(name, MAX_FILE_CHARS))
        .collect()
}

/// A client says that a session is the active one. Who is in it and what happens there is in its log.
async fn session_started(
    State(directory): Tracking,
    LenientBody(body): LenientBody,
) -> Result<Json<Value>, RefusalResponse> {
    let session = named_session(&body)?.ok_or_else(|| {
        Refusal::Malformed("`session_id` is missing; give the id of the session".to_owned())
    })?;
    activate(&directory, &session).await
}

async fn session_ended(
    State(directory): Tracking,
    LenientBody(body): LenientBody,
) -> Result<Json<Value>, RefusalResponse> {
    directory
        .decisions
        .record_end(named_session(&body)?.as_ref());
    Ok(done())
}

/// A client repeats a message to the tracking. What was said is in the log already, so this only says
/// which session is active.
async fn message(
    State(directory): Tracking,
    LenientBody(body): LenientBody,
) -> Result<Json<Value>, RefusalResponse> {
    let Some(message) = body.get("message").and_then(Value::as_object) else {
        let problem = "`message` is missing; give the envelope of a message";
        return Err(Refusal::Malformed(problem.to_owned()).into());
    };
    let session = message.get("session").and_then(Value::as_str);
    let session = session.ok_or_else(|| {
        Refusal::Malformed("`message.session` is missing; give the id of the session".to_owned())
    })?;
    activate(&directory, &parse_session(session)?).await
}

/// Counts from here on, as if there had been a commit.
async fn reset(
    State(directory): Tracking,
    _body: LenientBody,
) -> Result<Json<Value>, RefusalResponse> {
    if let Some(session) = active_session(&directory).await? {
        let head = directory
            .store
            .head(&session)
            .await
            .map_err(Refusal::from)?;
        let mark = CommitMark {
            seq: head.map_or(0, |head| head.seq),
            ..directory.decisions.mark(&session)
        };
        directory.decisions.set_mark(&session, mark);
    }
    Ok(done())
}

fn done() -> Json<Value> {
    Json(json!({ "success": true }))
}

fn named_session(body: &JsonObject) -> Result<Option<SessionId>, Refusal> {
    match body.get("session_id") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(session)) => parse_session(session).map(Some),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => Err(
            Refusal::Malformed("`session_id` must be the id of a session".to_owned()),
        ),
    }
}

fn parse_session(text: &str) -> Result<SessionId, Refusal> {
    SessionId::parse(text).map_err(|error| Refusal::Malformed(error.to_string()))
}

/// Speaks of this session from now on, if it exists.
async fn activate(
    directory: &Arc<SessionDirectory>,
    session: &SessionId,
) -> Result<Json<Value>, RefusalResponse> {
    let head = directory.store.head(session).await.map_err(Refusal::from)?;
    if head.is_none() {
        return Err(Refusal::NoSuchSession(session.clone()).into());
    }
    directory.decisions.record_activity(session);
    Ok(done())
}

/// The session to speak of: the one that was active last.
async fn active_session(directory: &Arc<SessionDirectory>) -> Result<Option<SessionId>, Refusal> {
    match directory.decisions.active() {
        ActiveSession::Session(session) => {
            let exists = directory.store.head(&session).await?.is_some();
            Ok(exists.then_some(session))
        }
        ActiveSession::Ended => Ok(None),
        ActiveSession::Unknown => {
            let filter = SessionFilter {
                ended: Some(false),
                ..SessionFilter::default()
            };
            let store = &directory.store;
            let sessions = store.list_sessions(filter, MAX_SEARCHED_SESSIONS).await?;
            let last = sessions.into_iter().max_by_key(|one| one.updated_at);
            Ok(last.map(|one| one.session))
        }
    }
}

/// The active session, with what happened in it since its last commit.
struct ActiveSessionFacts {
    session: SessionId,
    mark: CommitMark,
    activity: SessionActivity,
}

impl ActiveSessionFacts {
    /// As everyone may see it; `None` if no session is active.
    async fn read(directory: &Arc<SessionDirectory>) -> Result<Option<Self>, Refusal> {
        let Some(session) = active_session(directory).await? else {
            return Ok(None);
        };
        let mark = directory.decisions.mark(&session);
        let since = Timestamp::default();
        let activity = SessionActivity::read(directory, &session, None, mark.seq, since).await?;
        Ok(Some(Self {
            session,
            mark,
            activity,
        }))
    }
}
