//! An MCP server whose tools run through the gates of a session.
//!
//! A client whose own shell and file tools are switched off has these in their place: what it calls
//! is proposed, decided and run as for any other agent. Whatever the client does, it is only ever
//! answered; memory stays bounded, and nothing of it outlives the client.

mod approve;
mod followed_call;
mod progress;
mod relay;
mod tools;
mod transport;

pub use relay::{RelayListener, relay_stdio};

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use pvp_agent::agent::{Agent, AgentInputs};
use pvp_agent::brain::{CallResult, ResultTextLimits, ToolCall};
use pvp_agent::tool_calls::{CallRunner, StartedCall, tool_context};
use pvp_protocol::JsonObject;
use pvp_protocol::payload::ClientOrigin;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::{RequestContext, RoleServer, ServerInitializeError, serve_server};
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};

use approve::{PermissionPrompts, PromptAnswer};
use followed_call::FollowedCall;
use tools::ToolList;
use transport::BoundedTransport;

use crate::leases::LeaseRenewal;

/// Calls that are under way at a time; further ones are refused.
const MAX_CALLS: usize = 64;

/// Bytes of the arguments of a call as JSON; no proposal that a server takes is longer.
const MAX_ARGUMENT_BYTES: usize = 1024 * 1024;

/// Bytes of one message. A line that is longer is skipped, and nobody waits for room for it.
const MAX_LINE_BYTES: usize = 8 * 1024 * 1024;

/// How an MCP server behaves.
#[derive(Debug, Clone)]
pub struct McpOptions {
    /// The client, if whoever offers it the tools knows; otherwise what it calls itself counts.
    pub client: Option<ClientOrigin>,
    /// How often a client that asked for progress hears that its call still waits or runs.
    pub progress_interval: Duration,
    /// How much of a command's output goes into a result.
    pub text_limits: ResultTextLimits,
}

impl Default for McpOptions {
    fn default() -> Self {
        Self {
            client: None,
            progress_interval: Duration::from_secs(3),
            text_limits: ResultTextLimits::default(),
        }
    }
}

/// Serves a client on standard input and output until it closes the input. Dropping the agent then
/// withdraws what waits, stops what runs, and leaves the session.
pub async fn serve(mut agent: Agent, options: McpOptions) -> anyhow::Result<()> {
    let (input, output) = rmcp::transport::stdio_pipes();
    if let Some(inputs) = agent.take_inputs() {
        tokio::spawn(skip_inputs(inputs));
    }
    serve_streams(Arc::new(agent), options, input, output).await
}

async fn serve_streams(
    agent: Arc<Agent>,
    options: McpOptions,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> anyhow::Result<()> {
    let (closed_sender, closed) = watch::channel(false);
    let streams = AsyncRwTransport::new_server(input, output).with_max_line_length(MAX_LINE_BYTES);
    let transport = BoundedTransport::new(streams, closed_sender);
    let server = McpServer {
        tools: ToolList::new(&tool_context(&agent)),
        leases: LeaseRenewal::keep(agent.proposer().clone()),
        agent,
        options,
        approvals: OnceLock::new(),
        free_calls: Semaphore::new(MAX_CALLS),
        closed,
    };
    let running = match serve_server(server, transport).await {
        Ok(running) => running,
        // It left before it said anything.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(error).context("the client did not begin as an MCP client does"),
    };
    running.waiting().await.context("serving the client")?;
    Ok(())
}

/// Reads what people ask of the agent. The client has no way to hear it; an interrupt has already
/// stopped what it had to stop, and the results say so.
async fn skip_inputs(mut inputs: AgentInputs) {
    while inputs.next().await.is_some() {}
}

struct McpServer {
    /// Proposes and runs the calls.
    agent: Arc<Agent>,
    /// The tools that the client is offered.
    tools: ToolList,
    /// How it behaves.
    options: McpOptions,
    /// Asks about the client's own tools, once it wants that.
    approvals: OnceLock<PermissionPrompts>,
    /// One permit for each further call that may be under way.
    free_calls: Semaphore,
    /// Becomes true when the client has closed its side.
    closed: watch::Receiver<bool>,
    /// Keeps what waits from being withdrawn.
    leases: LeaseRenewal,
}

impl McpServer {
    async fn call(
        &self,
        name: &str,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        let arguments_text = serde_json::Value::Object(arguments.clone()).to_string();
        if arguments_text.len() > MAX_ARGUMENT_BYTES {
            return failure(
                name,
                &format!(
                    "Nothing was done: the arguments have {} bytes, and a call has at most \
                     {MAX_ARGUMENT_BYTES}. Write long text in several steps.",
                    arguments_text.len()
                ),
            );
        }
        let Ok(_under_way) = self.free_calls.try_acquire() else {
            return failure(
                name,
                &format!(
                    "Nothing was done: {MAX_CALLS} calls are under way already. Wait for their \
                     results, then call again."
                ),
            );
        };
        let interval = self.options.progress_interval;
        let closed = self.closed.clone();
        let followed = FollowedCall::new(&self.agent, context, interval, closed);
        if name == tools::APPROVE {
            let approvals = self.approvals.get_or_init(|| self.new_approvals(&followed));
            return approval_result(&approvals.answer(&followed, &arguments).await);
        }
        let call = ToolCall {
            id: String::new(),
            name: tools::internal_name(name).to_owned(),
            arguments: arguments_text,
        };
        tool_result(self.run(&followed, &call).await)
    }

    fn new_approvals(&self, followed: &FollowedCall<'_>) -> PermissionPrompts {
        let ClientOrigin {
            client, version, ..
        } = self.client_of(followed);
        PermissionPrompts::new(&self.agent, client, version)
    }

    fn client_of(&self, followed: &FollowedCall<'_>) -> ClientOrigin {
        let known = self.options.client.clone();
        known.unwrap_or_else(|| followed.claimed_client())
    }

    async fn run(&self, followed: &FollowedCall<'_>, call: &ToolCall) -> CallResult {
        let origin = ClientOrigin {
            call: followed.call_id(),
            ..self.client_of(followed)
        };
        let runner = CallRunner {
            agent: &self.agent,
            text_limits: self.options.text_limits,
            origin: Some(&origin),
            on_event: &|_| {},
        };
        // This is not given up when the call is cancelled: a proposal that is on its way has to be
        // withdrawn.
        let started: StartedCall = followed.starting(runner.start(call)).await;
        let (proposal, gate) = (started.proposal().cloned(), started.gate_progress());
        let _lease = proposal.clone().map(|id| self.leases.hold(id));
        let finished = followed.follow(proposal.as_ref(), gate, runner.finish(started));
        let cancelled = || CallResult::failed(followed_call::CANCELLED);
        finished.await.unwrap_or_else(cancelled)
    }
}

impl rmcp::ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("pvp", env!("CARGO_PKG_VERSION")))
            .with_instructions(self.tools.instructions.clone())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.tools.clone()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        if let Some(problem) = self.tools.unknown(name) {
            return Err(ErrorData::invalid_params(problem, None));
        }
        let arguments = request.arguments.unwrap_or_default();
        Ok(self.call(name, arguments, context).await.into())
    }
}

/// The result of a call that came to nothing.
fn failure(name: &str, why: &str) -> CallToolResult {
    match name == tools::APPROVE {
        true => approval_result(&PromptAnswer::deny(why)),
        false => tool_result(CallResult::failed(why)),
    }
}

fn tool_result(result: CallResult) -> CallToolResult {
    // Before a proposal, the text may name the tools.
    let text = match result.outcome.status {
        None if result.failed => tools::with_offered_names(&result.text),
        None | Some(_) => result.text,
    };
    let content = vec![ContentBlock::text(text)];
    match result.failed {
        true => CallToolResult::error(content),
        false => CallToolResult::success(content),
    }
}

/// A denial is an answer, not an error: a client that sees an error may take it for a broken tool.
fn approval_result(decision: &PromptAnswer) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(decision.to_json())])
}
