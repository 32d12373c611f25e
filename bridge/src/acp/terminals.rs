//! The terminals that an agent has our executor open: commands that people decide on and that run
//! here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent_client_protocol_schema::v1::CreateTerminalRequest;
use pvp_agent::proposer::{ProposalEvent, ProposalHandle};
use pvp_protocol::{JsonObject, MessageId};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::delegated::{DelegatedProposal, Denied};
use super::wire::{INVALID_PARAMS, RpcError};

/// Terminals that an agent may have at a time.
const MAX_TERMINALS: usize = 64;

/// Bytes of output that are kept of a terminal, unless the agent wants fewer.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// Ids of terminals that are remembered after they are released.
const MAX_REMEMBERED: usize = 1024;

/// The terminals of one agent.
#[derive(Clone, Default)]
pub(super) struct Terminals(Arc<Mutex<TerminalList>>);

#[derive(Default)]
struct TerminalList {
    open: BTreeMap<String, Terminal>,
    /// The last that were opened.
    opened: VecDeque<String>,
}

struct Terminal {
    /// The conversation that it was opened in; no other one reaches it.
    session: String,
    state: watch::Receiver<TerminalState>,
    /// Stops the command when it is dropped.
    _proposal: Arc<DelegatedProposal>,
}

#[derive(Debug, Clone, Default)]
struct TerminalState {
    output: String,
    truncated: bool,
    /// How it ended; `None` while it runs.
    exit: Option<Value>,
}

impl TerminalState {
    /// Adds output; of too much the beginning is dropped.
    fn push(&mut self, text: &str, limit: usize) {
        self.output.push_str(text);
        if self.output.len() > limit {
            let start = self.output.len() - limit;
            let start = self.output.ceil_char_boundary(start);
            self.output.drain(..start);
            self.truncated = true;
        }
    }
}

/// The arguments of `tool.propose` for the command of a terminal.
pub(super) fn propose_arguments(request: &CreateTerminalRequest) -> Result<JsonObject, RpcError> {
    let mut arguments = JsonObject::new();
    match request.args.is_empty() {
        // Clients run a command without arguments as a line of the shell.
        true => arguments.insert("full_command".to_owned(), request.command.clone().into()),
        false => {
            arguments.insert("args".to_owned(), request.args.clone().into());
            arguments.insert("command".to_owned(), request.command.clone().into())
        }
    };
    if let Some(cwd) = &request.cwd {
        let cwd = cwd.to_str();
        let cwd = cwd.ok_or_else(|| RpcError::new(INVALID_PARAMS, "`cwd` is not UTF-8"))?;
        arguments.insert("cwd".to_owned(), cwd.into());
    }
    if !request.env.is_empty() {
        let variables = request.env.iter();
        let variables = variables.map(|it| (it.name.clone(), Value::from(it.value.clone())));
        arguments.insert("env".to_owned(), variables.collect::<JsonObject>().into());
    }
    arguments.insert("mode".to_owned(), "slow".into());
    Ok(arguments)
}

impl Terminals {
    /// Waits until a command may run, and shows it as a terminal from then on.
    pub(super) async fn open(
        &self,
        session: &str,
        proposed: (ProposalHandle, DelegatedProposal),
        limit: Option<u64>,
    ) -> Result<Value, Denied> {
        let (mut handle, open) = proposed;
        let open = Arc::new(open);
        let mut state = TerminalState::default();
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.map_or(MAX_OUTPUT_BYTES, |limit| limit.min(MAX_OUTPUT_BYTES));
        loop {
            match handle.next().await {
                Some(ProposalEvent::Edited { by, command, .. }) => {
                    let by = by.map_or("a person".to_owned(), |by| by.to_string());
                    state.output = format!("[PVP: {by} changed the command to: {command}]\n");
                }
                Some(ProposalEvent::Granted { .. } | ProposalEvent::Started { .. }) => break,
                Some(ProposalEvent::NotRun(resolve)) => {
                    open.is_over();
                    return Err(Denied::decided(resolve.denial_text()));
                }
                Some(ProposalEvent::Finished(result)) => {
                    open.is_over();
                    let why = result.error.unwrap_or_else(|| "it has ended".to_owned());
                    return Err(Denied::failed(format!("Not run: {why}.")));
                }
                Some(ProposalEvent::Lost) | None => {
                    return Err(Denied::failed("Not run: the session is over.".to_owned()));
                }
                Some(
                    ProposalEvent::Assessed(_)
                    | ProposalEvent::GateOpened { .. }
                    | ProposalEvent::Output { .. }
                    | ProposalEvent::CancelRequested { .. },
                ) => {}
            }
        }
        let id = handle.id.to_string();
        let (sender, receiver) = watch::channel(state);
        let terminal = Terminal {
            session: session.to_owned(),
            state: receiver,
            _proposal: open.clone(),
        };
        {
            let mut terminals = self.lock();
            if terminals.open.len() >= MAX_TERMINALS {
                return Err(Denied::failed(format!(
                    "Not run: {MAX_TERMINALS} terminals are open; release one."
                )));
            }
            terminals.open.insert(id.clone(), terminal);
            terminals.opened.push_back(id.clone());
            if terminals.opened.len() > MAX_REMEMBERED {
                terminals.opened.pop_front();
            }
        }
        tokio::spawn(follow(handle, Arc::downgrade(&open), sender, limit));
        Ok(json!({ "terminalId": id }))
    }

    /// What a terminal shows.
    pub(super) fn output(&self, session: &str, id: &str) -> Result<Value, RpcError> {
        let state = self.state(session, id)?.borrow().clone();
        Ok(json!({
            "output": state.output, "truncated": state.truncated, "exitStatus": state.exit,
        }))
    }

    /// Waits until the command of a terminal has ended.
    pub(super) async fn wait(&self, session: &str, id: &str) -> Result<Value, RpcError> {
        let mut state = self.state(session, id)?;
        let ended = state.wait_for(|state| state.exit.is_some()).await;
        let exit = ended.ok().and_then(|state| state.exit.clone());
        Ok(exit.unwrap_or_else(|| json!({ "exitCode": null, "signal": null })))
    }

    /// The command of a terminal.
    pub(super) fn proposal(&self, session: &str, id: &str) -> Result<MessageId, RpcError> {
        self.state(session, id)?;
        MessageId::parse(id).map_err(|error| RpcError::new(INVALID_PARAMS, error.to_string()))
    }

    /// Forgets a terminal, which stops its command.
    pub(super) fn release(&self, session: &str, id: &str) -> Result<Value, RpcError> {
        self.state(session, id)?;
        let removed = self.lock().open.remove(id);
        removed.map(|_| json!({})).ok_or_else(unknown)
    }

    /// Stops every command of a conversation.
    pub(super) fn release_all(&self, session: &str) {
        self.lock().open.retain(|_, open| open.session != session);
    }

    /// Whether this is one of them, even if it was released.
    pub(super) fn was_opened(&self, id: &str) -> bool {
        self.lock().opened.iter().any(|opened| opened == id)
    }

    fn state(&self, session: &str, id: &str) -> Result<watch::Receiver<TerminalState>, RpcError> {
        let terminals = self.lock();
        let terminal = terminals.open.get(id).filter(|it| it.session == session);
        terminal.map(|it| it.state.clone()).ok_or_else(unknown)
    }

    fn lock(&self) -> MutexGuard<'_, TerminalList> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown() -> RpcError {
    RpcError::new(INVALID_PARAMS, "there is no such terminal")
}

/// Keeps what a terminal shows up to date, until its command has ended.
async fn follow(
    mut handle: ProposalHandle,
    open: std::sync::Weak<DelegatedProposal>,
    state: watch::Sender<TerminalState>,
    limit: usize,
) {
    let mut exit = json!({ "exitCode": null, "signal": null });
    while let Some(event) = handle.next().await {
        match event {
            ProposalEvent::Output { text, .. } => {
                state.send_modify(|state| state.push(&text, limit))
            }
            ProposalEvent::Finished(result) => {
                let value = serde_json::to_value(&result.result).unwrap_or_default();
                exit["exitCode"] = value["exitCode"].clone();
                if let Some(error) = &result.error {
                    let text = format!("[PVP: {error}]\n");
                    state.send_modify(|state| state.push(&text, limit));
                }
            }
            ProposalEvent::NotRun(_)
            | ProposalEvent::Lost
            | ProposalEvent::Assessed(_)
            | ProposalEvent::GateOpened { .. }
            | ProposalEvent::Edited { .. }
            | ProposalEvent::Granted { .. }
            | ProposalEvent::Started { .. }
            | ProposalEvent::CancelRequested { .. } => {}
        }
    }
    if let Some(open) = open.upgrade() {
        open.is_over();
    }
    state.send_modify(|state| state.exit = Some(exit));
}
