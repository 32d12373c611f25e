//! The tools that a model may call, and the parsing of its calls.

mod definitions;
mod file_calls;

use pvp_protocol::payload::{OutputRead, OutputStream};
use pvp_protocol::{ExtraFields, FileTool, JsonObject, MessageId, RunMode};
use serde_json::{Value, json};

use super::conversation::ToolCall;
use super::recall;
use super::result_text::truncate_middle;
pub use definitions::{FileToolOffer, ReadApproval, ToolContext, ToolDefinition, tool_definitions};
pub use file_calls::FileCall;

/// The longest timeout in seconds that a model may set in normal mode.
const MAX_TIMEOUT_SECONDS: u64 = 300;
/// The same for slow mode.
const MAX_SLOW_TIMEOUT_SECONDS: u64 = 900;

/// Bytes of a command line: Linux accepts no longer argument.
const MAX_COMMAND_BYTES: usize = 128 * 1024 - 1;

/// Bytes of a purpose, which people read before they decide.
const MAX_PURPOSE_BYTES: usize = 2 * 1024;

/// A command that a model wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellCall {
    pub command: String,
    pub mode: RunMode,
    pub timeout: Option<u64>,
    pub cwd: Option<String>,
    pub purpose: String,
}

impl ShellCall {
    /// The arguments of `tool.propose`.
    pub fn propose_arguments(&self) -> JsonObject {
        let mut arguments = JsonObject::new();
        arguments.insert("full_command".to_owned(), json!(self.command));
        if self.mode != RunMode::Normal {
            arguments.insert("mode".to_owned(), json!(self.mode));
        }
        if let Some(timeout) = self.timeout {
            arguments.insert("timeout".to_owned(), json!(timeout));
        }
        if let Some(cwd) = &self.cwd {
            arguments.insert("cwd".to_owned(), json!(cwd));
        }
        arguments
    }
}

/// A call of the `jobs` tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobsCall {
    List,
    Stop(MessageId),
}

/// A valid call.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedToolCall {
    Shell(ShellCall),
    File(FileCall),
    Recall(OutputRead),
    Jobs(JobsCall),
}

impl ParsedToolCall {
    /// Parses a call; the error is a message for the model.
    pub fn parse(call: &ToolCall) -> Result<Self, String> {
        let arguments = call.parse_arguments()?;
        let with_advice =
            |why: String| format!("{why} Nothing was done; call `{}` again.", call.name);
        match call.name.as_str() {
            "shell" => parse_shell(&arguments)
                .map(ParsedToolCall::Shell)
                .map_err(with_advice),
            name if FileTool::is_name(name) => file_calls::parse(name, &arguments)
                .map(ParsedToolCall::File)
                .map_err(with_advice),
            "recall" => parse_recall(&arguments)
                .map(ParsedToolCall::Recall)
                .map_err(with_advice),
            "jobs" => parse_jobs(&arguments)
                .map(ParsedToolCall::Jobs)
                .map_err(with_advice),
            other => Err(format!(
                "There is no tool {other:?}. The tools are shell, file_read, file_write, file_edit, \
                 recall and jobs. Nothing was done."
            )),
        }
    }
}

fn parse_shell(arguments: &JsonObject) -> Result<ShellCall, String> {
    reject_unknown_arguments(arguments, &["command", "mode", "timeout", "cwd", "purpose"])?;
    let command = string_argument(arguments, "command")?.unwrap_or_default();
    if command.trim().is_empty() {
        return Err("`command` is missing: give the bash command line to run.".to_owned());
    }
    if command.len() > MAX_COMMAND_BYTES {
        return Err(format!(
            "`command` has {} bytes, and a command line has at most {MAX_COMMAND_BYTES}: write long \
             text to a file in several steps.",
            command.len()
        ));
    }
    if command.contains('\0') {
        return Err("`command` has a NUL character in it, which no command can have.".to_owned());
    }
    let mode = match string_argument(arguments, "mode")?.as_deref() {
        None | Some("normal") => RunMode::Normal,
        Some("slow") => RunMode::Slow,
        Some("background") => RunMode::Background,
        Some("pty") => RunMode::Pty,
        Some(other) => {
            return Err(format!(
                "`mode` must be normal, slow, background or pty, not {other:?}."
            ));
        }
    };
    Ok(ShellCall {
        timeout: check_timeout(integer_argument(arguments, "timeout")?, mode)?,
        cwd: string_argument(arguments, "cwd")?.filter(|cwd| !cwd.is_empty()),
        purpose: purpose_argument(arguments)?,
        command,
        mode,
    })
}

fn check_timeout(seconds: Option<u64>, mode: RunMode) -> Result<Option<u64>, String> {
    let Some(seconds) = seconds else {
        return Ok(None);
    };
    let (longest, advice) = match mode {
        RunMode::Normal => (MAX_TIMEOUT_SECONDS, "; use mode slow for up to 900"),
        RunMode::Slow => (
            MAX_SLOW_TIMEOUT_SECONDS,
            "; use mode background for what takes longer",
        ),
        RunMode::Background | RunMode::Pty => {
            let why = "A command in this mode has no time limit: leave `timeout` out.";
            return Err(why.to_owned());
        }
    };
    match seconds {
        0 => Err("`timeout` must be at least 1 second.".to_owned()),
        _ if seconds > longest => Err(format!(
            "`timeout` is at most {longest} seconds in this mode{advice}."
        )),
        _ => Ok(Some(seconds)),
    }
}

fn parse_recall(arguments: &JsonObject) -> Result<OutputRead, String> {
    let names = ["ref", "stream", "offset", "limit", "head", "tail", "grep"];
    reject_unknown_arguments(arguments, &names)?;
    let read = OutputRead {
        reference: ref_argument(arguments)?,
        stream: match string_argument(arguments, "stream")?.as_deref() {
            None => None,
            Some("stdout") => Some(OutputStream::Stdout),
            Some("stderr") => Some(OutputStream::Stderr),
            Some(other) => {
                return Err(format!("`stream` must be stdout or stderr, not {other:?}."));
            }
        },
        offset: integer_argument(arguments, "offset")?,
        limit: integer_argument(arguments, "limit")?,
        head: integer_argument(arguments, "head")?,
        tail: integer_argument(arguments, "tail")?,
        grep: string_argument(arguments, "grep")?,
        extra: ExtraFields::new(),
    };
    recall::validate(&read)?;
    Ok(read)
}

fn parse_jobs(arguments: &JsonObject) -> Result<JobsCall, String> {
    reject_unknown_arguments(arguments, &["action", "ref"])?;
    match string_argument(arguments, "action")?.as_deref() {
        None | Some("list") if arguments.get("ref").is_none_or(Value::is_null) => {
            Ok(JobsCall::List)
        }
        None | Some("list") => Err("`ref` works only with action stop.".to_owned()),
        Some("stop") => ref_argument(arguments).map(JobsCall::Stop),
        Some(other) => Err(format!("`action` must be list or stop, not {other:?}.")),
    }
}

fn ref_argument(arguments: &JsonObject) -> Result<MessageId, String> {
    let text = string_argument(arguments, "ref")?
        .ok_or("`ref` is missing: give the ref that the command's result names.")?;
    MessageId::parse(&text)
        .map_err(|error| format!("`ref` {text:?} is not a ref of a command: {error}."))
}

fn reject_unknown_arguments(arguments: &JsonObject, names: &[&str]) -> Result<(), String> {
    match arguments.keys().find(|key| !names.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!(
            "There is no argument {key:?}; there are {}.",
            names.join(", ")
        )),
    }
}

fn string_argument(arguments: &JsonObject, name: &str) -> Result<Option<String>, String> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{name}` must be a string.")),
    }
}

fn purpose_argument(arguments: &JsonObject) -> Result<String, String> {
    let purpose = string_argument(arguments, "purpose")?.unwrap_or_default();
    Ok(truncate_middle(&purpose, MAX_PURPOSE_BYTES))
}

fn integer_argument(arguments: &JsonObject, name: &str) -> Result<Option<u64>, String> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(format!("`{name}` must be a whole number, not {value}.")),
        },
    }
}

/// A background job as it is listed for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundJob {
    pub reference: MessageId,
    pub command: String,
    pub pid: Option<u32>,
    /// How it ended; `None` while it runs.
    pub ended: Option<String>,
}

/// The result of the `jobs` tool.
pub fn render_jobs(jobs: &[BackgroundJob]) -> String {
    if jobs.is_empty() {
        return "You have no background jobs.".to_owned();
    }
    let line = |job: &BackgroundJob| {
        let pid = job
            .pid
            .map_or(String::new(), |pid| format!(" (process {pid})"));
        let state = match &job.ended {
            None => format!("running{pid}"),
            Some(how) => format!("ended: {how}"),
        };
        let command = truncate_middle(&job.command, 300);
        format!("ref \"{}\" {state}: {command}", job.reference)
    };
    jobs.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::{Action, Command};

    fn parse(name: &str, arguments: Value) -> Result<ParsedToolCall, String> {
        ParsedToolCall::parse(&ToolCall {
            id: "c1".to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        })
    }

    fn parse_error(name: &str, arguments: Value) -> String {
        let why = parse(name, arguments).unwrap_err();
        let end = format!(" Nothing was done; call `{name}` again.");
        why.strip_suffix(&end).unwrap().to_owned()
    }

    #[test]
    fn the_shell_description_says_what_the_model_must_know() {
        let tool_context = |reads| ToolContext {
            working_directory: "/srv/app".to_owned(),
            read_approval: reads,
            file_tools: FileToolOffer::Offered,
        };
        let offer = &tool_definitions(&tool_context(ReadApproval::NotRequired))[0];
        for needed in [
            "Current directory: /srv/app",
            "does not persist",
            "slow for builds",
            "background for servers",
            "quiet flags",
            "run at once, in a sandbox",
            "wait until people approve",
        ] {
            assert!(offer.description.contains(needed), "{needed}");
        }
        let shell = &tool_definitions(&tool_context(ReadApproval::Required))[0];
        assert!(shell.description.contains("shown to people first"));
        assert!(!shell.description.contains("run at once"));
    }

    #[test]
    fn a_shell_call_becomes_the_arguments_of_a_proposal() {
        let call = json!({"command": "make", "mode": "slow", "timeout": 900, "cwd": "/x", "purpose": "build"});
        let Ok(ParsedToolCall::Shell(shell)) = parse("shell", call) else {
            panic!("not a shell call");
        };
        assert_eq!(shell.purpose, "build");
        let action = Action::from_arguments("shell", &shell.propose_arguments()).unwrap();
        assert_eq!(
            action,
            Action {
                cwd: Some("/x".to_owned()),
                mode: RunMode::Slow,
                timeout_seconds: Some(900),
                ..Action::new(Command::Shell {
                    line: "make".to_owned()
                })
            }
        );
        let plain = json!({"command": "ls", "mode": null, "timeout": null, "purpose": "look"});
        let Ok(ParsedToolCall::Shell(shell)) = parse("shell", plain) else {
            panic!("not a shell call");
        };
        assert_eq!(
            Value::Object(shell.propose_arguments()),
            json!({"full_command": "ls"})
        );
    }

    #[test]
    fn wrong_arguments_are_answered_with_what_to_do() {
        assert_eq!(
            parse_error("shell", json!({"purpose": "x"})),
            "`command` is missing: give the bash command line to run."
        );
        assert_eq!(
            parse_error("shell", json!({"command": ["ls"]})),
            "`command` must be a string."
        );
        assert_eq!(
            parse_error("shell", json!({"command": "ls", "timeout_ms": 5})),
            "There is no argument \"timeout_ms\"; there are command, mode, timeout, cwd, purpose."
        );
        assert_eq!(
            parse_error("shell", json!({"command": "ls", "timeout": 301})),
            "`timeout` is at most 300 seconds in this mode; use mode slow for up to 900."
        );
        assert_eq!(
            parse_error("shell", json!({"command": "ls", "timeout": "60"})),
            "`timeout` must be a whole number, not \"60\"."
        );
        assert_eq!(
            parse_error(
                "shell",
                json!({"command": "ls", "mode": "background", "timeout": 5})
            ),
            "A command in this mode has no time limit: leave `timeout` out."
        );
        assert_eq!(
            parse_error("shell", json!({"command": "ls", "mode": "fast"})),
            "`mode` must be normal, slow, background or pty, not \"fast\"."
        );
        assert!(parse_error("recall", json!({})).starts_with("`ref` is missing"));
        assert!(parse_error("recall", json!({"ref": "no such/id"})).contains("is not a ref"));
        assert_eq!(
            parse_error("recall", json!({"ref": "p1", "head": 1, "tail": 1})),
            "Ask for `head` or for `tail`, not for both."
        );
        assert_eq!(
            parse_error("jobs", json!({"action": "kill"})),
            "`action` must be list or stop, not \"kill\"."
        );
        assert!(parse_error("jobs", json!({"action": "stop"})).starts_with("`ref` is missing"));
        assert_eq!(
            parse("python", json!({})),
            Err("There is no tool \"python\". The tools are shell, file_read, file_write, file_edit, recall and jobs. Nothing was done.".to_owned())
        );
    }

    #[test]
    fn enormous_arguments_get_a_short_answer() {
        let long = "x".repeat(500_000);
        assert_eq!(
            parse_error("shell", json!({"command": long, "purpose": "p"})),
            "`command` has 500000 bytes, and a command line has at most 131071: write long text to \
             a file in several steps."
        );
        let Ok(ParsedToolCall::Shell(shell)) =
            parse("shell", json!({"command": "ls", "purpose": long}))
        else {
            panic!("not a shell call");
        };
        assert!(shell.purpose.len() < 2200);
        for (name, arguments) in [
            (long.as_str(), json!({})),
            ("shell", json!({ "command": "ls", long.as_str(): 1 })),
            ("shell", json!({ "command": "ls", "mode": long })),
            ("shell", json!({ "command": "ls", "timeout": long })),
            ("recall", json!({ "ref": long })),
        ] {
            let why = parse(name, arguments).unwrap_err();
            let result = super::super::proposal_result::CallResult::failed(&why);
            assert!(result.text.len() < 5000, "{}", result.text.len());
            assert!(result.text.contains("Nothing was done"), "{}", result.text);
        }
    }

    #[test]
    fn arguments_that_are_not_json_are_answered_too() {
        let half = ToolCall {
            id: "c1".to_owned(),
            name: "shell".to_owned(),
            arguments: r#"{"command": "ls"#.to_owned(),
        };
        assert!(
            ParsedToolCall::parse(&half)
                .unwrap_err()
                .contains("not a JSON object")
        );
        let empty = ToolCall {
            name: "jobs".to_owned(),
            arguments: String::new(),
            ..half
        };
        assert_eq!(
            ParsedToolCall::parse(&empty),
            Ok(ParsedToolCall::Jobs(JobsCall::List))
        );
    }

    #[test]
    fn jobs_are_listed_with_their_refs() {
        let job = |ended: Option<&str>| BackgroundJob {
            reference: MessageId::parse("p1").unwrap(),
            command: "npm run dev".to_owned(),
            pid: Some(7),
            ended: ended.map(str::to_owned),
        };
        assert_eq!(
            render_jobs(&[job(None), job(Some("exit code 1"))]),
            "ref \"p1\" running (process 7): npm run dev\nref \"p1\" ended: exit code 1: npm run dev"
        );
        assert_eq!(render_jobs(&[]), "You have no background jobs.");
    }
}
