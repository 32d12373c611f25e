//! A brain that follows a script, for the demo and for tests.

mod script;

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use pvp_protocol::Category;

use super::conversation::{Conversation, ConversationTurn, ToolCall};
use super::proposal_result::{CallResult, CallStatus};
use super::{AnswerFinish, AnswerStream, BrainError, BrainErrorKind, BrainEvent};
pub use script::ScriptError;
use script::{ScriptAction, ScriptExpectation, ScriptStep};

/// The script of the demo.
const DEMO_SCRIPT: &str = include_str!("demo.toml");

/// A script and its current position.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedBrain {
    name: String,
    steps: Vec<ScriptStep>,
    next_step: usize,
    call_count: usize,
    /// Called each time the script begins.
    on_begin: Option<BeginCallback>,
}

/// A function of the program that runs the script. Equal only to itself.
#[derive(Clone)]
struct BeginCallback(Arc<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for BeginCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BeginCallback")
    }
}

impl PartialEq for BeginCallback {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl ScriptedBrain {
    /// Calls a function each time the script begins: at first, and when it starts over.
    pub fn on_begin(mut self, callback: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_begin = Some(BeginCallback(Arc::new(callback)));
        self
    }

    /// The script of the demo.
    pub fn demo() -> Self {
        Self::from_toml("demo.toml", DEMO_SCRIPT).expect("the demo's script is tested")
    }

    /// Reads a script: JSON lines if the extension says so, TOML otherwise.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("reading script {}", path.display()))?;
        let name = path.display().to_string();
        let json = matches!(
            path.extension().and_then(|it| it.to_str()),
            Some("jsonl" | "ndjson")
        );
        let script = if json {
            Self::from_json_lines(&name, &text)
        } else {
            Self::from_toml(&name, &text)
        };
        Ok(script?)
    }

    /// Parses a list of `[[step]]`.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, ScriptError> {
        Ok(Self::new(name, script::from_toml(name, text)?))
    }

    /// Parses one step per line; empty lines and lines that begin with `#` are skipped.
    pub fn from_json_lines(name: &str, text: &str) -> Result<Self, ScriptError> {
        Ok(Self::new(name, script::from_json_lines(name, text)?))
    }

    fn new(name: &str, steps: Vec<ScriptStep>) -> Self {
        Self {
            name: name.to_owned(),
            steps,
            next_step: 0,
            call_count: 0,
            on_begin: None,
        }
    }

    /// Whether its first step does not wait for a prompt.
    pub(super) fn starts_unprompted(&self) -> bool {
        let first = self.steps.first();
        first.is_some_and(|step| step.action != ScriptAction::WaitForPrompt)
    }

    /// Runs steps until it has to wait for results or for a prompt. After its end it starts again.
    pub(super) fn start_answer(&mut self, conversation: &Conversation) -> AnswerStream {
        let mut events = Vec::new();
        let ended = self.run_steps(conversation, &mut events);
        let mut events: Vec<_> = events.into_iter().map(Ok).collect();
        events.push(ended.map(BrainEvent::Finished));
        AnswerStream::from_events(events)
    }

    fn run_steps(
        &mut self,
        conversation: &Conversation,
        events: &mut Vec<BrainEvent>,
    ) -> Result<AnswerFinish, BrainError> {
        let mut prompted = matches!(
            conversation.turns().last(),
            Some(ConversationTurn::Person(_))
        );
        let last = conversation.last_result();
        while let Some(step) = self.steps.get(self.next_step) {
            let status = last.and_then(|result| result.outcome.status);
            if step.when.is_some() && step.when != status {
                self.next_step += 1;
                continue;
            }
            if self.next_step == 0
                && let Some(callback) = &self.on_begin
            {
                (callback.0)();
            }
            match &step.action {
                ScriptAction::WaitForPrompt if !prompted => return Ok(AnswerFinish::Complete),
                ScriptAction::WaitForPrompt => {}
                ScriptAction::Say(text) => {
                    let paragraph = match events.last() {
                        Some(BrainEvent::Text(_)) => "\n\n",
                        Some(_) | None => "",
                    };
                    let text = format!("{paragraph}{}", fill_placeholders(text, last));
                    events.push(BrainEvent::Text(text));
                }
                ScriptAction::Think(text) => {
                    events.push(BrainEvent::Thinking(fill_placeholders(text, last)))
                }
                ScriptAction::Expect(expect) => {
                    if let Err(problem) = expect.check(last) {
                        let problem = format!("{}:{}: {problem}", self.name, step.line);
                        return Err(BrainError::new(BrainErrorKind::ScriptFailed, problem));
                    }
                }
                ScriptAction::Call {
                    name,
                    arguments,
                    together,
                } => {
                    self.call_count += 1;
                    events.push(BrainEvent::ToolCall(ToolCall {
                        id: format!("step{}", self.call_count),
                        name: (*name).to_owned(),
                        arguments: arguments.clone(),
                    }));
                    if !together {
                        self.next_step += 1;
                        return Ok(AnswerFinish::ToolUse);
                    }
                }
            }
            prompted &= matches!(step.action, ScriptAction::Expect(_));
            self.next_step += 1;
        }
        self.next_step = 0;
        let calls = events
            .iter()
            .any(|it| matches!(it, BrainEvent::ToolCall(_)));
        Ok(if calls {
            AnswerFinish::ToolUse
        } else {
            AnswerFinish::Complete
        })
    }
}

impl ScriptExpectation {
    fn check(&self, last: Option<&CallResult>) -> Result<(), String> {
        let Some(last) = last else {
            return Err("no command has ended yet".to_owned());
        };
        let last_outcome = &last.outcome;
        let status = last_outcome.status.map_or("failed", CallStatus::as_str);
        let mut wrong = Vec::new();
        if let Some(verdict) = self.verdict
            && last_outcome.category != Some(verdict)
        {
            let actual = last_outcome.category.map_or("nothing", Category::as_str);
            wrong.push(format!("verdict {verdict}, not {actual}"));
        }
        if let Some(outcome) = self.outcome
            && last_outcome.status != Some(outcome)
        {
            wrong.push(format!("outcome {}, not {status}", outcome.as_str()));
        }
        if let Some(exit) = self.exit
            && last_outcome.exit_code != Some(exit)
        {
            let actual = last_outcome
                .exit_code
                .map_or("none".to_owned(), |exit| exit.to_string());
            wrong.push(format!("exit code {exit}, not {actual}"));
        }
        if let Some(text) = &self.contains
            && !last.text.contains(text.as_str())
        {
            wrong.push(format!("{text:?} in the result"));
        }
        if wrong.is_empty() {
            return Ok(());
        }
        let seen = super::result_text::truncate_middle(&last.text, 1000);
        Err(format!("expected {}; it was: {seen}", wrong.join(" and ")))
    }
}

/// Replaces `{reason}`, `{by}` and `{exit}` with those of the last command.
fn fill_placeholders(text: &str, last: Option<&CallResult>) -> String {
    let outcome = last.map(|last| &last.outcome);
    let reason = outcome.and_then(|outcome| outcome.reason.clone());
    let by = outcome.and_then(|outcome| outcome.by.as_ref().map(ToString::to_string));
    let exit = outcome.and_then(|outcome| outcome.exit_code.map(|exit| exit.to_string()));
    // One pass, so that braces in a reason stay as they are.
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let known = [
            ("{reason}", &reason, "no reason given"),
            ("{by}", &by, "nobody"),
            ("{exit}", &exit, "none"),
        ];
        let found = known.iter().find(|(name, ..)| rest.starts_with(name));
        let (name, value) = match found {
            Some((name, value, otherwise)) => (*name, value.as_deref().unwrap_or(otherwise)),
            None => ("{", "{"),
        };
        out.push_str(value);
        rest = &rest[name.len()..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::super::conversation::ModelAnswer;
    use super::super::proposal_result::CallOutcome;
    use super::super::{Brain, ParsedToolCall};
    use super::*;
    use pvp_protocol::Action;

    /// Runs a script; `results` are the results of its commands in turn.
    async fn run_script(
        script: ScriptedBrain,
        prompts: usize,
        results: &[CallResult],
    ) -> Vec<String> {
        let mut brain = Brain::Scripted(script);
        let mut conversation = Conversation::new("");
        let mut results = results.iter();
        let mut seen = Vec::new();
        for prompt in 0..prompts {
            conversation.push_prompt(format!("prompt {prompt}"));
            while conversation.awaits_model() {
                let mut answer_stream = brain.start_answer(&mut conversation, &[], None);
                let mut answer = ModelAnswer::default();
                while let Some(event) = answer_stream.next().await {
                    match event {
                        Ok(event) => {
                            answer.push(&event);
                            seen.push(event_line(&event));
                        }
                        Err(error) => {
                            seen.push(format!("error {error}"));
                            return seen;
                        }
                    }
                }
                for call in conversation.push_answer(answer) {
                    let result = results.next().cloned();
                    let result = result.unwrap_or_else(|| CallResult::failed("no result"));
                    conversation.set_result(&call.id, result);
                }
            }
        }
        seen
    }

    fn event_line(event: &BrainEvent) -> String {
        match event {
            BrainEvent::Text(text) => format!("say {text}"),
            BrainEvent::Thinking(text) => format!("think {text}"),
            BrainEvent::ToolCall(call) => match ParsedToolCall::parse(call).unwrap() {
                ParsedToolCall::Shell(shell) => format!("shell {}", shell.command),
                ParsedToolCall::File(file) => file.summary(),
                ParsedToolCall::Recall(_) | ParsedToolCall::Jobs(_) => {
                    panic!("a script has only commands and file tools")
                }
            },
            BrainEvent::Finished(finish) => format!("{finish:?}"),
            BrainEvent::ThinkingSignature(_)
            | BrainEvent::RedactedThinking(_)
            | BrainEvent::Retrying { .. }
            | BrainEvent::Usage(_) => panic!("a script has no {event:?}"),
        }
    }

    fn ended_result(
        status: CallStatus,
        exit_code: Option<i64>,
        reason: Option<&str>,
    ) -> CallResult {
        CallResult {
            outcome: CallOutcome {
                status: Some(status),
                category: Some(Category::Write),
                exit_code,
                reason: reason.map(str::to_owned),
                by: None,
            },
            ..CallResult::success("Exit code and so on".to_owned())
        }
    }

    #[tokio::test]
    async fn a_script_waits_for_prompts_and_for_results() {
        let script = r#"
            step = [
                { say = "hello" },
                { wait = "prompt" },
                { shell = "ls" },
                { expect = { outcome = "ran", exit = 0, verdict = "write", contains = "so on" } },
                { say = "exit {exit}" },
            ]
        "#;
        let script = ScriptedBrain::from_toml("s.toml", script).unwrap();
        let seen = run_script(script, 3, &[ended_result(CallStatus::Ran, Some(0), None)]).await;
        let expected = [
            "say hello",
            "Complete",
            "shell ls",
            "ToolUse",
            "say exit 0",
            "Complete",
            "say hello",
            "Complete",
        ];
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn file_tools_are_steps_too() {
        let script = r#"
            [[step]]
            file_read = { path = "a", offset = 1 }
            together = true
            [[step]]
            file_write = { path = "b", content = "x" }
            purpose = "make it"
            [[step]]
            file_edit = { path = "c", old_text = "x", new_text = "y", replace_all = true }
            [[step]]
            say = "done"
        "#;
        let script = ScriptedBrain::from_toml("s.toml", script).unwrap();
        let ran = ended_result(CallStatus::Ran, Some(0), None);
        let seen = run_script(script, 1, &[ran.clone(), ran.clone(), ran]).await;
        let expected = [
            "file_read a",
            "file_write b",
            "ToolUse",
            "file_edit c",
            "ToolUse",
            "say done",
            "Complete",
        ];
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn each_round_of_a_script_is_announced() {
        let rounds = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = rounds.clone();
        let script = r#"step = [{ shell = "ls" }, { say = "done" }]"#;
        let script = ScriptedBrain::from_toml("s.toml", script).unwrap();
        let script = script.on_begin(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        let ran = ended_result(CallStatus::Ran, Some(0), None);
        run_script(script, 3, &[ran.clone(), ran.clone(), ran]).await;
        assert_eq!(rounds.load(std::sync::atomic::Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn several_commands_may_be_in_one_answer() {
        let script = r#"{"shell": "a", "together": true}
            # and at the same time
            {"shell": "b"}

            {"say": "both"}"#;
        let script = ScriptedBrain::from_json_lines("s.jsonl", script).unwrap();
        let ran = ended_result(CallStatus::Ran, Some(0), None);
        let seen = run_script(script, 1, &[ran.clone(), ran]).await;
        assert_eq!(
            seen,
            ["shell a", "shell b", "ToolUse", "say both", "Complete"]
        );
    }

    #[tokio::test]
    async fn a_failed_expectation_names_the_line_and_the_actual_result() {
        let script =
            "[[step]]\nshell = 'ls'\n\n[[step]]\nexpect = { outcome = 'rejected', exit = 1 }\n";
        let script = ScriptedBrain::from_toml("s.toml", script).unwrap();
        let seen = run_script(script, 1, &[ended_result(CallStatus::Ran, Some(0), None)]).await;
        assert_eq!(
            seen.last().unwrap(),
            "error s.toml:4: expected outcome rejected, not ran and exit code 1, not 0; it was: Exit code and so on"
        );
    }

    #[tokio::test]
    async fn the_demo_answers_a_rejection_with_its_reason() {
        let results = [
            ended_result(CallStatus::Ran, Some(0), None),
            ended_result(CallStatus::Ran, Some(0), None),
            ended_result(CallStatus::Rejected, None, Some("not {by} me")),
            ended_result(CallStatus::Blocked, None, Some("it deletes everything")),
        ];
        // It starts without a prompt, and once more for a prompt.
        assert!(ScriptedBrain::demo().starts_unprompted());
        let seen = run_script(ScriptedBrain::demo(), 2, &results).await;
        for (expected, times) in [
            ("shell rm -rf old-notes", 2),
            ("say Thanks, eggs are on the list.", 1),
            ("say I will keep them. nobody said: not {by} me", 1),
            ("say It is blocked: it deletes everything", 1),
        ] {
            let seen = seen.iter().filter(|line| *line == expected);
            assert_eq!(seen.count(), times, "{expected}");
        }
        assert!(
            !seen
                .iter()
                .any(|line| line.starts_with("say No eggs, then"))
        );
    }

    #[test]
    fn mistakes_are_reported_with_their_line() {
        let toml = |text: &str| {
            ScriptedBrain::from_toml("s.toml", text)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            toml("[[step]]\nsay = 'a'\n\n[[step]]\nsay = 'b'\nthink = 'c'\n"),
            "s.toml:4: a step has exactly one of wait, say, think, shell, file_read, file_write, file_edit, expect"
        );
        assert_eq!(
            toml("[[step]]\nsay = 'a'\nmode = 'slow'\n"),
            "s.toml:1: `mode` works only with `shell`"
        );
        assert_eq!(
            toml("[[step]]\nfile_read = { path = 'a' }\nmode = 'slow'\n"),
            "s.toml:1: `mode` works only with `shell`"
        );
        assert_eq!(
            toml("[[step]]\nsay = 'a'\npurpose = 'b'\n"),
            "s.toml:1: `purpose` works only with `shell` and the file tools"
        );
        assert!(toml("[[step]]\n\nsya = 'a'\n").starts_with("s.toml:3: unknown field `sya`"));
        assert!(toml("[[step]]\nsay = 'a\n").starts_with("s.toml:2: "));
        assert!(
            toml("[[step]]\nshell = 'a'\nmode = 'fast'\n")
                .starts_with("s.toml:3: unknown variant `fast`")
        );
        let json = |text: &str| ScriptedBrain::from_json_lines("s.jsonl", text).unwrap_err();
        assert_eq!(json("{\"say\": \"a\"}\n{\"say\": 7}\n").line, 2);
        assert_eq!(
            json("\n{}").problem,
            "a step has exactly one of wait, say, think, shell, file_read, file_write, file_edit, expect"
        );
    }

    #[test]
    fn the_demo_has_a_command_of_every_category() {
        let policy = pvp_policy::Policy::built_in();
        let mut verdicts = Vec::new();
        for step in ScriptedBrain::demo().steps {
            let ScriptAction::Call { arguments, .. } = step.action else {
                continue;
            };
            let call = ToolCall {
                id: "c".to_owned(),
                name: "shell".to_owned(),
                arguments,
            };
            let Ok(ParsedToolCall::Shell(shell)) = ParsedToolCall::parse(&call) else {
                panic!("{call:?}");
            };
            let action = Action::from_arguments("shell", &shell.propose_arguments()).unwrap();
            let workspace = pvp_policy::Workspace::default();
            verdicts.push(policy.assess(&action, &workspace).category);
        }
        let expected = [
            Category::Read,
            Category::Write,
            Category::Destructive,
            Category::Blocked,
        ];
        assert_eq!(verdicts, expected);
    }
}
