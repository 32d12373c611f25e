//! An agent as a library: proposes commands, runs what is granted, and yields what becomes of each.

use std::collections::BTreeMap;
use std::sync::Arc;

use pvp_client::{ConnectError, Connection, Event, Events, Link, Options, SendError, fresh_id};
use pvp_policy::{Place, Policy};
use pvp_protocol::payload::{
    ActionTaken, ErrorReport, GateOutcome, InterruptAcknowledge, InterruptRaise, PromptSubmit,
    Stream, ToolPropose, ToolResult,
};
use pvp_protocol::{
    Action, ActionError, Assessment, Category, Envelope, Extra, JsonObject, MessageId,
    ParticipantId, Risk, ServerMessage, SessionId, ToolCategory,
};
use tokio::sync::{mpsc, oneshot};

use crate::executor::{Executor, Settings};

/// Why there is no agent.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("{0:#}")]
    Executor(anyhow::Error),
}

/// Why a command was not proposed. Nothing ran, and unless the server refused it nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum ProposeError {
    #[error("blocked by rule `{rule}`: {reason}")]
    Blocked { rule: String, reason: String },
    #[error("{0}")]
    BadArguments(#[from] ActionError),
    #[error("{}", .0.message)]
    Refused(Box<ErrorReport>),
    #[error("the agent has stopped")]
    Over,
}

/// What becomes of a proposal, in order; the last one is `Finished` or `NotRun`.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The server's verdict.
    Judged(Box<Assessment>),
    /// People are asked; what it waits for.
    Waiting {
        quorum: String,
    },
    /// Someone edited it; this is what would run.
    Edited {
        by: Option<ParticipantId>,
        command: String,
    },
    /// It runs.
    Granted {
        approved_by: Vec<ParticipantId>,
    },
    Output {
        stream: Stream,
        text: String,
    },
    Finished(Box<ToolResult>),
    /// It does not run, and why, in words that an agent can act on.
    NotRun {
        outcome: GateOutcome,
        why: String,
    },
}

/// A command on its way.
pub struct Proposal {
    /// Names it from here on, its output too.
    pub id: MessageId,
    steps: mpsc::UnboundedReceiver<Step>,
}

impl Proposal {
    /// The next step; `None` after the last one. Output is bounded by what the grant allows.
    pub async fn next(&mut self) -> Option<Step> {
        self.steps.recv().await
    }

    /// Waits for the end: the result, or why it did not run.
    pub async fn outcome(mut self) -> Option<Step> {
        let mut last = None;
        while let Some(step) = self.next().await {
            last = Some(step);
        }
        last
    }
}

/// What people want of an agent.
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    Prompt {
        id: MessageId,
        prompt: Box<PromptSubmit>,
    },
    Interrupt {
        id: MessageId,
        interrupt: Box<InterruptRaise>,
    },
}

/// What the agent's task is asked to do.
enum Ask {
    Propose {
        arguments: JsonObject,
        purpose: String,
        reply: oneshot::Sender<Result<Proposal, ProposeError>>,
    },
}

/// An agent in a session. Dropping it ends its connection and everything it runs.
pub struct Agent {
    asks: mpsc::Sender<Ask>,
    wishes: mpsc::UnboundedReceiver<Wish>,
    connection: Connection,
    policy: Arc<Policy>,
    place: Place,
}

impl Agent {
    /// Joins the session that a link leads to, ready to run what is granted.
    pub async fn connect(link: Link, settings: Settings) -> Result<Self, AgentError> {
        Self::connect_with(link, settings, Policy::built_in()).await
    }

    /// The same with rules of one's own.
    pub async fn connect_with(
        link: Link,
        settings: Settings,
        policy: Policy,
    ) -> Result<Self, AgentError> {
        let options = Options {
            executor: Some(settings.ability()),
            ..Options::default()
        };
        let place = Place {
            workspace: settings.workspace.to_str().map(str::to_owned),
        };
        let policy = Arc::new(policy);
        let (connection, events) = Connection::open(link, options).await?;
        let executor = Executor::new(connection.clone(), settings, policy.clone())
            .map_err(AgentError::Executor)?;
        let (asks, inbox) = mpsc::channel(16);
        let (wish, wishes) = mpsc::unbounded_channel();
        let task = Task {
            connection: connection.clone(),
            executor,
            open: BTreeMap::new(),
            gates: BTreeMap::new(),
            wish,
        };
        tokio::spawn(task.live(inbox, events));
        Ok(Self {
            asks,
            wishes,
            connection,
            policy,
            place,
        })
    }

    pub fn participant(&self) -> &ParticipantId {
        self.connection.participant()
    }

    pub fn session(&self) -> &SessionId {
        self.connection.session()
    }

    /// The connection, for saying other things.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Proposes a line for the shell. What is blocked here is not even sent.
    pub async fn propose_shell(&self, line: &str) -> Result<Proposal, ProposeError> {
        let mut arguments = JsonObject::new();
        arguments.insert("full_command".to_owned(), line.into());
        self.propose(arguments, "").await
    }

    /// Proposes a command with arguments as `tool.propose` has them, and what it is for.
    pub async fn propose(
        &self,
        arguments: JsonObject,
        purpose: &str,
    ) -> Result<Proposal, ProposeError> {
        let action = Action::read("shell", &arguments)?;
        let verdict = self.policy.assess(&action, &self.place);
        if verdict.category == Category::Blocked {
            let (rule, reason) = (verdict.rule, verdict.reason);
            return Err(ProposeError::Blocked { rule, reason });
        }
        let (reply, answer) = oneshot::channel();
        let ask = Ask::Propose {
            arguments,
            purpose: purpose.to_owned(),
            reply,
        };
        self.asks.send(ask).await.map_err(|_| ProposeError::Over)?;
        answer.await.unwrap_or(Err(ProposeError::Over))
    }

    /// The next thing that people want; `None` when the session is over for us.
    pub async fn next_wish(&mut self) -> Option<Wish> {
        self.wishes.recv().await
    }
}

struct Task {
    connection: Connection,
    executor: Executor,
    open: BTreeMap<MessageId, mpsc::UnboundedSender<Step>>,
    gates: BTreeMap<MessageId, MessageId>,
    wish: mpsc::UnboundedSender<Wish>,
}

impl Task {
    async fn live(mut self, mut inbox: mpsc::Receiver<Ask>, mut events: Events) {
        loop {
            tokio::select! {
                ask = inbox.recv() => match ask {
                    Some(Ask::Propose { arguments, purpose, reply }) => {
                        self.propose(arguments, purpose, reply).await;
                    }
                    None => break,
                },
                event = events.next() => match event {
                    Some(Event::Told { envelope: Some(envelope), .. }) => self.hear(&envelope).await,
                    Some(Event::Up { .. } | Event::Down { .. } | Event::Told { envelope: None, .. }) => {}
                    Some(Event::Ended(_)) | None => break,
                },
            }
        }
        self.executor.end_all("the agent has stopped");
    }

    async fn propose(
        &mut self,
        arguments: JsonObject,
        purpose: String,
        reply: oneshot::Sender<Result<Proposal, ProposeError>>,
    ) {
        let id = fresh_id();
        let propose = ToolPropose {
            tool_name: "shell".to_owned(),
            arguments,
            agent: self.connection.participant().clone(),
            // A claim that can only raise the verdict: this one leaves it to the server.
            risk_level: Risk::Safe,
            description: purpose,
            requires_approval: false,
            suggested_approvers: None,
            category: ToolCategory::ShellExecute,
            assessment: None,
            extra: Extra::new(),
        };
        self.executor.orders().proposed(&id, &propose);
        let (steps, receiver) = mpsc::unbounded_channel();
        self.open.insert(id.clone(), steps);
        let proposal = Proposal {
            id: id.clone(),
            steps: receiver,
        };
        match self.connection.send_with(id, None, propose).await {
            Err(_) => drop(reply.send(Err(ProposeError::Over))),
            // Answers come among the events, so this task does not wait for one.
            Ok(receipt) => drop(tokio::spawn(async move {
                let answer = match receipt.answer().await {
                    Ok(_) => Ok(proposal),
                    Err(SendError::Refused(report)) => Err(ProposeError::Refused(report)),
                    Err(SendError::Over | SendError::Passed) => Err(ProposeError::Over),
                };
                // Who asked may have gone.
                let _ = reply.send(answer);
            })),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is for screens"
    )]
    async fn hear(&mut self, envelope: &Envelope) {
        self.executor.hear(envelope);
        let id = &envelope.heading.id;
        match &envelope.message {
            ServerMessage::ToolPropose(propose) => {
                if let Some(assessment) = &propose.assessment {
                    self.step(id, Step::Judged(Box::new(assessment.clone())));
                }
            }
            ServerMessage::GateRequest(request) => {
                self.gates.insert(id.clone(), request.action_ref.clone());
                let quorum = request.quorum.to_string();
                self.step(&request.action_ref, Step::Waiting { quorum });
            }
            ServerMessage::GateAmend(amend) => self.edited(envelope, &amend.gate, &amend.arguments),
            ServerMessage::GateResolve(resolve) => {
                self.gates.remove(&resolve.gate);
                if resolve.outcome != GateOutcome::Approved {
                    let why = resolve.reason.clone().unwrap_or_default();
                    let outcome = resolve.outcome;
                    self.last_step(&resolve.tool_proposal, Step::NotRun { outcome, why });
                }
            }
            ServerMessage::ToolExecute(execute) => {
                let approved_by = execute.approved_by.clone();
                self.step(&execute.tool_proposal, Step::Granted { approved_by });
            }
            ServerMessage::ToolOutput(output) if !output.text.is_empty() => {
                let (stream, text) = (output.stream, output.text.clone());
                self.step(&output.tool_proposal, Step::Output { stream, text });
            }
            ServerMessage::ToolResult(result) => {
                let step = Step::Finished(Box::new(result.clone()));
                self.last_step(&result.tool_proposal, step);
            }
            ServerMessage::Error(report) => {
                // A refused proposal takes no steps.
                if let Some(id) = &report.related_to {
                    self.open.remove(id);
                }
            }
            ServerMessage::PromptSubmit(prompt)
                if prompt.target_agent == *self.connection.participant() =>
            {
                let (id, prompt) = (id.clone(), Box::new(prompt.clone()));
                // An agent that does not listen to people still runs what they approve.
                let _ = self.wish.send(Wish::Prompt { id, prompt });
            }
            ServerMessage::InterruptRaise(interrupt)
                if interrupt
                    .target
                    .as_ref()
                    .is_none_or(|target| target == self.connection.participant()) =>
            {
                self.acknowledge(id, interrupt).await;
            }
            _ => {}
        }
    }

    fn edited(&mut self, envelope: &Envelope, gate: &MessageId, arguments: &JsonObject) {
        let proposal = self.gates.get(gate).unwrap_or(gate).clone();
        if let Ok(action) = Action::read("shell", arguments) {
            let by = match &envelope.heading.sender {
                pvp_protocol::Sender::System => None,
                pvp_protocol::Sender::Participant(by) => Some(by.clone()),
            };
            let command = action.command.summary();
            self.step(&proposal, Step::Edited { by, command });
        }
    }

    async fn acknowledge(&mut self, id: &MessageId, interrupt: &InterruptRaise) {
        use pvp_protocol::payload::InterruptUrgency::{Emergency, Pause, Stop};
        let action_taken = match interrupt.urgency {
            Pause => ActionTaken::Paused,
            Stop | Emergency => ActionTaken::Stopped,
        };
        let acknowledge = InterruptAcknowledge {
            interrupt: id.clone(),
            by: self.connection.participant().clone(),
            action_taken,
            ignore_reason: None,
            extra: Extra::new(),
        };
        // If it is not taken, the session shows that nobody acknowledged.
        let _ = self.connection.send(acknowledge).await;
        let (id, interrupt) = (id.clone(), Box::new(interrupt.clone()));
        let _ = self.wish.send(Wish::Interrupt { id, interrupt });
    }

    fn step(&self, proposal: &MessageId, step: Step) {
        if let Some(steps) = self.open.get(proposal) {
            // Who proposed it may not care any more.
            let _ = steps.send(step);
        }
    }

    fn last_step(&mut self, proposal: &MessageId, step: Step) {
        self.step(proposal, step);
        self.open.remove(proposal);
    }
}
