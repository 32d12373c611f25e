//! Counts what happened in a session since a commit, from the newest entries of its log.
//!
//! A git hook waits one second at most, so the cost is bounded: never more than [`MAX_ENTRIES`]
//! entries or [`MAX_BYTES`] are read, from the newest backwards. What happened before them is not
//! counted.

use std::collections::{BTreeMap, BTreeSet};

use pvp_protocol::payload::UsageStats;
use pvp_protocol::{
    Envelope, Limits, MessageId, Refusal, ServerMessage, SessionId, Timestamp, parse_server_message,
};
use pvp_session::{Audience, Entry};
use serde::{Deserialize, Serialize};

use crate::store::{LogRecord, ReadLimit, Store};
use crate::viewer::Viewer;

/// The most entries that one question reads.
const MAX_ENTRIES: u64 = 4096;

/// No further page is read once this many bytes were.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// How many entries are read at a time, and the most bytes of them.
const PAGE: ReadLimit = ReadLimit {
    records: 128,
    bytes: MAX_BYTES,
};

/// How many messages are summed up, the newest.
const MAX_SUMMARIES: usize = 50;

/// The most characters of a summary, and of the name of a tool or a key.
const MAX_SUMMARY_CHARS: usize = 100;

/// How many different tools and keys are told apart.
const MAX_NAMES: usize = 50;

/// Which entries count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FactRange {
    /// Only entries after this one.
    pub(crate) after: u64,
    /// Only entries since then.
    pub(crate) since: Timestamp,
    /// No entry after this one.
    pub(crate) head: u64,
}

/// A message in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct MessageSummary {
    /// Its id.
    id: MessageId,
    /// Its type.
    #[serde(rename = "type")]
    kind: String,
    /// Who sent it.
    sender: String,
    /// When it was logged.
    timestamp: Timestamp,
    /// What it says, in a line.
    summary: String,
}

/// How often a tool ran.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ToolUse {
    pub(crate) tool_name: String,
    pub(crate) execution_count: u64,
    last_executed: Timestamp,
    /// The share of those that ended which succeeded; 1 if none has ended.
    success_rate: f64,
}

/// What the newest entries of a log say.
#[derive(Debug, Default)]
pub(crate) struct LogFacts {
    /// Messages, without pieces of output and of answers.
    pub(crate) messages: u64,
    /// Prompts.
    pub(crate) prompts: u64,
    /// Votes for a command.
    pub(crate) approvals: u64,
    /// Gates that were resolved.
    pub(crate) gates: u64,
    /// Tokens of the model.
    pub(crate) tokens: u64,
    /// The newest messages, newest first until they are all read.
    pub(crate) summaries: Vec<MessageSummary>,
    /// The tool of each proposal.
    tools: BTreeMap<MessageId, String>,
    /// When each proposal was granted.
    granted: BTreeMap<MessageId, Timestamp>,
    /// Whether each proposal that ended succeeded.
    succeeded: BTreeMap<MessageId, bool>,
    /// The newest entry about each key of the context, and whether the key is there after it.
    keys: BTreeMap<String, (u64, bool)>,
}

/// Reads what the newest entries say, as far as the viewer may see them; `None` is an anonymous
/// reader on a server without login, who sees what everyone may see.
pub(crate) async fn read_facts(
    store: &dyn Store,
    session: &SessionId,
    viewer: Option<&Viewer>,
    range: FactRange,
) -> Result<LogFacts, Refusal> {
    let oldest = range.head.saturating_sub(MAX_ENTRIES).max(range.after) + 1;
    let (mut facts, mut bytes, mut end) = (LogFacts::default(), 0, range.head);
    while end >= oldest && bytes < MAX_BYTES {
        let begin = end.saturating_sub(PAGE.records as u64 - 1).max(oldest);
        let records = store.read(session, begin, PAGE).await?;
        let page = records.iter().take_while(|record| record.seq <= end);
        let page: Vec<_> = page.collect();
        let mut reached_since = false;
        for record in page.iter().rev() {
            bytes += record.body.len();
            reached_since |= !facts.read(record, viewer, range.since)?;
        }
        if reached_since || begin <= 1 {
            break;
        }
        end = begin - 1;
    }
    facts.summaries.reverse();
    Ok(facts)
}

impl LogFacts {
    /// Reads one entry; false if it is from before the time that counts.
    fn read(
        &mut self,
        record: &LogRecord,
        viewer: Option<&Viewer>,
        since: Timestamp,
    ) -> Result<bool, Refusal> {
        #[derive(Deserialize)]
        struct MessageHead<'a> {
            #[serde(rename = "type", borrow)]
            kind: std::borrow::Cow<'a, str>,
            ts: Timestamp,
        }
        let (audience, ..) = Entry::decode_meta(&record.meta).map_err(unreadable)?;
        let text = std::str::from_utf8(&record.body).map_err(unreadable)?;
        let head: MessageHead<'_> = serde_json::from_str(text).map_err(unreadable)?;
        if head.ts < since {
            return Ok(false);
        }
        let is_piece = matches!(
            head.kind.as_ref(),
            "tool.output" | "thinking.chunk" | "response.chunk"
        );
        if is_piece || !may_see(viewer, &audience) {
            return Ok(true);
        }
        self.messages += 1;
        let limits = Limits {
            json_depth: usize::MAX,
            ..Limits::default()
        };
        // A type that this version does not know counts, and says nothing else.
        if let Ok(Some(envelope)) = parse_server_message(text, &limits) {
            self.add(record.seq, &head.kind, envelope);
        }
        Ok(true)
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "only these messages are counted or summed up"
    )]
    fn add(&mut self, seq: u64, kind: &str, envelope: Envelope) {
        let at = envelope.at;
        let summary = match &envelope.message {
            ServerMessage::PromptSubmit(prompt) => {
                self.prompts += 1;
                prompt.content.clone()
            }
            ServerMessage::GateApprove(_) | ServerMessage::ToolApprove(_) => {
                self.approvals += 1;
                "approved".to_owned()
            }
            ServerMessage::GateReject(vote) => format!("rejected: {}", vote.reason),
            ServerMessage::ToolReject(vote) => format!("rejected: {}", vote.reason),
            ServerMessage::ToolPropose(propose) => {
                let id = envelope.header.id.clone();
                self.tools.insert(id, one_line(&propose.tool_name));
                format!("proposed {}: {}", propose.tool_name, propose.description)
            }
            ServerMessage::ToolExecute(execute) => {
                self.granted.insert(execute.tool_proposal.clone(), at);
                format!("runs {}", execute.grant.action.command.summary())
            }
            ServerMessage::ToolResult(result) => {
                let id = result.tool_proposal.clone();
                self.succeeded.insert(id, result.success);
                if result.success {
                    "succeeded"
                } else {
                    "failed"
                }
                .to_owned()
            }
            ServerMessage::GateResolve(_) => {
                self.gates += 1;
                return;
            }
            ServerMessage::ResponseEnd(end) => {
                self.tokens = self.tokens.saturating_add(tokens(end.usage.as_ref()));
                "answered".to_owned()
            }
            ServerMessage::ContextAdd(add) => {
                self.note_key(&add.key, seq, true);
                format!("added {}", add.key)
            }
            ServerMessage::ContextRemove(remove) => {
                self.note_key(&remove.key, seq, false);
                return;
            }
            _ => return,
        };
        if self.summaries.len() < MAX_SUMMARIES {
            self.summaries.push(MessageSummary {
                id: envelope.header.id,
                kind: kind.to_owned(),
                sender: envelope.header.sender.as_str().to_owned(),
                timestamp: at,
                summary: one_line(&summary),
            });
        }
    }

    /// Notes whether a key is there, if no newer entry says so.
    fn note_key(&mut self, key: &str, seq: u64, is_there: bool) {
        let key = one_line(key);
        if self.keys.len() < MAX_NAMES || self.keys.contains_key(&key) {
            let newest = self.keys.entry(key).or_insert((seq, is_there));
            if newest.0 < seq {
                *newest = (seq, is_there);
            }
        }
    }

    /// The keys of the context that were added, without those that were removed since.
    pub(crate) fn context_keys(&self) -> Vec<&str> {
        let there = self.keys.iter().filter(|(_, (_, is_there))| *is_there);
        there.map(|(key, _)| key.as_str()).collect()
    }

    /// The tools that ran, by name.
    pub(crate) fn tool_uses(&self) -> Vec<ToolUse> {
        let mut uses: BTreeMap<&str, Vec<&MessageId>> = BTreeMap::new();
        for proposal in self.granted.keys() {
            // Only a person's own command has no `tool.propose`, and an old proposal's is not read.
            let tool = self.tools.get(proposal).map_or("shell", String::as_str);
            uses.entry(tool).or_default().push(proposal);
        }
        let uses = uses.into_iter().take(MAX_NAMES);
        uses.map(|(tool, proposals)| self.tool_use(tool, &proposals))
            .collect()
    }

    fn tool_use(&self, tool: &str, proposals: &[&MessageId]) -> ToolUse {
        let last = proposals.iter().filter_map(|it| self.granted.get(*it));
        let ended: Vec<_> = proposals
            .iter()
            .filter_map(|it| self.succeeded.get(*it))
            .collect();
        let succeeded = ended.iter().filter(|success| ***success).count();
        ToolUse {
            tool_name: tool.to_owned(),
            execution_count: proposals.len() as u64,
            last_executed: last.max().copied().unwrap_or_default(),
            success_rate: match ended.len() {
                0 => 1.0,
                all => succeeded as f64 / all as f64,
            },
        }
    }

    /// The ids of the messages that are summed up.
    pub(crate) fn message_ids(&self) -> BTreeSet<&str> {
        self.summaries.iter().map(|it| it.id.as_str()).collect()
    }
}

fn may_see(viewer: Option<&Viewer>, audience: &Audience) -> bool {
    match viewer {
        Some(viewer) => viewer.may_see(audience),
        None => *audience == Audience::everyone(),
    }
}

fn tokens(usage: Option<&UsageStats>) -> u64 {
    usage.map_or(0, |usage| {
        usage.input_tokens.saturating_add(usage.output_tokens)
    })
}

/// The beginning of a text, on one line: it becomes part of a commit's message.
pub(crate) fn one_line(text: &str) -> String {
    shortened(text, MAX_SUMMARY_CHARS)
}

/// At most so many characters of a text, without characters that end a line or are not shown.
pub(crate) fn shortened(text: &str, max_chars: usize) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    let mut line: String = text.chars().take(max_chars).map(plain).collect();
    if text.chars().nth(max_chars).is_some() {
        line.push('…');
    }
    line
}

fn unreadable(error: impl std::fmt::Display) -> Refusal {
    Refusal::ReadFailed(error.to_string())
}
