//! What four clients really said to hooks and plugins, and what is read of it. Each was asked to run
//! commands, to read and change files, and to call a tool of an MCP server; some also to fetch a page
//! and to start a subagent. `tests/agent/codex_hooks.rs` has the same of Codex.

use pvp_protocol::JsonObject;
use serde_json::{Value, json};

use super::HookClient;
use super::event::{EndedCall, HookEvent, HookedCall};
use crate::supervisor::CallReport;

const CLAUDE: &str = include_str!("../../../tests/bridges/captures/claude-hooks.jsonl");
const COPILOT: &str = include_str!("../../../tests/bridges/captures/copilot-hooks.jsonl");
const GEMINI: &str = include_str!("../../../tests/bridges/captures/gemini-hooks.jsonl");
/// What our plugin makes of what OpenCode tells it; `tests/agent/opencode_plugin.test.mjs` replays that.
const OPENCODE: &str = include_str!("../../../tests/bridges/captures/opencode-questions.jsonl");

/// What is read of every line.
fn events(client: HookClient, captured: &str) -> Vec<HookEvent> {
    let lines = captured.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        // The name of the event is an argument of some hooks.
        let event = line["event"].as_str().unwrap();
        let said = line.get("said").unwrap_or(&line);
        let parsed = client.parse(event, said.to_string().as_bytes());
        parsed.unwrap_or_else(|why| panic!("{why}: {line}"))
    });
    lines.collect()
}

/// A conversation in the directory `/work`.
struct RecordedConversation(&'static str);

impl RecordedConversation {
    fn call(&self, id: Option<&str>, tool: &str, input: Value) -> HookedCall {
        HookedCall {
            conversation: self.0.to_owned(),
            call_id: id.map(str::to_owned),
            subagent: None,
            cwd: "/work".into(),
            tool: tool.to_owned(),
            input: object(input),
        }
    }

    fn prompted(&self, text: Option<&str>) -> HookEvent {
        HookEvent::Prompted {
            conversation: self.0.to_owned(),
            text: text.map(str::to_owned),
        }
    }
}

fn object(value: Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

fn of_subagent(name: &str, call: HookedCall) -> HookedCall {
    HookedCall {
        subagent: Some(name.to_owned()),
        ..call
    }
}

/// A call, how it ended if the client says so by itself, and what it says of it after the step.
struct ExpectedCall {
    call: HookedCall,
    report: Option<CallReport>,
    after_step: Option<&'static str>,
}

impl ExpectedCall {
    fn before(&self) -> Option<HookEvent> {
        // A tool that is not there is not asked about.
        self.report.as_ref()?;
        Some(HookEvent::BeforeCall(self.call.clone()))
    }

    fn after(&self) -> Option<HookEvent> {
        let (call, report) = (self.call.clone(), self.report.clone()?);
        Some(HookEvent::AfterCall(EndedCall { call, report }))
    }

    fn batch(&self) -> Option<HookEvent> {
        let said = self.after_step?;
        let report = match self.report {
            // The recorded messages tell the end of each call, so this stands for a hook that was
            // killed before it could.
            Some(_) => CallReport::unknown(&format!(
                "the client did not report its end, and then said of it: {said}"
            )),
            None => CallReport::not_run(format!("the client did not run it: {said}")),
        };
        let call = self.call.clone();
        let calls = vec![EndedCall { call, report }];
        Some(HookEvent::BatchEnded { calls })
    }
}

fn succeeded(exit_code: Option<i64>, stdout: impl Into<String>) -> CallReport {
    CallReport {
        success: true,
        exit_code,
        stdout: stdout.into(),
        ..CallReport::default()
    }
}

fn exited(exit_code: i64, stdout: &str) -> CallReport {
    CallReport {
        success: false,
        ..succeeded(Some(exit_code), stdout)
    }
}

fn failed(error: &str) -> CallReport {
    CallReport {
        error: Some(error.to_owned()),
        ..CallReport::default()
    }
}

/// Compares all that was read: calls, their ends, steps, and the rest in the order in which it came.
fn assert_read(events: Vec<HookEvent>, expected: &[ExpectedCall], rest: &[HookEvent]) {
    let all = |of: fn(&ExpectedCall) -> Option<HookEvent>| expected.iter().filter_map(of);
    let mut before = all(ExpectedCall::before);
    let mut after = all(ExpectedCall::after);
    let mut batch = all(ExpectedCall::batch);
    let mut rest = rest.iter().cloned();
    for event in events {
        let next = match &event {
            HookEvent::BeforeCall(_) => before.next(),
            HookEvent::AfterCall(_) => after.next(),
            HookEvent::BatchEnded { .. } => batch.next(),
            HookEvent::Prompted { .. }
            | HookEvent::Stopped { .. }
            | HookEvent::ConversationEnded
            | HookEvent::OwnCall
            | HookEvent::Other => rest.next(),
        };
        assert_eq!(Some(event), next);
    }
    let left: Vec<_> = before.chain(after).chain(batch).chain(rest).collect();
    assert_eq!(left, []);
}

#[test]
fn claude_code() {
    let here = RecordedConversation("a9e14e6d-ed96-4dcf-a041-f2e5301b48cf");
    let bash = |id, command: &str, description: &str| {
        let input = json!({ "command": command, "description": description });
        here.call(Some(id), "Bash", input)
    };
    let ended = |call, report, said| ExpectedCall {
        call,
        report: Some(report),
        after_step: Some(said),
    };
    let edit = json!({
        "file_path": "/work/a.txt", "old_string": "hello", "new_string": "goodbye",
        "replace_all": false,
    });
    let page = json!({ "url": "http://127.0.0.1:18080/v1/models", "prompt": "what" });
    let unsafe_page = "Unable to verify if domain 127.0.0.1 is safe to fetch. This may be due to network restrictions or enterprise security policies blocking claude.ai.";
    let agent =
        json!({ "description": "sub", "prompt": "do S64:…", "subagent_type": "general-purpose" });
    let mut in_background = bash("toolu_call_mwjs6gnh_13_0", "sleep 1; echo bg", "bg");
    in_background
        .input
        .insert("run_in_background".to_owned(), true.into());
    let calls = [
        ended(
            bash("toolu_call_mwjs6e5v_1_0", "ls", "list"),
            succeeded(Some(0), "a.txt"),
            "a.txt",
        ),
        ended(
            bash(
                "toolu_call_mwjs6efh_2_0",
                "echo one; echo two >&2; touch x",
                "make x",
            ),
            succeeded(Some(0), "one\ntwo"),
            "one\ntwo",
        ),
        ended(
            bash("toolu_call_mwjs6ep8_3_0", "echo before; exit 3", "fail"),
            exited(3, "before"),
            "Exit code 3\nbefore",
        ),
        ended(
            here.call(
                Some("toolu_call_mwjs6eyb_4_0"),
                "Read",
                json!({ "file_path": "/work/a.txt" }),
            ),
            succeeded(
                None,
                json!({ "type": "text", "file": {
                    "filePath": "/work/a.txt", "content": "hello world\n", "numLines": 2,
                    "startLine": 1, "totalLines": 2,
                }})
                .to_string(),
            ),
            "1\thello world\n2\t",
        ),
        ended(
            here.call(Some("toolu_call_mwjs6f6x_5_0"), "Edit", edit),
            succeeded(
                None,
                json!({
                    "filePath": "/work/a.txt", "oldString": "hello", "newString": "goodbye",
                    "originalFile": "hello world\n", "structuredPatch": [{
                        "oldStart": 1, "oldLines": 1, "newStart": 1, "newLines": 1,
                        "lines": ["-hello world", "+goodbye world"],
                    }],
                    "userModified": false, "replaceAll": false,
                })
                .to_string(),
            ),
            "The file /work/a.txt has been updated successfully. (file state is current in your context — no need to Read it back)",
        ),
        ended(
            here.call(
                Some("toolu_call_mwjs6ffq_6_0"),
                "Write",
                json!({ "file_path": "/work/new.txt", "content": "line1\nline2\n" }),
            ),
            succeeded(
                None,
                json!({
                    "type": "create", "filePath": "/work/new.txt", "content": "line1\nline2\n",
                    "structuredPatch": [], "originalFile": null, "userModified": false,
                })
                .to_string(),
            ),
            "File created successfully at: /work/new.txt (file state is current in your context — no need to Read it back)",
        ),
        ended(
            here.call(
                Some("toolu_call_mwjs6fof_7_0"),
                "mcp__probe__echo",
                json!({ "text": "hi" }),
            ),
            succeeded(None, "echo: hi"),
            "echo: hi",
        ),
        ended(
            here.call(Some("toolu_call_mwjs6fxi_8_0"), "WebFetch", page),
            failed(unsafe_page),
            unsafe_page,
        ),
        ExpectedCall {
            call: here.call(
                Some("toolu_call_mwjs6g75_9_0"),
                "Glob",
                json!({ "pattern": "*.txt" }),
            ),
            report: None,
            after_step: Some(
                "<tool_use_error>Error: No such tool available: Glob. Glob is not available in this session — find files with `find` via the Bash tool instead.</tool_use_error>",
            ),
        },
        ExpectedCall {
            call: here.call(
                Some("toolu_call_mwjs6ga7_10_0"),
                "Grep",
                json!({ "pattern": "good", "path": "/work" }),
            ),
            report: None,
            after_step: Some(
                "<tool_use_error>Error: No such tool available: Grep. Grep is not available in this session — search file contents with `grep` via the Bash tool instead.</tool_use_error>",
            ),
        },
        ended(
            here.call(Some("toolu_call_mwjs6gde_11_0"), "Agent", agent),
            succeeded(
                None,
                json!({
                    "isAsync": true, "status": "async_launched", "agentId": "acdebfcf945f982df",
                    "description": "sub", "resolvedModel": "claude-opus-5-5", "prompt": "do S64:…",
                    "outputFile": "/tmp/claude-0/-work/a9e14e6d-ed96-4dcf-a041-f2e5301b48cf/tasks/acdebfcf945f982df.output",
                    "canReadOutputFile": true, "canContinueAgent": true,
                })
                .to_string(),
            ),
            "Async agent launched successfully.",
        ),
        ended(
            of_subagent(
                "general-purpose",
                bash("toolu_call_mwjs6gkb_12_0", "echo sub > sub.txt", "in sub"),
            ),
            succeeded(Some(0), ""),
            "(Bash completed with no output)",
        ),
        ended(
            in_background,
            CallReport {
                in_background: true,
                ..CallReport::unknown(
                    "it runs on in the background of the client, as task b0srxcfas",
                )
            },
            "Command running in background with ID: b0srxcfas. Output is being written to: /tmp/claude-0/-work/a9e14e6d-ed96-4dcf-a041-f2e5301b48cf/tasks/b0srxcfas.output. You will be notified when it completes. To check interim output, use Read on that file path.",
        ),
    ];
    let stopped = || {
        HookEvent::Stopped {
        message: Some(
            "FINAL saw: Command running in background with ID: b0srxcfas. Output is being written to: /tmp/claude-0/-work/a9e14e6d-ed96-4dcf-a041-f2e5301b48cf/tasks/b0srxcfas.output. You will be notified when it completes. To check interim output, use Read on that file path."
                .to_owned(),
        ),
    }
    };
    let rest = [
        HookEvent::Other,
        here.prompted(Some("make the file S64:…")),
        stopped(),
        // The subagent ended, and then the command in the background: nobody typed that.
        here.prompted(None),
        stopped(),
        here.prompted(None),
        stopped(),
        HookEvent::ConversationEnded,
    ];
    assert_read(events(HookClient::Claude, CLAUDE), &calls, &rest);
}

#[test]
fn copilot_cli() {
    let here = RecordedConversation("26e8bf26-5041-4017-9cde-e0395fc06d04");
    let input = json!({
        "command": "echo one; echo two >&2; touch x; exit 3", "description": "make x", "mode": "sync",
    });
    let calls = [ExpectedCall {
        call: here.call(None, "bash", input),
        report: Some(exited(
            3,
            "one\ntwo\n<shellId: 0 completed with exit code 3>",
        )),
        after_step: None,
    }];
    let rest = [
        HookEvent::Other,
        here.prompted(Some("go S64:…")),
        HookEvent::Stopped { message: None },
        HookEvent::ConversationEnded,
    ];
    assert_read(events(HookClient::Copilot, COPILOT), &calls, &rest);
}

#[test]
fn gemini_cli() {
    let here = RecordedConversation("27b273ed-763a-4fb9-8c6d-3e4b85679b45");
    let ended = |tool, input, report| ExpectedCall {
        call: here.call(None, tool, input),
        report: Some(report),
        after_step: None,
    };
    let shell =
        json!({ "command": "echo one; echo two >&2; touch x; exit 3", "description": "make x" });
    let edit = json!({
        "file_path": "/work/a.txt", "old_string": "hello", "new_string": "goodbye",
        "instruction": "x",
    });
    let calls = [
        ended(
            "run_shell_command",
            shell,
            exited(
                3,
                "<untrusted_context>\nOutput: one\ntwo\nExit Code: 3\nProcess Group PGID: 30705\n</untrusted_context>",
            ),
        ),
        ended(
            "read_file",
            json!({ "file_path": "/work/a.txt" }),
            succeeded(None, "hello\n"),
        ),
        ended(
            "replace",
            edit,
            succeeded(
                None,
                "Successfully modified file: /work/a.txt (1 replacements). Here is the updated code:\ngoodbye\n",
            ),
        ),
        ended(
            "write_file",
            json!({ "file_path": "/work/new.txt", "content": "l1\n" }),
            succeeded(
                None,
                "Successfully created and wrote to new file: /work/new.txt. Here is the updated code:\nl1\n",
            ),
        ),
        ended(
            "mcp_probe_echo",
            json!({ "text": "hi" }),
            succeeded(None, "<untrusted_context>\necho: hi\n</untrusted_context>"),
        ),
    ];
    let rest = [
        HookEvent::Other,
        here.prompted(Some("go S64:…")),
        HookEvent::Stopped {
            message: Some(
                r#"FINAL saw: {"output":"<untrusted_context>\necho: hi\n</untrusted_context>"}"#
                    .to_owned(),
            ),
        },
        HookEvent::ConversationEnded,
    ];
    assert_read(events(HookClient::Gemini, GEMINI), &calls, &rest);
}

#[test]
fn opencode() {
    let here = RecordedConversation("ses_e199f6651ffeXZF675H7aiKaP5");
    let there = RecordedConversation("ses_e199f5dd9ffenEOcuG18OjQamk");
    let ended = |id, tool, input, report| {
        let call = here.call(Some(id), tool, input);
        (call.clone(), EndedCall { call, report })
    };
    let shell =
        json!({ "command": "echo one; echo two >&2; touch x; exit 3", "description": "make x" });
    let edit = json!({ "filePath": "/work/a.txt", "oldString": "hello", "newString": "goodbye" });
    let models = json!({
        "object": "list", "data": [{
            "id": "scripted", "object": "model", "type": "model", "display_name": "scripted",
            "created_at": "2026-01-01T00:00:00Z",
        }], "models": [], "has_more": false,
    });
    let result = "<task id=\"ses_e199f5dd9ffenEOcuG18OjQamk\" state=\"completed\">\n<task_result>\nFINAL saw: (no output)\n</task_result>\n</task>";
    let calls = [
        ended("call_mwjt57cx_45_0", "bash", shell, exited(3, "one\ntwo\n")),
        ended(
            "call_mwjt57xr_46_0",
            "read",
            json!({ "filePath": "/work/a.txt" }),
            succeeded(
                None,
                "<path>/work/a.txt</path>\n<type>file</type>\n<content>\n1: hello\n\n(End of file - total 1 lines)\n</content>",
            ),
        ),
        ended(
            "call_mwjt580e_47_0",
            "edit",
            edit,
            succeeded(None, "Edit applied successfully."),
        ),
        ended(
            "call_mwjt5840_48_0",
            "write",
            json!({ "filePath": "/work/new.txt", "content": "l1\nl2\n" }),
            succeeded(None, "Wrote file successfully."),
        ),
        ended(
            "call_mwjt585i_49_0",
            "probe_echo",
            json!({ "text": "hi" }),
            succeeded(None, "echo: hi"),
        ),
    ];
    let fetched = ended(
        "call_mwjt587t_50_0",
        "webfetch",
        json!({ "url": "http://127.0.0.1:18080/v1/models", "format": "text" }),
        succeeded(None, ""),
    );
    let task = ended(
        "call_mwjt589o_51_0",
        "task",
        json!({ "description": "sub", "prompt": "do S64:…", "subagent_type": "general" }),
        succeeded(None, result),
    );
    let in_subagent = of_subagent(
        "general",
        there.call(
            Some("call_mwjt58bq_52_0"),
            "bash",
            json!({ "command": "echo sub > sub.txt", "description": "in sub" }),
        ),
    );
    let mut expected = vec![here.prompted(Some("\"go S64:…\""))];
    for (call, ended) in calls {
        expected.push(HookEvent::BeforeCall(call));
        expected.push(HookEvent::AfterCall(ended));
    }
    let (call, mut page) = fetched;
    expected.push(HookEvent::BeforeCall(call));
    let found = events(HookClient::OpenCode, OPENCODE);
    // Its fields came in another order than we would print them in.
    let HookEvent::AfterCall(said) = &found[expected.len()] else {
        panic!("{:?}", found[expected.len()]);
    };
    assert_eq!(
        serde_json::from_str::<Value>(&said.report.stdout).unwrap(),
        models
    );
    page.report.stdout.clone_from(&said.report.stdout);
    expected.push(HookEvent::AfterCall(page));
    // The task ends after what its subagent does.
    expected.push(HookEvent::BeforeCall(task.0));
    expected.push(HookEvent::BeforeCall(in_subagent.clone()));
    expected.push(HookEvent::AfterCall(EndedCall {
        call: in_subagent,
        report: succeeded(Some(0), "(no output)"),
    }));
    expected.push(HookEvent::AfterCall(task.1));
    expected.push(HookEvent::Stopped {
        message: Some(format!("FINAL saw: {result}")),
    });
    assert_eq!(found, expected);
}
