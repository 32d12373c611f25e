//! What the steps of the tour have in common: proposing, watching, and telling the person what to
//! type.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use pvp_agent::agent::Agent;
use pvp_agent::proposer::ProposalHandle;
use pvp_client::{ApiClient, Link};
use pvp_protocol::api::GateListItem;
use pvp_protocol::payload::{ClearedBy, GateOutcome};
use pvp_protocol::{
    Envelope, JsonObject, MessageId, ParticipantId, Sender, ServerMessage, SessionId,
};
use tokio::sync::mpsc;

use super::log_watcher;
use super::typed_commands::{self, TypedCommands, TypedLine};
use crate::cli::program_name::program_name;
use crate::cli::{one_line, print_line};

/// The person has left the tour.
#[derive(Debug)]
pub(super) struct Left;

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the tour was left")
    }
}

impl std::error::Error for Left {}

/// What happens to a proposal.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Happening {
    GateOpened,
    Approved { by: ParticipantId },
    Edited,
    Started { cleared_by: ClearedBy },
    Ended(TourOutcome),
}

/// How a proposal ended.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TourOutcome {
    /// With this exit code; `None` if it was stopped.
    Ran(Option<i64>),
    NotRun {
        outcome: GateOutcome,
        reason: Option<String>,
    },
}

/// Leads one person through the steps.
pub(super) struct Guide {
    /// The agent that proposes the commands of the tour.
    agent: Agent,
    /// Asks the server in the person's name.
    api: Arc<ApiClient>,
    /// The session of the tour.
    pub(super) session: SessionId,
    /// The person.
    pub(super) me: ParticipantId,
    /// How instructions call this program.
    pub(super) pvp: String,
    /// What happens in the session.
    log: mpsc::Receiver<Box<Envelope>>,
    /// What the person types into the tour.
    typed: TypedCommands,
    /// The proposal that the step is about; kept, so that its events are received.
    current: Option<ProposalHandle>,
    /// The gate of that proposal, once it is open.
    gate: Option<MessageId>,
    /// Whether somebody interrupted the agent since the last proposal.
    interrupted: bool,
    /// The prefixes that somebody has allowed.
    allowed: BTreeSet<Vec<String>>,
    /// Whether each approval is told, because more than one is needed.
    pub(super) tells_votes: bool,
    /// The number of the step that is shown.
    step: usize,
}

const STEPS: usize = 7;

impl Guide {
    pub(super) async fn start(agent: Agent, own_link: Link) -> anyhow::Result<Self> {
        let session = agent.session().clone();
        let api = Arc::new(ApiClient::new(own_link.clone()));
        let asking = api.clone();
        let me = tokio::task::spawn_blocking(move || asking.whoami()).await??;
        Ok(Self {
            agent,
            api,
            me: me.participant,
            pvp: program_name(),
            log: log_watcher::watch(own_link, session.clone()),
            typed: TypedCommands::listen(),
            session,
            current: None,
            gate: None,
            interrupted: false,
            allowed: BTreeSet::new(),
            tells_votes: false,
            step: 0,
        })
    }

    /// Prints the title of the next step.
    pub(super) fn begin_step(&mut self, title: &str) -> anyhow::Result<()> {
        self.step += 1;
        print_line(format!("\n== Step {} of {STEPS}: {title}", self.step))
    }

    /// Prints a paragraph.
    pub(super) fn say(&self, text: &str) -> anyhow::Result<()> {
        print_line(format!("\n{text}"))
    }

    /// Prints what to type, with the program's name before it.
    pub(super) fn show_command(&self, arguments: &str) -> anyhow::Result<()> {
        print_line(format!("\n    {} {arguments}", self.pvp))
    }

    /// Proposes a command as the agent.
    pub(super) async fn propose(&mut self, command: &str, purpose: &str) -> anyhow::Result<()> {
        let mut arguments = JsonObject::new();
        arguments.insert("full_command".to_owned(), command.into());
        arguments.insert("mode".to_owned(), "slow".into());
        self.interrupted = false;
        print_line(format!("\nagent proposes: {command} ({purpose})"))?;
        let proposed = self.agent.propose(arguments, purpose).await;
        self.current = Some(proposed.context("proposing a command")?);
        Ok(())
    }

    /// Waits until something happens to the proposal of this step.
    pub(super) async fn next_happening(&mut self) -> anyhow::Result<Happening> {
        loop {
            let envelope = self.next_entry().await?;
            let current = self.current.as_ref().context("nothing was proposed")?;
            let names = |id: &MessageId| *id == current.id || self.gate.as_ref() == Some(id);
            let Some(happening) = happening(&envelope, &current.id, names) else {
                continue;
            };
            if happening == Happening::GateOpened {
                self.gate = Some(envelope.header.id);
            }
            return Ok(happening);
        }
    }

    /// Waits for the next entry of the log, and runs what is typed meanwhile.
    pub(super) async fn next_entry(&mut self) -> anyhow::Result<Box<Envelope>> {
        loop {
            let typed = tokio::select! {
                entry = self.log.recv() => {
                    let entry = entry.context("the server stopped")?;
                    self.note(&entry.message);
                    return Ok(entry);
                }
                typed = self.typed.next() => typed,
            };
            match typed {
                TypedLine::Nothing => {}
                TypedLine::Quit => return Err(Left.into()),
                TypedLine::Command(arguments) => typed_commands::run(&arguments).await?,
                TypedLine::NotUnderstood(hint) => print_line(hint)?,
            }
            self.typed.resume();
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "other messages change nothing that a later step asks for"
    )]
    fn note(&mut self, message: &ServerMessage) {
        match message {
            ServerMessage::InterruptRaise(_) => self.interrupted = true,
            ServerMessage::PolicyAllow(allow) => {
                self.allowed.insert(allow.prefix.clone());
            }
            _ => {}
        }
    }

    /// Whether somebody interrupted the agent since the last proposal.
    pub(super) fn was_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Whether somebody has allowed commands that begin with this word.
    pub(super) fn is_allowed(&self, word: &str) -> bool {
        self.allowed.contains(&vec![word.to_owned()])
    }

    /// Prints the verdict on the command that waits, and what to type, with its handle.
    pub(super) async fn show_gate(
        &self,
        why: &str,
        arguments: impl Fn(&str) -> String,
    ) -> anyhow::Result<()> {
        // It may have been decided already.
        let Some(gate) = self.gate_of_current().await? else {
            return Ok(());
        };
        let assessment = &gate.open.assessment;
        print_line(format!(
            "  {}, {} risk: {} [{}]",
            assessment.category_label(),
            assessment.risk,
            one_line(&assessment.reason),
            assessment.rule
        ))?;
        self.say(why)?;
        self.show_command(&arguments(&gate.open.handle()))
    }

    /// The open gate of this step's proposal.
    async fn gate_of_current(&self) -> anyhow::Result<Option<GateListItem>> {
        let Some(proposal) = self.current.as_ref().map(|current| current.id.clone()) else {
            return Ok(None);
        };
        let (api, session) = (self.api.clone(), self.session.clone());
        let list = tokio::task::spawn_blocking(move || api.list_gates(None, Default::default()));
        let mut gates = list.await??.gates.into_iter();
        Ok(gates.find(|gate| gate.session == session && gate.open.request.action_ref == proposal))
    }

    /// Whether a message is from the person.
    pub(super) fn is_mine(&self, envelope: &Envelope) -> bool {
        envelope.header.sender == Sender::Participant(self.me.clone())
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "other messages are not about a proposal"
)]
fn happening(
    envelope: &Envelope,
    proposal: &MessageId,
    names: impl Fn(&MessageId) -> bool,
) -> Option<Happening> {
    let by = || match &envelope.header.sender {
        Sender::Participant(by) => Some(by.clone()),
        Sender::System => None,
    };
    match &envelope.message {
        ServerMessage::GateRequest(request) if request.action_ref == *proposal => {
            Some(Happening::GateOpened)
        }
        ServerMessage::GateApprove(vote) if names(&vote.gate) => {
            Some(Happening::Approved { by: by()? })
        }
        ServerMessage::ToolApprove(vote) if names(&vote.tool_proposal) => {
            Some(Happening::Approved { by: by()? })
        }
        ServerMessage::GateAmend(amend) if names(&amend.gate) => Some(Happening::Edited),
        ServerMessage::ToolExecute(execute) if execute.tool_proposal == *proposal => {
            let cleared_by = execute.grant.cleared_by;
            Some(Happening::Started { cleared_by })
        }
        ServerMessage::ToolResult(result) if result.tool_proposal == *proposal => {
            let code = result.exit_code();
            Some(Happening::Ended(TourOutcome::Ran(code)))
        }
        ServerMessage::GateResolve(resolve)
            if resolve.tool_proposal == *proposal && resolve.outcome != GateOutcome::Approved =>
        {
            Some(Happening::Ended(TourOutcome::NotRun {
                outcome: resolve.outcome,
                reason: resolve.reason.clone(),
            }))
        }
        _ => None,
    }
}
