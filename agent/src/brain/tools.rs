//! The tools that a model is offered, and what it may say to them.

mod offers;

use pvp_protocol::payload::{OutputRead, OutputStream};
use pvp_protocol::{ExtraFields, JsonObject, MessageId, RunMode};
use serde_json::{Value, json};

use super::conversation::ToolCall;
use super::digest::ends;
use super::recall;
pub use offers::{Reads, Surroundings, ToolOffer, offers};

/// Seconds that a model may ask for.
const LONGEST_NORMAL: u64 = 300;
const LONGEST_SLOW: u64 = 900;

/// Bytes of a command line: Linux takes no longer argument.
const LONGEST_COMMAND: usize = 128 * 1024 - 1;

/// Bytes of a purpose: people read it before they decide.
const PURPOSE: usize = 2 * 1024;

/// A command that a model wants to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellUse {
    pub command: String,
    pub mode: RunMode,
    pub timeout: Option<u64>,
    pub cwd: Option<String>,
    pub purpose: String,
}

impl ShellUse {
    /// The arguments of `tool.propose`.
    pub fn arguments(&self) -> JsonObject {
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

/// What a model wants of its background jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobsUse {
    List,
    Stop(MessageId),
}

/// A call that makes sense.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolUse {
    Shell(ShellUse),
    Recall(OutputRead),
    Jobs(JobsUse),
}

impl ToolUse {
    /// Reads a call, or says to the model what is wrong with it.
    pub fn read(call: &ToolCall) -> Result<Self, String> {
        let arguments = call.read()?;
        let told = |why: String| format!("{why} Nothing was done; call `{}` again.", call.name);
        match call.name.as_str() {
            "shell" => read_shell(&arguments).map(ToolUse::Shell).map_err(told),
            "recall" => read_recall(&arguments).map(ToolUse::Recall).map_err(told),
            "jobs" => read_jobs(&arguments).map(ToolUse::Jobs).map_err(told),
            other => Err(format!(
                "There is no tool {other:?}. The tools are shell, recall and jobs. Nothing was done."
            )),
        }
    }
}

fn read_shell(arguments: &JsonObject) -> Result<ShellUse, String> {
    known(arguments, &["command", "mode", "timeout", "cwd", "purpose"])?;
    let command = text(arguments, "command")?.unwrap_or_default();
    if command.trim().is_empty() {
        return Err("`command` is missing: give the bash command line to run.".to_owned());
    }
    if command.len() > LONGEST_COMMAND {
        return Err(format!(
            "`command` has {} bytes, and a command line has at most {LONGEST_COMMAND}: write long \
             text to a file in several steps.",
            command.len()
        ));
    }
    if command.contains('\0') {
        return Err("`command` has a NUL character in it, which no command can have.".to_owned());
    }
    let mode = match text(arguments, "mode")?.as_deref() {
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
    Ok(ShellUse {
        timeout: timeout(number(arguments, "timeout")?, mode)?,
        cwd: text(arguments, "cwd")?.filter(|cwd| !cwd.is_empty()),
        purpose: ends(&text(arguments, "purpose")?.unwrap_or_default(), PURPOSE),
        command,
        mode,
    })
}

fn timeout(seconds: Option<u64>, mode: RunMode) -> Result<Option<u64>, String> {
    let Some(seconds) = seconds else {
        return Ok(None);
    };
    let (longest, advice) = match mode {
        RunMode::Normal => (LONGEST_NORMAL, "; use mode slow for up to 900"),
        RunMode::Slow => (LONGEST_SLOW, "; use mode background for what takes longer"),
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

fn read_recall(arguments: &JsonObject) -> Result<OutputRead, String> {
    let names = ["ref", "stream", "offset", "limit", "head", "tail", "grep"];
    known(arguments, &names)?;
    let read = OutputRead {
        reference: reference(arguments)?,
        stream: match text(arguments, "stream")?.as_deref() {
            None => None,
            Some("stdout") => Some(OutputStream::Stdout),
            Some("stderr") => Some(OutputStream::Stderr),
            Some(other) => {
                return Err(format!("`stream` must be stdout or stderr, not {other:?}."));
            }
        },
        offset: number(arguments, "offset")?,
        limit: number(arguments, "limit")?,
        head: number(arguments, "head")?,
        tail: number(arguments, "tail")?,
        grep: text(arguments, "grep")?,
        extra: ExtraFields::new(),
    };
    recall::check(&read)?;
    Ok(read)
}

fn read_jobs(arguments: &JsonObject) -> Result<JobsUse, String> {
    known(arguments, &["action", "ref"])?;
    match text(arguments, "action")?.as_deref() {
        None | Some("list") if arguments.get("ref").is_none_or(Value::is_null) => Ok(JobsUse::List),
        None | Some("list") => Err("`ref` goes only with action stop.".to_owned()),
        Some("stop") => reference(arguments).map(JobsUse::Stop),
        Some(other) => Err(format!("`action` must be list or stop, not {other:?}.")),
    }
}

fn reference(arguments: &JsonObject) -> Result<MessageId, String> {
    let text = text(arguments, "ref")?
        .ok_or("`ref` is missing: give the ref that the command's result names.")?;
    MessageId::parse(&text)
        .map_err(|error| format!("`ref` {text:?} is not a ref of a command: {error}."))
}

fn known(arguments: &JsonObject, names: &[&str]) -> Result<(), String> {
    match arguments.keys().find(|key| !names.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => Err(format!(
            "There is no argument {key:?}; there are {}.",
            names.join(", ")
        )),
    }
}

fn text(arguments: &JsonObject, name: &str) -> Result<Option<String>, String> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{name}` must be a string.")),
    }
}

fn number(arguments: &JsonObject, name: &str) -> Result<Option<u64>, String> {
    match arguments.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(format!("`{name}` must be a whole number, not {value}.")),
        },
    }
}

/// A background job as the model reads of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub reference: MessageId,
    pub command: String,
    pub pid: Option<u32>,
    /// How it ended, if it has.
    pub ended: Option<String>,
}

/// The answer to `jobs`.
pub fn jobs_text(jobs: &[Job]) -> String {
    if jobs.is_empty() {
        return "You have no background jobs.".to_owned();
    }
    let line = |job: &Job| {
        let pid = job
            .pid
            .map_or(String::new(), |pid| format!(" (process {pid})"));
        let state = match &job.ended {
            None => format!("running{pid}"),
            Some(how) => format!("ended: {how}"),
        };
        let command = ends(&job.command, 300);
        format!("ref \"{}\" {state}: {command}", job.reference)
    };
    jobs.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pvp_protocol::{Action, Command};

    fn read(name: &str, arguments: Value) -> Result<ToolUse, String> {
        ToolUse::read(&ToolCall {
            id: "c1".to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_string(),
        })
    }

    fn wrong(name: &str, arguments: Value) -> String {
        let why = read(name, arguments).unwrap_err();
        let end = format!(" Nothing was done; call `{name}` again.");
        why.strip_suffix(&end).unwrap().to_owned()
    }

    #[test]
    fn the_shell_offer_says_what_the_model_must_know() {
        let here = |reads| Surroundings {
            directory: "/srv/app".to_owned(),
            reads,
        };
        let offer = &offers(&here(Reads::RunThemselves))[0];
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
        let asked = &offers(&here(Reads::AreAsked))[0];
        assert!(asked.description.contains("shown to people first"));
        assert!(!asked.description.contains("run at once"));
    }

    #[test]
    fn a_shell_call_becomes_the_arguments_of_a_proposal() {
        let call = json!({"command": "make", "mode": "slow", "timeout": 900, "cwd": "/x", "purpose": "build"});
        let Ok(ToolUse::Shell(shell)) = read("shell", call) else {
            panic!("not a shell call");
        };
        assert_eq!(shell.purpose, "build");
        let action = Action::from_arguments("shell", &shell.arguments()).unwrap();
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
        let Ok(ToolUse::Shell(shell)) = read("shell", plain) else {
            panic!("not a shell call");
        };
        assert_eq!(
            Value::Object(shell.arguments()),
            json!({"full_command": "ls"})
        );
    }

    #[test]
    fn wrong_arguments_are_answered_with_what_to_do() {
        assert_eq!(
            wrong("shell", json!({"purpose": "x"})),
            "`command` is missing: give the bash command line to run."
        );
        assert_eq!(
            wrong("shell", json!({"command": ["ls"]})),
            "`command` must be a string."
        );
        assert_eq!(
            wrong("shell", json!({"command": "ls", "timeout_ms": 5})),
            "There is no argument \"timeout_ms\"; there are command, mode, timeout, cwd, purpose."
        );
        assert_eq!(
            wrong("shell", json!({"command": "ls", "timeout": 301})),
            "`timeout` is at most 300 seconds in this mode; use mode slow for up to 900."
        );
        assert_eq!(
            wrong("shell", json!({"command": "ls", "timeout": "60"})),
            "`timeout` must be a whole number, not \"60\"."
        );
        assert_eq!(
            wrong(
                "shell",
                json!({"command": "ls", "mode": "background", "timeout": 5})
            ),
            "A command in this mode has no time limit: leave `timeout` out."
        );
        assert_eq!(
            wrong("shell", json!({"command": "ls", "mode": "fast"})),
            "`mode` must be normal, slow, background or pty, not \"fast\"."
        );
        assert!(wrong("recall", json!({})).starts_with("`ref` is missing"));
        assert!(wrong("recall", json!({"ref": "no such/id"})).contains("is not a ref"));
        assert_eq!(
            wrong("recall", json!({"ref": "p1", "head": 1, "tail": 1})),
            "Ask for `head` or for `tail`, not for both."
        );
        assert_eq!(
            wrong("jobs", json!({"action": "kill"})),
            "`action` must be list or stop, not \"kill\"."
        );
        assert!(wrong("jobs", json!({"action": "stop"})).starts_with("`ref` is missing"));
        assert_eq!(
            read("python", json!({})),
            Err("There is no tool \"python\". The tools are shell, recall and jobs. Nothing was done.".to_owned())
        );
    }

    #[test]
    fn enormous_arguments_are_answered_in_few_words() {
        let long = "x".repeat(500_000);
        assert_eq!(
            wrong("shell", json!({"command": long, "purpose": "p"})),
            "`command` has 500000 bytes, and a command line has at most 131071: write long text to \
             a file in several steps."
        );
        let Ok(ToolUse::Shell(shell)) = read("shell", json!({"command": "ls", "purpose": long}))
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
            let why = read(name, arguments).unwrap_err();
            let told = super::super::words::CallResult::failed(&why);
            assert!(told.text.len() < 5000, "{}", told.text.len());
            assert!(told.text.contains("Nothing was done"), "{}", told.text);
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
            ToolUse::read(&half)
                .unwrap_err()
                .contains("not a JSON object")
        );
        let empty = ToolCall {
            name: "jobs".to_owned(),
            arguments: String::new(),
            ..half
        };
        assert_eq!(ToolUse::read(&empty), Ok(ToolUse::Jobs(JobsUse::List)));
    }

    #[test]
    fn jobs_are_listed_with_how_to_name_them() {
        let job = |ended: Option<&str>| Job {
            reference: MessageId::parse("p1").unwrap(),
            command: "npm run dev".to_owned(),
            pid: Some(7),
            ended: ended.map(str::to_owned),
        };
        assert_eq!(
            jobs_text(&[job(None), job(Some("exit code 1"))]),
            "ref \"p1\" running (process 7): npm run dev\nref \"p1\" ended: exit code 1: npm run dev"
        );
        assert_eq!(jobs_text(&[]), "You have no background jobs.");
    }
}
