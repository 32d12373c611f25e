//! The route that says which decisions may have led to a commit: what git hooks ask for with a token.

use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Json;
use pvp_protocol::api::{
    CommandRecord, CommandStatus, CommitContext, DecidedCommand, NamedParticipant,
    SessionCommitContext,
};
use pvp_protocol::payload::{ClearedBy, PresenceStatus};
use pvp_protocol::{Command, ParticipantId, Refusal, SessionId, Timestamp};
use pvp_session::Session;

use super::extractors::{AuthorizedSession, StrictQuery, parameters};
use super::{RefusalResponse, commands};
use crate::admission::Allowance;
use crate::decisions::{FactRange, LogFacts, read_facts, shortened};
use crate::directory::{SessionDirectory, log_unreadable};
use crate::task::PresenceMap;
use crate::viewer::Viewer;

/// The most commands in an answer.
const MAX_COMMANDS: usize = 20;

/// How many of the newest proposals are looked at.
const MAX_SCANNED: usize = 200;

/// How many decisions a summary names, and the most characters of it.
const MAX_IN_SUMMARY: usize = 3;
const MAX_SUMMARY_CHARS: usize = 300;

/// The most characters of a command in a summary, and of a name.
const MAX_COMMAND_CHARS: usize = 80;
const MAX_NAME_CHARS: usize = 80;

/// How many of those who are present are named.
const MAX_PRESENT: usize = 50;

parameters! {
    CommitContextParameters {
        /// Only what came after this seq.
        after: u64 = "integer",
        /// Only what happened at this Unix time, in seconds, or later, and commands that still run.
        since: u64 = "integer",
    }
}

pub(super) async fn read(
    State(directory): State<Arc<SessionDirectory>>,
    AuthorizedSession { session, login }: AuthorizedSession,
    StrictQuery(query): StrictQuery<CommitContextParameters>,
) -> Result<Json<SessionCommitContext>, RefusalResponse> {
    let kind = login.as_ref().map(|login| login.claims.kind);
    let me = login.map(|login| login.claims.participant);
    let viewer = directory.http_access(&session, me).await?.viewer;
    if let Some(viewer) = &viewer {
        let allowance = Allowance {
            viewer,
            kind,
            limits: &directory.settings.limits,
        };
        allowance.charge(None)?;
    }
    let since = Timestamp::from_millis(query.since.unwrap_or(0).saturating_mul(1000));
    let after = query.after.unwrap_or(0);
    let activity = SessionActivity::read(&directory, &session, viewer.as_deref(), after, since);
    Ok(Json(activity.await?.into_context(None)))
}

/// What happened in a session after an entry and since a time.
pub(super) struct SessionActivity {
    /// The session.
    session: SessionId,
    /// What people call it.
    pub(super) name: Option<String>,
    /// The last entry of its log.
    pub(super) head: u64,
    /// Everyone in it who has not left.
    pub(super) people: Vec<PersonInSession>,
    /// What its newest entries say.
    pub(super) facts: LogFacts,
    /// The commands that people decided on and that ran, newest first.
    commands: Vec<DecidedCommand>,
}

/// One of the people and agents in a session.
pub(super) struct PersonInSession {
    pub(super) announce: pvp_protocol::payload::Announce,
    is_present: bool,
}

impl SessionActivity {
    /// Reads it from the state and the newest entries of the session, as far as the viewer may see.
    pub(super) async fn read(
        directory: &Arc<SessionDirectory>,
        session: &SessionId,
        viewer: Option<&Viewer>,
        after: u64,
        since: Timestamp,
    ) -> Result<Self, Refusal> {
        let state = directory.query_with_presence(session, SessionState::read);
        let state = state.await.ok_or_else(log_unreadable)?;
        let range = FactRange {
            after,
            since,
            head: state.head,
        };
        let facts = read_facts(directory.store.as_ref(), session, viewer, range).await?;
        let newest = commands::newest_commands(directory, session, MAX_SCANNED).await?;
        let counts = newest.into_iter().filter(|(proposal, record)| {
            let ended = record.result.as_ref().map(|result| result.at);
            proposal.closed.is_none_or(|(_, seq)| seq > after) && ended.is_none_or(|at| at >= since)
        });
        let commands = counts.filter_map(|(_, record)| state.describe(record));
        Ok(Self {
            session: session.clone(),
            name: state.name.clone(),
            head: state.head,
            commands: commands.collect(),
            people: state.people,
            facts,
        })
    }

    /// The names of those who are present, or the first of them.
    pub(super) fn present(&self) -> Vec<String> {
        let present = self.people.iter().filter(|person| person.is_present);
        present
            .take(MAX_PRESENT)
            .map(|person| shortened(&person.announce.name, MAX_NAME_CHARS))
            .collect()
    }

    /// What the published hooks read.
    pub(super) fn published_context(&self, last_commit: Option<String>) -> CommitContext {
        let tools = self.facts.tool_uses();
        let tools = tools
            .iter()
            .map(|tool| format!("{}:{}", tool.tool_name, tool.execution_count));
        CommitContext {
            session_id: Some(self.session.clone()),
            last_commit,
            messages_since_last_commit: self.facts.messages,
            active_participants: self.present().join(", "),
            decision_summary: self.summary(),
            tool_executions: tools.collect::<Vec<_>>().join(", "),
            prompts_count: self.facts.prompts,
            approvals_count: self.facts.approvals,
        }
    }

    fn into_context(mut self, last_commit: Option<String>) -> SessionCommitContext {
        let context = self.published_context(last_commit);
        let more = self.commands.len() > MAX_COMMANDS;
        self.commands.truncate(MAX_COMMANDS);
        SessionCommitContext {
            context,
            head: self.head,
            commands: self.commands,
            more,
        }
    }

    /// The newest decisions in a line; `None` if there are none.
    fn summary(&self) -> Option<String> {
        let decisions = self.commands.iter().take(MAX_IN_SUMMARY).map(|it| {
            let names: Vec<_> = it.approvers.iter().map(|one| one.name.as_str()).collect();
            let who = match names.as_slice() {
                [] => cleared_by_words(it.cleared_by).to_owned(),
                names => format!("approved by {}", names.join(", ")),
            };
            format!("{} ({who})", shortened(&it.command, MAX_COMMAND_CHARS))
        });
        let decisions: Vec<_> = decisions.collect();
        let summary = shortened(&decisions.join("; "), MAX_SUMMARY_CHARS);
        (!decisions.is_empty()).then_some(summary)
    }
}

/// A command line, or a tool and the file that it names.
fn brief_command(record: &CommandRecord) -> String {
    let call = record.tool.as_ref();
    let call = call.and_then(|_| Command::tool_call_from_line(&record.command).ok());
    call.map_or_else(|| record.command.clone(), |call| call.brief())
}

/// What lets a command run that nobody approved.
fn cleared_by_words(cleared_by: ClearedBy) -> &'static str {
    match cleared_by {
        ClearedBy::Clock => "approved by the clock",
        ClearedBy::AllowRule => "allowed by a rule",
        ClearedBy::Direct => "a person's own command",
        ClearedBy::Read | ClearedBy::Tried | ClearedBy::Quorum => "approved by nobody",
    }
}

/// What the session's task says about it.
struct SessionState {
    name: Option<String>,
    head: u64,
    people: Vec<PersonInSession>,
    /// Those who left, whose names are still known.
    left: Vec<(ParticipantId, String)>,
}

impl SessionState {
    fn read(session: &Session, presence: &PresenceMap) -> Self {
        let is_present = |id: &ParticipantId| match presence.get(id) {
            None | Some(PresenceStatus::Disconnected) => false,
            Some(PresenceStatus::Active | PresenceStatus::Idle | PresenceStatus::Away) => true,
        };
        let mut state = Self {
            name: session.name().map(str::to_owned),
            head: session.head(),
            people: Vec::new(),
            left: Vec::new(),
        };
        for (id, member) in session.members() {
            match member.left {
                true => state.left.push((id.clone(), member.announce.name.clone())),
                false => state.people.push(PersonInSession {
                    announce: member.announce.clone(),
                    is_present: is_present(id),
                }),
            }
        }
        state
    }

    fn name_of<'a>(&'a self, id: &'a ParticipantId) -> &'a str {
        let mut people = self.people.iter();
        let person = people.find(|person| person.announce.id == *id);
        let mut left = self.left.iter();
        let name = person.map(|person| person.announce.name.as_str());
        let name = name.or_else(|| Some(left.find(|(gone, _)| gone == id)?.1.as_str()));
        name.filter(|name| !name.trim().is_empty())
            .unwrap_or(id.as_str())
    }

    /// Where an executor runs commands that name no directory.
    fn directory_of(&self, executor: &ParticipantId) -> Option<&str> {
        let mut people = self.people.iter();
        let person = people.find(|person| person.announce.id == *executor)?;
        let info = person.announce.executor.as_ref()?;
        info.working_directory.as_deref()
    }

    /// A command that ran because somebody decided so; `None` if it did not run, or was a read.
    fn describe(&self, record: CommandRecord) -> Option<DecidedCommand> {
        match record.status {
            CommandStatus::Running | CommandStatus::Finished => {}
            CommandStatus::Waiting
            | CommandStatus::Blocked
            | CommandStatus::Rejected
            | CommandStatus::TimedOut
            | CommandStatus::Cancelled => return None,
        }
        let cleared_by = match record.cleared_by? {
            ClearedBy::Read | ClearedBy::Tried => return None,
            decided @ (ClearedBy::Quorum
            | ClearedBy::Clock
            | ClearedBy::AllowRule
            | ClearedBy::Direct) => decided,
        };
        let command = brief_command(&record);
        let own = record
            .executor
            .as_ref()
            .and_then(|it| self.directory_of(it));
        let cwd = match (own, &record.cwd) {
            (Some(own), Some(cwd)) => Some(Path::new(own).join(cwd).to_string_lossy().into_owned()),
            (Some(own), None) => Some(own.to_owned()),
            (None, cwd) => cwd.clone(),
        };
        let approvers = record.approvals.into_iter().map(|it| NamedParticipant {
            name: self.name_of(&it.participant).to_owned(),
            id: it.participant,
        });
        Some(DecidedCommand {
            tool_proposal: record.tool_proposal,
            short_id: record.short_id,
            seq: record.seq,
            command,
            cwd,
            category: record.category,
            status: record.status,
            cleared_by,
            approvers: approvers.collect(),
            ended_at: record.result.map(|result| result.at),
        })
    }
}
