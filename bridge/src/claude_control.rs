//! Claude Code without a screen, spoken to over its standard input and output.
//!
//! Its control protocol lets whoever started it register hooks that are asked over the same pipe.
//! The client waits for each answer, so nothing runs unasked, and an end of the pipe ends the client.

mod asked_calls;
#[cfg(test)]
mod captured;
mod pipe;
mod question;

use std::ffi::OsString;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use pvp_protocol::payload::FinishReason;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::BufReader;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use crate::client_processes::ClientProcesses;
use crate::headless::{ClientEvent, ClientInstruction, HeadlessClient};
use crate::hooks::{HookAnswer, HookClient, HookEvent, HookedCall};
use crate::json_lines::{JsonLine, JsonLines};
use crate::launch::claude::{
    MEMORY_VARIABLE, SOURCE_OF_USER, VARIABLES_WITHOUT_HOOKS, check_words, memory_word,
};
use crate::launch::{LaunchError, ProjectPlace, ProjectTrust};
use crate::supervisor::Supervisor;
use asked_calls::{AskedCalls, CallUpdate};
use pipe::Pipe;
use question::ControlQuestion;

/// How long the client may take to say hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(60);

/// Things that the client said and nobody has read yet.
const MAX_UNREAD_EVENTS: usize = 256;

/// The hooks that are registered: the events that are about calls.
const HOOKED_EVENTS: [&str; 4] = [
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
];

/// What the client is started with.
const ARGUMENTS: [&str; 11] = [
    "-p",
    "--input-format",
    "stream-json",
    "--output-format",
    "stream-json",
    "--verbose",
    "--permission-prompt-tool",
    "stdio",
    // A repository may not switch the hooks off.
    "--settings={\"disableAllHooks\":false}",
    // Nor may its hooks change what people were asked about.
    SOURCE_OF_USER[0],
    SOURCE_OF_USER[1],
];

/// Flags of a person that would take the place of ours.
const REFUSED_FLAGS: [&str; 6] = [
    "--settings",
    "--dangerously-skip-permissions",
    "--allow-dangerously-skip-permissions",
    "--permission-prompt-tool",
    "--input-format",
    "--output-format",
];

/// The command that starts the client in a directory, with arguments of a person.
pub fn command(
    program: &OsString,
    arguments: &[OsString],
    workspace: &Path,
) -> Result<Command, LaunchError> {
    let trust = ProjectTrust::Untrusted;
    check_words(arguments, ProjectPlace { workspace, trust })?;
    for word in arguments {
        let text = word.to_string_lossy();
        let flag = text.split_once('=').map_or(&*text, |(flag, _)| flag);
        let bypasses = text.contains("bypassPermissions");
        if REFUSED_FLAGS.contains(&flag) || bypasses {
            let flag = text.into_owned();
            return Err(LaunchError::SwitchesOff { flag });
        }
    }
    let mut command = Command::new(program);
    command.args(ARGUMENTS);
    if let Some(word) = memory_word(workspace) {
        command.arg(word).env(MEMORY_VARIABLE, "1");
    }
    command.args(arguments);
    for name in VARIABLES_WITHOUT_HOOKS {
        command.env_remove(name);
    }
    Ok(command)
}

/// Starts the client for the session that the supervisor is in.
pub async fn start(supervisor: Supervisor, mut command: Command) -> anyhow::Result<HeadlessClient> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().context("starting the client")?;
    let stdin = child.stdin.take().context("writing to the client")?;
    let stdout = child.stdout.take().context("reading from the client")?;
    let mut pipe = Pipe {
        stdin,
        lines: JsonLines::new(BufReader::new(stdout)),
        requests: 0,
    };
    let hello = tokio::time::timeout(HELLO_TIMEOUT, pipe.initialize()).await;
    hello.context("the client did not answer; is it Claude Code 2.1 or newer?")??;
    let (instructions, instruction_receiver) = mpsc::channel(16);
    let (events_sender, events) = mpsc::channel(MAX_UNREAD_EVENTS);
    let (updates, update_receiver) = mpsc::channel(64);
    let task = ControlTask {
        processes: child.id().map(ClientProcesses::note),
        child,
        pipe,
        calls: AskedCalls::new(supervisor, updates),
        events: events_sender,
        interrupted: false,
    };
    tokio::spawn(task.run(instruction_receiver, update_receiver));
    Ok(HeadlessClient {
        instructions,
        events,
    })
}

/// Whether to go on with the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    GoOn,
    End,
}

struct ControlTask {
    /// The client.
    child: Child,
    /// What it had started at the beginning.
    processes: Option<ClientProcesses>,
    /// Its standard input and output.
    pipe: Pipe,
    /// The calls that it has asked about.
    calls: AskedCalls,
    /// Where it goes what it says.
    events: mpsc::Sender<ClientEvent>,
    /// Whether the turn was interrupted.
    interrupted: bool,
}

impl ControlTask {
    /// Runs until the client ends, or nobody listens to it any more.
    async fn run(
        mut self,
        mut instructions: mpsc::Receiver<ClientInstruction>,
        mut updates: mpsc::Receiver<CallUpdate>,
    ) {
        loop {
            let done = tokio::select! {
                instruction = instructions.recv() => match instruction {
                    Some(instruction) => self.on_instruction(instruction).await,
                    None => break,
                },
                Some(update) = updates.recv() => self.on_update(update).await,
                line = self.pipe.lines.next() => match line {
                    Some(JsonLine::Value(line)) => self.on_line(&line).await,
                    Some(JsonLine::Other(text)) => {
                        tracing::debug!(%text, "the client printed something else");
                        Ok(Flow::GoOn)
                    }
                    None => break,
                },
            };
            match done {
                Ok(Flow::GoOn) => {}
                Ok(Flow::End) => break,
                Err(error) => {
                    tracing::warn!(%error, "the client cannot be reached any more");
                    break;
                }
            }
        }
        self.kill().await;
    }

    async fn on_instruction(&mut self, instruction: ClientInstruction) -> std::io::Result<Flow> {
        match instruction {
            ClientInstruction::Prompt(text) => {
                self.interrupted = false;
                let message = json!({ "role": "user", "content": text });
                let line = json!({
                    "type": "user", "message": message, "parent_tool_use_id": null,
                    "session_id": "",
                });
                self.pipe.write(&line).await?;
            }
            ClientInstruction::Interrupt => self.interrupt().await?,
            ClientInstruction::Kill => return Ok(Flow::End),
        }
        Ok(Flow::GoOn)
    }

    async fn interrupt(&mut self) -> std::io::Result<()> {
        self.interrupted = true;
        self.pipe.request(json!({ "subtype": "interrupt" })).await?;
        Ok(())
    }

    async fn on_update(&mut self, update: CallUpdate) -> std::io::Result<Flow> {
        match update {
            CallUpdate::Decided { question, answer } => {
                self.pipe
                    .respond(&question.id, question.wording(&answer))
                    .await?;
            }
            CallUpdate::StopRequested => self.interrupt().await?,
        }
        Ok(Flow::GoOn)
    }

    async fn on_line(&mut self, line: &Value) -> std::io::Result<Flow> {
        match line["type"].as_str().unwrap_or_default() {
            "control_request" => self.on_question(line).await?,
            "control_cancel_request" => {
                self.calls
                    .withdraw(line["request_id"].as_str().unwrap_or_default());
            }
            "assistant" if line["parent_tool_use_id"].is_null() => self.on_said(line).await,
            "user" => self.notice_unasked(line).await?,
            "result" => self.on_turn_end(line).await,
            _ => {}
        }
        Ok(Flow::GoOn)
    }

    async fn on_question(&mut self, line: &Value) -> std::io::Result<()> {
        let id = line["request_id"].as_str().unwrap_or_default();
        let request = &line["request"];
        match request["subtype"].as_str() {
            Some("hook_callback") => self.on_hook(id, &request["input"]).await,
            Some("can_use_tool") => self.on_permission(id, request).await,
            _ => self.pipe.refuse(id, "PVP does not answer this").await,
        }
    }

    async fn on_hook(&mut self, id: &str, input: &Value) -> std::io::Result<()> {
        let event = HookClient::Claude.parse_value("", input);
        let nothing = json!({});
        match event {
            Ok(HookEvent::BeforeCall(call)) => {
                self.calls.ask(ControlQuestion::hook(id), call);
                return Ok(());
            }
            Ok(HookEvent::AfterCall(ended)) => self.calls.end(ended).await,
            Ok(HookEvent::BatchEnded { calls }) => {
                for ended in calls {
                    self.calls.end(ended).await;
                }
            }
            Ok(
                HookEvent::Prompted { .. }
                | HookEvent::Stopped { .. }
                | HookEvent::ConversationEnded
                | HookEvent::OwnCall
                | HookEvent::Other,
            ) => {}
            Err(why) => {
                let deny = HookAnswer::deny(&format!("Not allowed: {why}."));
                let wording = ControlQuestion::hook(id).wording(&deny);
                return self.pipe.respond(id, wording).await;
            }
        }
        self.pipe.respond(id, nothing).await
    }

    /// The client's own rules ask about a call, perhaps about one that was decided before.
    async fn on_permission(&mut self, id: &str, request: &Value) -> std::io::Result<()> {
        let question = ControlQuestion::permission(id, &request["input"]);
        let call_id = request["tool_use_id"].as_str().unwrap_or_default();
        if self.calls.is_allowed(call_id, &request["input"]) {
            let allow = HookAnswer::Allow { edited: None };
            return self.pipe.respond(id, question.wording(&allow)).await;
        }
        let call = HookedCall {
            conversation: self.calls.conversation().to_owned(),
            call_id: Some(call_id.to_owned()),
            subagent: None,
            cwd: self.calls.workspace(),
            tool: request["tool_name"].as_str().unwrap_or_default().to_owned(),
            input: request["input"].as_object().cloned().unwrap_or_default(),
        };
        match call_id.is_empty() || call.tool.is_empty() || !request["input"].is_object() {
            true => {
                let deny = HookAnswer::deny("Not allowed: the client does not say which call.");
                self.pipe.respond(id, question.wording(&deny)).await
            }
            false => {
                self.calls.ask(question, call);
                Ok(())
            }
        }
    }

    async fn on_said(&self, line: &Value) {
        let parts = line["message"]["content"].as_array();
        for part in parts.into_iter().flatten() {
            let text = |name: &str| part[name].as_str().unwrap_or_default().to_owned();
            let event = match part["type"].as_str() {
                Some("text") => ClientEvent::Text(text("text")),
                Some("thinking") => ClientEvent::Thinking(text("thinking")),
                Some(_) | None => continue,
            };
            self.say(event).await;
        }
    }

    /// Says so if a call has run that nobody was asked about, and ends the turn.
    async fn notice_unasked(&mut self, line: &Value) -> std::io::Result<()> {
        // A subagent's call that an interrupt has cut short looks as if it had failed.
        let is_cut = self.interrupted && !line["parent_tool_use_id"].is_null();
        let mut unasked = results_of_runs(line)
            .filter(|result| !(is_cut && result["is_error"] == true))
            .filter_map(|result| result["tool_use_id"].as_str())
            .filter(|id| !self.calls.was_asked(id));
        if let Some(id) = unasked.next() {
            let text =
                format!("\n[the client ran the call {id} without asking; it is interrupted]\n");
            self.say(ClientEvent::Text(text)).await;
            self.interrupt().await?;
        }
        Ok(())
    }

    async fn on_turn_end(&mut self, line: &Value) {
        let failed = line["is_error"] == true || line["subtype"] != "success";
        if failed && !self.interrupted {
            let why = line["result"].as_str().or(line["subtype"].as_str());
            let text = format!(
                "\n[the client's turn failed: {}]",
                why.unwrap_or("it does not say why")
            );
            self.say(ClientEvent::Text(text)).await;
        }
        let finish = match (self.interrupted, failed) {
            (true, _) => FinishReason::Interrupted,
            (false, true) => FinishReason::Error,
            (false, false) => FinishReason::Complete,
        };
        self.calls.end_turn();
        self.say(ClientEvent::TurnEnded(finish)).await;
    }

    async fn say(&self, event: ClientEvent) {
        if self.events.send(event).await.is_err() {
            // The instructions end too, and that is where it is noticed.
            tracing::debug!("nobody listens to the client any more");
        }
    }

    /// Ends the client and everything that it runs.
    async fn kill(&mut self) {
        if let Some(processes) = &self.processes {
            processes.signal_later(Signal::KILL);
        }
        if let Err(error) = self.child.kill().await {
            tracing::debug!(%error, "the client had ended");
        }
    }
}

/// The results in a line of the client that say that something ran, well or not.
fn results_of_runs(line: &Value) -> impl Iterator<Item = &Value> {
    let notes = line["tool_result_meta"].as_array().into_iter().flatten();
    let not_run: Vec<_> = notes
        .filter(|note| !note["non_execution_kind"].is_null())
        .map(|note| &note["id"])
        .collect();
    let parts = line["message"]["content"].as_array().into_iter().flatten();
    let results = parts.filter(|part| part["type"] == "tool_result");
    results.filter(move |result| !not_run.contains(&&result["tool_use_id"]) && !is_no_call(result))
}

/// Whether the client could not make a call of what the model said: there is no such tool, or it
/// takes other arguments. It asks nobody about that.
fn is_no_call(result: &Value) -> bool {
    let text = result["content"].as_str();
    let text = text.or(result["content"][0]["text"].as_str());
    let begins = text.is_some_and(|text| text.starts_with("<tool_use_error>"));
    result["is_error"] == true && begins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_that_switch_the_supervision_off_are_refused() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        for flags in [
            &["--bare"][..],
            &["--sdk-url", "x"],
            &["--bg"],
            &["--settings={}"],
            &["--permission-mode", "bypassPermissions"],
            &["--permission-mode=bypassPermissions"],
            &["--dangerously-skip-permissions"],
            &["--output-format", "text"],
        ] {
            let refused = command(&"claude".into(), &words(flags), Path::new("/"));
            assert!(
                matches!(refused, Err(LaunchError::SwitchesOff { .. })),
                "{flags:?}"
            );
        }
        let sources = words(&["--setting-sources=project"]);
        let refused = command(&"claude".into(), &sources, Path::new("/"));
        assert!(matches!(refused, Err(LaunchError::BringsProject { .. })));
        let taken = command(
            &"claude".into(),
            &words(&["--model", "opus"]),
            Path::new("/"),
        );
        let taken = taken.unwrap();
        let given: Vec<_> = taken.as_std().get_args().collect();
        assert!(given.windows(2).any(|pair| pair == SOURCE_OF_USER));
    }
}
