//! What an agent leaves to its client, reading and writing files and running commands: proposed,
//! decided, and carried out by our own executor.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent_client_protocol_schema::v1::{
    CreateTerminalRequest, ReadTextFileRequest, WriteTextFileRequest,
};
use pvp_agent::agent::Agent;
use pvp_agent::proposer::{ProposalEvent, ProposalHandle, ProposeError};
use pvp_protocol::payload::{ClientOrigin, OutputStream};
use pvp_protocol::{FileTool, MessageId};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::terminals::{self, Terminals};
use super::wire::{INTERNAL_ERROR, INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError};
use crate::claimed_text::claimed_text;

/// How long the server may take to record a proposal.
const PROPOSE_PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a file that an agent is given.
const MAX_READ_BYTES: usize = 4 * 1024 * 1024;

/// Why something was not done.
pub(super) struct Denied {
    pub(super) reason: String,
    /// Whether people or rules decided so, which the agent should hear in its conversation too.
    pub(super) decided: bool,
    /// The code of the answer.
    code: i64,
}

impl Denied {
    pub(super) fn decided(reason: String) -> Self {
        Self {
            reason,
            decided: true,
            code: INTERNAL_ERROR,
        }
    }

    pub(super) fn failed(reason: String) -> Self {
        Self {
            reason,
            decided: false,
            code: INTERNAL_ERROR,
        }
    }

    /// There is no such file, which is no failure to agents that are about to make it.
    fn missing(path: &Path) -> Self {
        Self {
            // Some agents read this and not the code.
            reason: format!("Resource not found: {}", path.display()),
            decided: false,
            code: RESOURCE_NOT_FOUND,
        }
    }
}

impl From<ProposeError> for Denied {
    fn from(error: ProposeError) -> Self {
        let decided = matches!(error, ProposeError::Blocked { .. });
        let reason = format!("Not allowed: {error}.");
        Self {
            decided,
            ..Self::failed(reason)
        }
    }
}

impl From<RpcError> for Denied {
    fn from(error: RpcError) -> Self {
        Self::failed(error.message)
    }
}

impl Denied {
    pub(super) fn to_error(&self) -> RpcError {
        RpcError::new(self.code, self.reason.clone())
    }
}

/// A proposal that is withdrawn or stopped when nobody wants it any more.
pub(super) struct DelegatedProposal {
    agent: Arc<Agent>,
    id: MessageId,
    over: AtomicBool,
}

impl DelegatedProposal {
    pub(super) fn new(agent: Arc<Agent>, id: MessageId) -> Self {
        let over = AtomicBool::new(false);
        Self { agent, id, over }
    }

    /// There is nothing to withdraw any more.
    pub(super) fn is_over(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Drop for DelegatedProposal {
    fn drop(&mut self) {
        if self.over.load(Ordering::Relaxed) {
            return;
        }
        let (agent, id) = (self.agent.clone(), self.id.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = agent.cancel(&id, "the agent no longer waits for it").await {
                    tracing::debug!(%error, "a call was not withdrawn");
                }
            });
        }
    }
}

/// Carries out requests of one agent.
#[derive(Clone)]
pub(super) struct Delegate {
    pub(super) agent: Arc<Agent>,
    /// The client that all of it is for.
    pub(super) client: ClientOrigin,
    pub(super) terminals: Terminals,
}

/// Whether a client does this for an agent.
pub(super) fn is_delegated(method: &str) -> bool {
    method.starts_with("fs/") || method.starts_with("terminal/")
}

impl Delegate {
    /// Answers a request.
    pub(super) async fn answer(&self, method: &str, params: Value) -> Result<Value, Denied> {
        let text = |name: &str| params[name].as_str().unwrap_or_default().to_owned();
        let (session, terminal) = (text("sessionId"), text("terminalId"));
        match method {
            "fs/read_text_file" => self.read(&session, parse(params)?).await,
            "fs/write_text_file" => self.write(&session, parse(params)?).await,
            "terminal/create" => self.create_terminal(parse(params)?).await,
            "terminal/output" => Ok(self.terminals.output(&session, &terminal)?),
            "terminal/wait_for_exit" => Ok(self.terminals.wait(&session, &terminal).await?),
            "terminal/release" => Ok(self.terminals.release(&session, &terminal)?),
            "terminal/kill" => {
                let proposal = self.terminals.proposal(&session, &terminal)?;
                // It may have ended just before.
                let _ = self.agent.cancel(&proposal, "the agent stopped it").await;
                Ok(json!({}))
            }
            _ => Err(Denied::failed(format!("`{method}` is not offered here"))),
        }
    }

    /// Where the calls of a conversation come from.
    fn origin(&self, session: &str) -> ClientOrigin {
        ClientOrigin {
            session: claimed_text(session),
            ..self.client.clone()
        }
    }

    async fn read(&self, session: &str, request: ReadTextFileRequest) -> Result<Value, Denied> {
        let file_tool = FileTool::Read {
            path: path_text(&request.path)?,
            offset: request.line.map(|line| u64::from(line.saturating_sub(1))),
            limit: request.limit.map(u64::from),
        };
        match self.run_file_tool(session, file_tool).await {
            Ok(content) => Ok(json!({ "content": content })),
            Err(denied) if !denied.decided && is_missing(&request.path).await => {
                Err(Denied::missing(&request.path))
            }
            Err(denied) => Err(denied),
        }
    }

    async fn write(&self, session: &str, request: WriteTextFileRequest) -> Result<Value, Denied> {
        let file_tool = FileTool::Write {
            path: path_text(&request.path)?,
            content: request.content,
        };
        self.run_file_tool(session, file_tool).await?;
        Ok(json!({}))
    }

    async fn run_file_tool(&self, session: &str, file_tool: FileTool) -> Result<String, Denied> {
        let agent = self.agent.clone();
        let origin = Some(self.origin(session));
        let (handle, open) = self
            .propose(async move { agent.propose_file_tool(&file_tool, "", origin).await })
            .await?;
        let output = output_of(handle).await;
        if output.is_ok() || output.as_ref().is_err_and(|denied| denied.decided) {
            open.is_over();
        }
        output
    }

    async fn create_terminal(&self, request: CreateTerminalRequest) -> Result<Value, Denied> {
        let arguments = terminals::propose_arguments(&request)?;
        let (session, limit) = (&request.session_id.0, request.output_byte_limit);
        let agent = self.agent.clone();
        let origin = Some(self.origin(session));
        let proposed = self
            .propose(async move { agent.propose_even_if_blocked(arguments, "", origin).await })
            .await?;
        self.terminals.open(session, proposed, limit).await
    }

    /// Proposes something, unless the server is away. If nobody waits for it any more, it is
    /// withdrawn as soon as it is proposed.
    async fn propose(
        &self,
        proposing: impl Future<Output = Result<ProposalHandle, ProposeError>> + Send + 'static,
    ) -> Result<(ProposalHandle, DelegatedProposal), Denied> {
        let agent = self.agent.clone();
        let task = tokio::spawn(async move {
            let handle = proposing.await?;
            let open = DelegatedProposal::new(agent, handle.id.clone());
            Ok::<_, ProposeError>((handle, open))
        });
        match tokio::time::timeout(PROPOSE_PATIENCE, task).await {
            Ok(Ok(proposed)) => Ok(proposed?),
            Ok(Err(_)) => Err(Denied::failed(
                "Not allowed: it was not proposed.".to_owned(),
            )),
            Err(_) => Err(Denied::failed(super::SERVER_AWAY.to_owned())),
        }
    }
}

async fn is_missing(path: &Path) -> bool {
    let found = tokio::fs::symlink_metadata(path).await;
    found.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Waits for the end of a call, and returns what it printed.
async fn output_of(mut handle: ProposalHandle) -> Result<String, Denied> {
    let mut edited_by = None;
    let mut output = String::new();
    let mut errors = String::new();
    while let Some(event) = handle.next().await {
        match event {
            ProposalEvent::Output { stream, text } => {
                let to = match stream {
                    OutputStream::Stdout => &mut output,
                    OutputStream::Stderr => &mut errors,
                };
                if to.len() + text.len() > MAX_READ_BYTES {
                    let why = format!("the file has more than {MAX_READ_BYTES} bytes");
                    return Err(Denied::failed(format!(
                        "Not read: {why}; read a part of it."
                    )));
                }
                to.push_str(&text);
            }
            ProposalEvent::Finished(result) if result.success => {
                return match edited_by {
                    // Whoever takes it for done as it was asked would be wrong.
                    Some(by) => Err(Denied::decided(format!(
                        "It was done, but not as you asked: {by} changed it. Read the file again."
                    ))),
                    None => Ok(output),
                };
            }
            ProposalEvent::Edited { by, .. } => {
                edited_by = Some(by.map_or("a person".to_owned(), |by| by.to_string()));
            }
            ProposalEvent::Finished(result) => {
                let why = result.error.unwrap_or(errors);
                return Err(Denied::failed(format!("It failed: {}", why.trim())));
            }
            ProposalEvent::NotRun(resolve) => return Err(Denied::decided(resolve.denial_text())),
            ProposalEvent::Lost => break,
            ProposalEvent::Assessed(_)
            | ProposalEvent::GateOpened { .. }
            | ProposalEvent::Granted { .. }
            | ProposalEvent::Started { .. }
            | ProposalEvent::CancelRequested { .. } => {}
        }
    }
    Err(Denied::failed("Not done: the session is over.".to_owned()))
}

fn parse<T: DeserializeOwned>(params: Value) -> Result<T, RpcError> {
    serde_json::from_value(params).map_err(|error| RpcError::new(INVALID_PARAMS, error.to_string()))
}

fn path_text(path: &Path) -> Result<String, RpcError> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| RpcError::new(INVALID_PARAMS, "`path` is not UTF-8"))
}
