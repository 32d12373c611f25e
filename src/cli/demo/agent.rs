//! The demo's agent: a script of proposals, and an answer to what becomes of each.

use std::sync::Arc;

use anyhow::bail;
use pvp_agent::executor::{Executor, Settings};
use pvp_client::{Connection, Event, Events, SendError};
use pvp_policy::Policy;
use pvp_protocol::payload::{
    ActionTaken, FinishReason, GateOutcome, GateResolve, InterruptAcknowledge, ResponseChunk,
    ResponseEnd, ResponseStart, ToolResult,
};
use pvp_protocol::{Envelope, Extra, MessageId, ServerMessage};

use crate::cli::{one_line, say};

/// What it wants to do, in order, and what it says it is for.
const SCRIPT: [(&str, &str); 4] = [
    ("cat notes.txt", "see what is on the list"),
    ("echo eggs >> notes.txt", "put eggs on the list"),
    ("rm -rf old-notes", "clean up what nobody needs"),
    ("rm -rf / --no-preserve-root", "free some space"),
];

pub(super) struct Agent {
    connection: Connection,
    executor: Executor,
    /// The next line of the script.
    next: usize,
    /// What was proposed and is not over.
    open: Option<MessageId>,
}

impl Agent {
    /// Plays the script until the connection is over.
    pub(super) async fn play(
        connection: Connection,
        mut events: Events,
        settings: Settings,
    ) -> anyhow::Result<()> {
        let policy = Arc::new(Policy::built_in());
        let mut agent = Self {
            executor: Executor::new(connection.clone(), settings, policy)?,
            connection,
            next: 0,
            open: None,
        };
        agent.propose().await?;
        loop {
            match events.next().await {
                Some(Event::Told {
                    envelope: Some(envelope),
                    ..
                }) => {
                    agent.executor.hear(&envelope);
                    agent.hear(*envelope).await?;
                }
                Some(Event::Ended(_)) | None => return Ok(()),
                Some(
                    Event::Up { .. } | Event::Down { .. } | Event::Told { envelope: None, .. },
                ) => {}
            }
        }
    }

    /// Proposes the next command of the script.
    async fn propose(&mut self) -> anyhow::Result<()> {
        while let Some((command, purpose)) = SCRIPT.get(self.next) {
            self.next += 1;
            say(format!("agent: I want to {purpose}: {command}"))?;
            let receipt = self.connection.propose_shell(command, purpose).await?;
            let id = receipt.id.clone();
            match receipt.answer().await {
                Ok(_) => {
                    self.open = Some(id);
                    return Ok(());
                }
                Err(SendError::Refused(report)) => say(format!("agent: no? {}", report.message))?,
                Err(error) => bail!(error),
            }
        }
        say("agent: that is all I know; `pvp send again` and I begin again")
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "an agent with a script minds little else"
    )]
    async fn hear(&mut self, envelope: Envelope) -> anyhow::Result<()> {
        let id = envelope.heading.id;
        match envelope.message {
            ServerMessage::GateRequest(request) if self.is_open(&request.action_ref) => {
                say(format!("agent: it waits ({})", request.quorum))
            }
            ServerMessage::GateResolve(resolve) if self.is_open(&resolve.tool_proposal) => {
                self.resolved(&resolve).await
            }
            ServerMessage::ToolResult(result) if self.is_open(&result.tool_proposal) => {
                self.finished(&result).await
            }
            ServerMessage::PromptSubmit(prompt)
                if prompt.target_agent == *self.connection.participant() =>
            {
                self.answer(id).await
            }
            ServerMessage::InterruptRaise(_) => {
                let acknowledge = InterruptAcknowledge {
                    interrupt: id,
                    by: self.connection.participant().clone(),
                    action_taken: ActionTaken::Acknowledged,
                    ignore_reason: None,
                    extra: Extra::new(),
                };
                self.connection.send(acknowledge).await?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn is_open(&self, proposal: &MessageId) -> bool {
        self.open.as_ref() == Some(proposal)
    }

    async fn resolved(&mut self, resolve: &GateResolve) -> anyhow::Result<()> {
        let why = one_line(resolve.reason.as_deref().unwrap_or("no reason given"));
        match resolve.outcome {
            GateOutcome::Approved => return say("agent: thank you"),
            GateOutcome::Rejected => say(format!("agent: I will not do it then ({why})"))?,
            GateOutcome::TimedOut => say("agent: nobody answered")?,
            GateOutcome::Cancelled => say("agent: it was withdrawn")?,
        }
        self.open = None;
        self.propose().await
    }

    async fn finished(&mut self, result: &ToolResult) -> anyhow::Result<()> {
        let code = result.result.as_ref().and_then(|body| body.exit_code);
        match (code, &result.error) {
            (_, Some(error)) => say(format!("agent: {error}"))?,
            (Some(code), None) => say(format!("agent: done, exit {code}"))?,
            (None, None) => say("agent: done")?,
        }
        self.open = None;
        self.propose().await
    }

    /// Answers a prompt, and begins again if nothing is under way.
    async fn answer(&mut self, prompt: MessageId) -> anyhow::Result<()> {
        let idle = self.open.is_none();
        let text = match idle {
            true => "I only know my script, so I begin again.",
            false => "One thing after the other: my last proposal still waits.",
        };
        let agent = self.connection.participant().clone();
        let start = ResponseStart {
            agent,
            prompt_ref: prompt,
            extra: Extra::new(),
        };
        let start = self.connection.send(start).await?.id;
        let chunk = ResponseChunk {
            text: text.to_owned(),
            extra: Extra::new(),
        };
        let end = ResponseEnd {
            finish_reason: FinishReason::Complete,
            usage: None,
            extra: Extra::new(),
        };
        let about = || Some(start.clone());
        self.connection
            .send_with(pvp_client::fresh_id(), about(), chunk)
            .await?;
        self.connection
            .send_with(pvp_client::fresh_id(), about(), end)
            .await?;
        if idle {
            self.next = 0;
            return self.propose().await;
        }
        Ok(())
    }
}
