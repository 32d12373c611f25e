//! `pvp git hook`: what the installed hooks call. It never fails, prints nothing, and does nothing
//! if no server answers in time: a commit must not wait for PVP, nor be lost to it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use clap::{Args, Subcommand};
use pvp_client::ApiClient;
use pvp_protocol::api::{CommandStatus, DecidedCommand, SessionCommitContext};
use pvp_protocol::{MessageId, SessionId};

use super::super::links::LinkArguments;
use super::decision_record::{self, DecisionRecord};
use super::repository::Repository;

/// How many seconds a commit may wait for the server, finding the link included, and the most that
/// the configuration may make of it.
const DEFAULT_SECONDS: u64 = 1;
const MAX_SECONDS: u64 = 30;

/// Where a repository, or a person for all of theirs, says that a server takes longer.
const SECONDS_KEY: &str = "pvp.hookSeconds";

/// How many commands a commit names.
const MAX_COMMANDS: usize = 20;

/// The largest message that is looked at.
const MAX_MESSAGE_BYTES: u64 = 1024 * 1024;

#[derive(Args)]
pub(crate) struct HookArguments {
    #[command(flatten)]
    link: LinkArguments,
    #[command(subcommand)]
    hook: HookName,
}

#[derive(Subcommand)]
enum HookName {
    /// Add trailers to the message of a commit
    PrepareCommitMsg {
        /// The file with the message
        message: PathBuf,
        /// Where the message comes from
        source: Option<String>,
        /// The commit that the message is taken from
        commit: Option<String>,
    },
    /// Add a note to the last commit
    PostCommit,
}

pub(super) fn run(arguments: &HookArguments) -> ExitCode {
    let done = match &arguments.hook {
        HookName::PrepareCommitMsg {
            message,
            source,
            commit,
        } => {
            let source = MessageSource::parse(source.as_deref(), commit.as_deref());
            prepare_commit_msg(&arguments.link, message, source)
        }
        HookName::PostCommit => post_commit(&arguments.link),
    };
    // Whatever went wrong is no reason to disturb a commit.
    drop(done);
    ExitCode::SUCCESS
}

/// Where the message of a commit comes from, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageSource {
    /// From `-m` or `-F`.
    Given,
    /// From the commit that `--amend` replaces.
    Amended,
    /// From an editor that is yet to be opened, a template, a merge, or another commit. Trailers
    /// would make a message of what is none yet, and emptying it is how people give up a commit.
    Other,
}

impl MessageSource {
    fn parse(source: Option<&str>, commit: Option<&str>) -> Self {
        match (source, commit) {
            (Some("message"), _) => Self::Given,
            (Some("commit"), Some("HEAD")) => Self::Amended,
            _ => Self::Other,
        }
    }
}

fn prepare_commit_msg(
    link: &LinkArguments,
    message: &Path,
    source: MessageSource,
) -> anyhow::Result<()> {
    let parent = match source {
        MessageSource::Given => "HEAD",
        MessageSource::Amended => "HEAD^",
        MessageSource::Other => return Ok(()),
    };
    let repository = Repository::around(&super::super::current_directory()?)?;
    if repository.is_replaying() || !has_text(&repository, message)? {
        return Ok(());
    }
    if let Some(decisions) = CommitDecisions::find(link, &repository, parent)? {
        let trailers = decision_record::trailers(&decisions.session, &decisions.commands);
        repository.add_trailers(message, &trailers)?;
    }
    Ok(())
}

/// Whether a message says anything; git gives up a commit whose message does not.
fn has_text(repository: &Repository, message: &Path) -> anyhow::Result<bool> {
    if message.metadata()?.len() > MAX_MESSAGE_BYTES {
        return Ok(false);
    }
    let text = repository.without_comments(&std::fs::read(message)?)?;
    Ok(!text.trim_ascii().is_empty())
}

fn post_commit(link: &LinkArguments) -> anyhow::Result<()> {
    let repository = Repository::around(&super::super::current_directory()?)?;
    let Some(commit) = repository
        .find_commit("HEAD")
        .filter(|_| !repository.is_replaying())
    else {
        return Ok(());
    };
    let Some(mut decisions) = CommitDecisions::find(link, &repository, "HEAD^")? else {
        return Ok(());
    };
    let noted = recorded(&repository, &commit, RecordPlace::Note)?;
    let is_noted = |it: &DecidedCommand| noted.proposals.contains(&it.tool_proposal);
    decisions.commands.retain(|command| !is_noted(command));
    let CommitDecisions {
        session,
        context,
        commands,
    } = decisions;
    let note = decision_record::note(&session, &context, &commands);
    match note.is_empty() {
        true => Ok(()),
        false => repository.append_note(&commit, &note),
    }
}

/// The commands that led to a commit.
struct CommitDecisions {
    session: SessionId,
    context: SessionCommitContext,
    commands: Vec<DecidedCommand>,
}

impl CommitDecisions {
    /// Asks the server what ran since the parent commit; `None` if nothing did, or nobody answers.
    fn find(
        link: &LinkArguments,
        repository: &Repository,
        parent: &str,
    ) -> anyhow::Result<Option<Self>> {
        let parent = repository.find_commit(parent);
        let since = match &parent {
            Some(parent) => committed_at(repository, parent)?,
            None => None,
        };
        let Some((session, context)) = ask_server(link.clone(), since, server_limit(repository))
        else {
            return Ok(None);
        };
        let before = match &parent {
            Some(parent) => recorded_since(repository, parent, since)?,
            None => BTreeSet::new(),
        };
        let top_level = repository.top_level()?;
        let mut commands = context.commands.clone();
        commands.retain(|it| !before.contains(&it.tool_proposal));
        commands.retain(|it| may_change(it, &top_level));
        let commands = order_commands(commands);
        Ok((!commands.is_empty()).then_some(Self {
            session,
            context,
            commands,
        }))
    }
}

/// The command that runs, if there is only one, and those that have ended, newest first.
fn order_commands(commands: Vec<DecidedCommand>) -> Vec<DecidedCommand> {
    let is_running = |it: &DecidedCommand| it.status == CommandStatus::Running;
    let (mut running, mut ended): (Vec<_>, Vec<_>) = commands.into_iter().partition(is_running);
    if running.len() > 1 {
        // Nobody can say which of them makes the commit.
        running.clear();
    }
    ended.sort_by_key(|it| std::cmp::Reverse(it.ended_at));
    running.extend(ended);
    running.truncate(MAX_COMMANDS);
    running
}

/// Whether a command ran in this working tree, as far as is known.
fn may_change(command: &DecidedCommand, top_level: &Path) -> bool {
    let Some(cwd) = command.cwd.as_deref().map(Path::new) else {
        return true;
    };
    let real = cwd.canonicalize().unwrap_or_else(|_| cwd.to_owned());
    let top_level = top_level.canonicalize();
    top_level.is_ok_and(|top_level| real.starts_with(top_level))
}

/// Asks the server of the saved link. Everything that may take long happens in a thread that is left
/// behind when the time is up.
fn ask_server(
    link: LinkArguments,
    since: Option<u64>,
    limit: Duration,
) -> Option<(SessionId, SessionCommitContext)> {
    let (sender, receiver) = mpsc::channel();
    let ask = move || {
        let api = ApiClient::with_timeout(link.resolve_quietly().ok()??, limit);
        let session = link.resolve_session(&api).ok()?;
        let context = api.commit_context(&session, since).ok()?;
        Some((session, context))
    };
    let answer = move || {
        // Nobody waits any more if this fails.
        let _ = sender.send(ask());
    };
    std::thread::spawn(answer);
    receiver.recv_timeout(limit).ok()?
}

/// How long to wait for the server.
fn server_limit(repository: &Repository) -> Duration {
    let seconds = repository.config_value(SECONDS_KEY);
    let seconds = seconds.and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS).min(MAX_SECONDS))
}

/// When a commit was made, in seconds since 1970; `None` if it does not say.
fn committed_at(repository: &Repository, commit: &str) -> anyhow::Result<Option<u64>> {
    let objects = repository.read_objects(&[commit.to_owned()])?;
    Ok(objects.get(commit).and_then(|object| commit_time(object)))
}

fn commit_time(object: &[u8]) -> Option<u64> {
    let text = String::from_utf8_lossy(object);
    let mut lines = text.lines().take_while(|line| !line.is_empty());
    let committer = lines.find_map(|line| line.strip_prefix("committer "))?;
    // The line ends with the time and the zone.
    committer.rsplit(' ').nth(1)?.parse().ok()
}

/// The proposals that the parent names, and those that other commits of the same second or later
/// name: the command that makes a commit ends after it, and would otherwise count for the next too.
fn recorded_since(
    repository: &Repository,
    parent: &str,
    since: Option<u64>,
) -> anyhow::Result<BTreeSet<MessageId>> {
    let ancestors = repository.ancestors(parent, MAX_COMMANDS)?;
    let objects = repository.read_objects(&ancestors)?;
    let mut proposals = BTreeSet::new();
    for (commit, object) in objects {
        if commit_time(&object) >= since {
            let record = recorded(repository, &commit, RecordPlace::NoteOrMessage)?;
            proposals.extend(record.proposals);
        }
    }
    Ok(proposals)
}

/// Where to look for the decisions behind a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecordPlace {
    Note,
    NoteOrMessage,
}

/// What a commit says about the decisions behind it.
fn recorded(
    repository: &Repository,
    commit: &str,
    place: RecordPlace,
) -> anyhow::Result<DecisionRecord> {
    let note = repository.note_of(commit);
    let names: Vec<_> = note.iter().cloned().chain([commit.to_owned()]).collect();
    let objects = repository.read_objects(&names)?;
    let note = note.and_then(|note| objects.get(&note));
    let note = note.map(|note| DecisionRecord::parse(&String::from_utf8_lossy(note)));
    let mut record = note.unwrap_or_default();
    if place == RecordPlace::NoteOrMessage
        && let Some(object) = objects.get(commit)
    {
        let message = DecisionRecord::parse_commit(object);
        record.proposals.extend(message.proposals);
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use pvp_protocol::payload::ClearedBy;
    use pvp_protocol::{Category, Timestamp};

    use super::*;

    fn command(id: &str, ended: Option<u64>, cwd: Option<&str>) -> DecidedCommand {
        DecidedCommand {
            tool_proposal: MessageId::parse(id).unwrap(),
            short_id: id.to_owned(),
            seq: 1,
            command: "make".to_owned(),
            cwd: cwd.map(str::to_owned),
            category: Category::Write,
            status: match ended {
                None => CommandStatus::Running,
                Some(_) => CommandStatus::Finished,
            },
            cleared_by: ClearedBy::Quorum,
            approvers: Vec::new(),
            ended_at: ended.map(Timestamp::from_millis),
        }
    }

    fn ids(commands: &[DecidedCommand]) -> Vec<&str> {
        commands
            .iter()
            .map(|it| it.tool_proposal.as_str())
            .collect()
    }

    #[test]
    fn the_only_running_command_comes_first_and_of_several_none() {
        let ended = [command("old", Some(1), None), command("new", Some(2), None)];
        let with = |running: &[DecidedCommand]| order_commands([&ended[..], running].concat());
        assert_eq!(ids(&with(&[])), ["new", "old"]);
        let one = command("run", None, None);
        assert_eq!(
            ids(&with(std::slice::from_ref(&one))),
            ["run", "new", "old"]
        );
        assert_eq!(
            ids(&with(&[one, command("other", None, None)])),
            ["new", "old"]
        );
        let many: Vec<_> = (0..99)
            .map(|n| command(&format!("c{n}"), Some(n), None))
            .collect();
        assert_eq!(order_commands(many).len(), MAX_COMMANDS);
    }

    #[test]
    fn a_command_that_ran_elsewhere_did_not_lead_to_the_commit() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let inside = here.join("sub");
        std::fs::create_dir(&inside).unwrap();
        let runs_in = |cwd: &Path| may_change(&command("a1", None, cwd.to_str()), here);
        assert!(runs_in(here) && runs_in(&inside) && may_change(&command("a1", None, None), here));
        assert!(!runs_in(Path::new("/")) && !runs_in(&here.join("sub/../..")));
    }

    #[test]
    fn trailers_go_only_into_messages_that_are_given() {
        let source = MessageSource::parse;
        assert_eq!(source(Some("message"), None), MessageSource::Given);
        assert_eq!(source(Some("commit"), Some("HEAD")), MessageSource::Amended);
        for (kind, commit) in [
            (None, None),
            (Some("template"), None),
            (Some("merge"), None),
            (Some("squash"), None),
            (Some("commit"), Some("abc123")),
        ] {
            assert_eq!(source(kind, commit), MessageSource::Other, "{kind:?}");
        }
    }
}
