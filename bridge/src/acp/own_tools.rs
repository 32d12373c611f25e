//! Our own tools, offered to an agent as an MCP server: the agent starts a program that passes
//! everything on to this process, so that the agent holds no token and no second identity is needed.

use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;

use agent_client_protocol_schema::v1::{ToolCall, ToolKind};
use anyhow::Context;
use pvp_agent::agent::Agent;
use serde_json::{Value, json};

use crate::mcp::{McpOptions, RelayListener};
use crate::supervisor::SupervisedClient;

/// The tools that are offered.
const TOOLS: [&str; 6] = [
    "shell",
    "read_file",
    "write_file",
    "edit_file",
    "recall",
    "jobs",
];

/// The MCP server that an agent is offered; it ends when this is dropped.
pub(super) struct OwnTools {
    /// What the server is called. The name is made up for each start, so that nothing that was
    /// configured before can have it.
    name: String,
    listening: Option<Listening>,
}

struct Listening {
    directory: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
        // What is left there is of no use to anybody.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl OwnTools {
    /// Listens for the program of this client. Without a place to listen at, there are no tools.
    pub(super) fn listen(agent: &Arc<Agent>, client: &SupervisedClient) -> Self {
        let name = format!("pvp{}", super::random_word());
        let options = McpOptions {
            client: Some(client.origin()),
            ..McpOptions::default()
        };
        let listening = listen(&name, agent.clone(), options);
        if let Err(error) = &listening {
            tracing::warn!(%error, "the agent is not offered the tools of PVP");
        }
        let listening = listening.ok();
        Self { name, listening }
    }

    /// The servers to add to those that an agent is told to use.
    pub(super) fn servers(&self) -> Vec<Value> {
        let program = std::env::current_exe().ok();
        let (Some(listening), Some(program)) = (&self.listening, program) else {
            return Vec::new();
        };
        let arguments = [json!("mcp"), json!("--relay"), json!(listening.directory)];
        vec![json!({ "name": self.name, "command": program, "args": arguments, "env": [] })]
    }

    /// Whether a call is one of these tools, each of which asks by itself.
    pub(super) fn is_call(&self, call: &ToolCall) -> bool {
        // A model may choose the title of a command, but hardly that of an unknown kind of tool.
        let titled = call.kind == ToolKind::Other && call.content.is_empty();
        let title = titled.then_some(call.title.as_str());
        let Some(name) = call.name.as_deref().or(title) else {
            return false;
        };
        self.listening.is_some() && TOOLS.iter().any(|tool| is_name(name, &self.name, tool))
    }
}

/// Whether an agent's name for a tool is that of this tool of this server.
fn is_name(name: &str, server: &str, tool: &str) -> bool {
    [
        format!("mcp__{server}__{tool}"),
        format!("mcp_{server}_{tool}"),
        format!("mcp.{server}.{tool}"),
        format!("{server}_{tool}"),
        format!("{server}-{tool}"),
        format!("{tool} ({server} MCP Server)"),
    ]
    .iter()
    .any(|known| known == name)
}

fn listen(name: &str, agent: Arc<Agent>, options: McpOptions) -> anyhow::Result<Listening> {
    let directory = std::env::temp_dir().join(name);
    // It must be new, and nobody else may look into it.
    let made = std::fs::DirBuilder::new().mode(0o700).create(&directory);
    made.with_context(|| format!("making {}", directory.display()))?;
    let listener = RelayListener::bind(&directory).context("listening")?;
    let task = tokio::spawn(listener.serve(agent, options));
    Ok(Listening { directory, task })
}
