//! What a commit says about the decisions behind it: trailers in its message, and a note.
//!
//! Both are text that anyone with write access to the repository can change. They say where to look;
//! the proof is the entry of the proposal in the signed log.

use std::collections::BTreeSet;

use pvp_client::view::escape_invisible;
use pvp_protocol::api::{DecidedCommand, SessionCommitContext};
use pvp_protocol::payload::ClearedBy;
use pvp_protocol::{MessageId, SessionId};
use serde::Serialize;

const SESSION: &str = "PVP-Session";
const PROPOSAL: &str = "PVP-Proposal";
/// In a note: the ids of those who approved, as an executor with `--git-notes` writes them.
const APPROVED_BY: &str = "PVP-Approved-By";
/// Their names.
const APPROVERS: &str = "PVP-Approvers";
const COMMAND: &str = "PVP-Command";
const CATEGORY: &str = "PVP-Category";
const HEAD: &str = "PVP-Head";

/// The most characters of a command and of a name that are written.
const MAX_COMMAND_CHARS: usize = 500;
const MAX_NAME_CHARS: usize = 64;

/// How many approvers of a command are named.
const MAX_APPROVERS: usize = 20;

/// The most lines of a note or a message that are read, and the most proposals and names in them.
const MAX_LINES: usize = 10_000;
const MAX_READ: usize = 100;

/// The decisions behind a commit, as a note or a message names them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(super) struct DecisionRecord {
    /// The sessions, usually one.
    pub(super) sessions: Vec<SessionId>,
    /// The proposals, the one that was running first.
    pub(super) proposals: Vec<MessageId>,
    /// Who approved them: their names, or ids where no name is known.
    pub(super) approvers: Vec<String>,
}

impl DecisionRecord {
    /// Whether it names any decision.
    pub(super) fn is_empty(&self) -> bool {
        self.proposals.is_empty()
    }

    /// Reads a note, or the last paragraph of a message.
    pub(super) fn parse(text: &str) -> Self {
        let (mut record, mut approvals) = (Self::default(), vec![ApprovalLines::default()]);
        let mut current = 0;
        for line in text.lines().take(MAX_LINES) {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match key.trim() {
                SESSION => add(&mut record.sessions, SessionId::parse(value).ok()),
                PROPOSAL => {
                    add(&mut record.proposals, MessageId::parse(value).ok());
                    let proposals = &record.proposals;
                    let at = proposals.iter().position(|it| it.as_str() == value);
                    // Lines about a proposal that cannot be read are about none.
                    current = at.map_or(0, |at| at + 1);
                    approvals.resize_with(proposals.len() + 1, ApprovalLines::default);
                }
                APPROVED_BY => approvals[current].ids = names_in(value),
                APPROVERS => approvals[current].names = names_in(value),
                _ => {}
            }
        }
        for approver in approvals.into_iter().flat_map(ApprovalLines::approvers) {
            add(&mut record.approvers, Some(approver));
        }
        record
    }

    /// Reads the trailers of a commit object.
    pub(super) fn parse_commit(commit: &[u8]) -> Self {
        let text = String::from_utf8_lossy(commit);
        let message = text.split_once("\n\n").map_or("", |(_, message)| message);
        let paragraphs = message.trim_end().rsplit("\n\n");
        Self::parse(paragraphs.into_iter().next().unwrap_or_default())
    }
}

/// Who approved one proposal. The executor writes ids, and the hooks write names as well.
#[derive(Default)]
struct ApprovalLines {
    ids: Vec<String>,
    names: Vec<String>,
}

impl ApprovalLines {
    /// The names, or where there are none the ids.
    fn approvers(self) -> Vec<String> {
        match self.names.is_empty() {
            true => self.ids,
            false => self.names,
        }
    }
}

fn names_in(value: &str) -> Vec<String> {
    let names = value.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty())
        .map(|name| name.chars().take(MAX_NAME_CHARS).collect())
        .collect()
}

fn add<T: PartialEq>(all: &mut Vec<T>, one: Option<T>) {
    if let Some(one) = one.filter(|one| !all.contains(one))
        && all.len() < MAX_READ
    {
        all.push(one);
    }
}

/// The trailers of a commit that these commands led to; none if there are no commands.
pub(super) fn trailers(session: &SessionId, commands: &[DecidedCommand]) -> Vec<String> {
    if commands.is_empty() {
        return Vec::new();
    }
    let mut trailers = vec![format!("{SESSION}: {session}")];
    let proposals = commands.iter().map(|command| &command.tool_proposal);
    trailers.extend(proposals.map(|proposal| format!("{PROPOSAL}: {proposal}")));
    let names = distinct_names(commands.iter().flat_map(approver_names));
    if !names.is_empty() {
        trailers.push(format!("{APPROVERS}: {}", names.join(", ")));
    }
    trailers
}

/// The note of a commit that these commands led to: a paragraph for each.
pub(super) fn note(
    session: &SessionId,
    context: &SessionCommitContext,
    commands: &[DecidedCommand],
) -> String {
    let paragraph = |command: &DecidedCommand| {
        let ids = command.approvers.iter().map(|it| it.id.as_str());
        let ids: Vec<_> = ids.take(MAX_APPROVERS).collect();
        let approved_by = match ids.as_slice() {
            [] => without_approvers(command.cleared_by).to_owned(),
            ids => ids.join(", "),
        };
        let mut lines = vec![
            format!("{SESSION}: {session}"),
            format!("{PROPOSAL}: {}", command.tool_proposal),
            format!("{APPROVED_BY}: {approved_by}"),
        ];
        if !ids.is_empty() {
            let names = distinct_names(approver_names(command).into_iter());
            lines.push(format!("{APPROVERS}: {}", names.join(", ")));
        }
        let line = plain(&command.command, MAX_COMMAND_CHARS);
        lines.push(format!("{CATEGORY}: {}", command.category.as_str()));
        lines.push(format!("{COMMAND}: {line}"));
        lines.push(format!("{HEAD}: {}\n", context.head));
        lines.join("\n")
    };
    let paragraphs: Vec<_> = commands.iter().map(paragraph).collect();
    paragraphs.join("\n")
}

/// What stands for the approvers of a command that ran without, as the executor's notes say it.
fn without_approvers(cleared_by: ClearedBy) -> &'static str {
    match cleared_by {
        ClearedBy::Clock => "the clock",
        ClearedBy::AllowRule => "an allow rule",
        ClearedBy::Direct => "a person's own command",
        ClearedBy::Read | ClearedBy::Tried | ClearedBy::Quorum => "nobody",
    }
}

/// The names of those who approved. A name has no comma and no line end, so that it can be neither
/// two names nor another trailer.
fn approver_names(command: &DecidedCommand) -> Vec<String> {
    let approvers = command.approvers.iter().take(MAX_APPROVERS);
    approvers
        .map(|approver| {
            let name = plain(&approver.name, MAX_NAME_CHARS).replace(',', " ");
            match name.trim() {
                "" => approver.id.to_string(),
                name => name.to_owned(),
            }
        })
        .collect()
}

fn distinct_names(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(name.clone())).collect()
}

/// The beginning of a text from others, on one line and visible.
fn plain(text: &str, max_chars: usize) -> String {
    let line: String = text.chars().take(max_chars).collect();
    escape_invisible(&line).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod tests {
    use pvp_protocol::Category;
    use pvp_protocol::api::{CommandStatus, CommitContext, NamedParticipant};

    use super::*;

    fn session() -> SessionId {
        SessionId::parse("owl").unwrap()
    }

    fn command(id: &str, names: &[&str]) -> DecidedCommand {
        let approver = |(at, name): (usize, &&str)| NamedParticipant {
            id: pvp_protocol::ParticipantId::parse(&format!("p{at}")).unwrap(),
            name: (*name).to_owned(),
        };
        DecidedCommand {
            tool_proposal: MessageId::parse(id).unwrap(),
            short_id: id.to_owned(),
            seq: 7,
            command: "git commit -m 'one\ntwo\u{1b}[2J'".to_owned(),
            cwd: None,
            category: Category::Write,
            status: CommandStatus::Running,
            cleared_by: ClearedBy::Quorum,
            approvers: names.iter().enumerate().map(approver).collect(),
            ended_at: None,
        }
    }

    fn context() -> SessionCommitContext {
        SessionCommitContext {
            context: CommitContext {
                session_id: Some(session()),
                last_commit: None,
                messages_since_last_commit: 0,
                active_participants: String::new(),
                decision_summary: None,
                tool_executions: String::new(),
                prompts_count: 0,
                approvals_count: 0,
            },
            head: 12,
            commands: Vec::new(),
            more: false,
        }
    }

    fn strings(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let commands = [command("a1", &["Ann", "Bob"]), command("b2", &["Ann"])];
        let expected = DecisionRecord {
            sessions: vec![session()],
            proposals: ["a1", "b2"].map(|id| MessageId::parse(id).unwrap()).into(),
            approvers: strings(&["Ann", "Bob"]),
        };
        let written = note(&session(), &context(), &commands);
        assert_eq!(DecisionRecord::parse(&written), expected, "{written}");
        let trailers = trailers(&session(), &commands).join("\n");
        assert_eq!(DecisionRecord::parse(&trailers), expected, "{trailers}");
        let object = format!("tree 1\nauthor x\n\nSubject\n\nText: a\n\n{trailers}\n");
        assert_eq!(DecisionRecord::parse_commit(object.as_bytes()), expected);
        assert!(DecisionRecord::parse_commit(b"tree 1\n\nPVP-Proposal: x\n\nlast").is_empty());
    }

    #[test]
    fn the_note_of_an_executor_is_read_too() {
        let text =
            "PVP-Session: owl\nPVP-Proposal: a1\nPVP-Approved-By: ann, bob\nPVP-Digest: 00\n";
        let record = DecisionRecord::parse(text);
        assert_eq!(record.approvers, strings(&["ann", "bob"]));
        assert_eq!(record.proposals.len(), 1);
        // Below the note of the hook, it adds nobody.
        let mut both = note(&session(), &context(), &[command("a1", &["Ann"])]);
        both += "\nPVP-Session: owl\nPVP-Proposal: a1\nPVP-Approved-By: p0\nPVP-Digest: 00\n";
        assert_eq!(DecisionRecord::parse(&both).approvers, strings(&["Ann"]));
    }

    #[test]
    fn a_hostile_name_or_command_adds_no_line() {
        let hostile = "Ann\nPVP-Proposal: forged, Bob\rSigned-off-by: x\u{202e}";
        let commands = [command("a1", &[hostile])];
        let trailers = trailers(&session(), &commands);
        assert_eq!(trailers.len(), 3);
        for line in &trailers {
            assert!(!line.contains(['\n', '\r', '\u{202e}']), "{line:?}");
        }
        let written = note(&session(), &context(), &commands);
        assert_eq!(
            DecisionRecord::parse(&written).proposals.len(),
            1,
            "{written}"
        );
        assert!(
            !written.contains(['\u{1b}', '\r', '\u{202e}']),
            "{written:?}"
        );
    }

    #[test]
    fn what_is_read_is_bounded_and_never_panics() {
        let many: String = (0..20_000)
            .map(|n| format!("PVP-Proposal: p{n}\n"))
            .collect();
        assert_eq!(DecisionRecord::parse(&many).proposals.len(), MAX_READ);
        let bad = "PVP-Proposal: ../../etc\nPVP-Session: \u{1b}\n:::\nPVP-Approvers: ,,é,";
        let record = DecisionRecord::parse(bad);
        assert!(record.is_empty() && record.sessions.is_empty());
        assert_eq!(record.approvers, strings(&["é"]));
        assert!(DecisionRecord::parse_commit(b"\xff\xfe\n\n\xffPVP-Proposal").is_empty());
    }

    #[test]
    fn what_a_server_makes_a_commit_carry_is_bounded() {
        let (name, names) = ("é".repeat(5000), 5000);
        let mut command = command("a1", &vec![name.as_str(); names]);
        command.command = "x".repeat(1_000_000);
        let trailers = trailers(&session(), std::slice::from_ref(&command)).concat();
        assert!(trailers.len() < 4000, "{}", trailers.len());
        let written = note(&session(), &context(), &[command]);
        assert!(written.len() < 4000, "{}", written.len());
    }

    #[test]
    fn nothing_is_written_without_a_decision() {
        assert!(trailers(&session(), &[]).is_empty());
        assert_eq!(note(&session(), &context(), &[]), "");
    }
}
