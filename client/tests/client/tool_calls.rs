//! What people see of tool calls: the truth about what is executed, all of it, and in bounds.

use proptest::prelude::*;
use pvp_client::view::{CallLineKind, ChangeBasis, ToolCallView, escape_invisible};
use pvp_protocol::payload::FileContent;
use pvp_protocol::{Action, Command, Digest, JsonObject, ToolCategory};
use serde_json::{Value, json};

fn action(tool: &str, arguments: &Value) -> Action {
    let arguments: JsonObject = arguments.as_object().cloned().unwrap();
    Action::from_arguments(tool, &arguments).unwrap()
}

fn call(tool: &str, arguments: Value) -> ToolCallView {
    call_with(tool, arguments, &[])
}

fn call_with(tool: &str, arguments: Value, contents: &[(&str, &str)]) -> ToolCallView {
    let contents: Vec<_> = contents
        .iter()
        .map(|(path, text)| FileContent {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        })
        .collect();
    let category = Some(ToolCategory::FileWrite);
    ToolCallView::of_action(&action(tool, &arguments), &contents, category).unwrap()
}

fn hash(text: &str) -> String {
    Digest::of_content(text.as_bytes()).to_string()
}

/// The lines of one kind.
fn lines_of(call: &ToolCallView, kind: CallLineKind) -> Vec<String> {
    let lines = call.lines().into_iter();
    lines
        .filter(|line| line.kind == kind)
        .map(|line| line.text)
        .collect()
}

fn all_text(call: &ToolCallView) -> String {
    let lines = call.lines().into_iter().map(|line| line.text);
    let lines: Vec<_> = std::iter::once(call.headline.clone())
        .chain(lines)
        .collect();
    lines.join("\n")
}

#[test]
fn an_edit_is_the_old_text_and_the_new_one() {
    for (tool, path, old, new) in [
        ("file_edit", "path", "old_text", "new_text"),
        ("Edit", "file_path", "old_string", "new_string"),
        ("edit_file", "file", "oldText", "newText"),
        ("str_replace", "filename", "old_str", "new_str"),
    ] {
        let arguments = json!({path: "src/main.rs", old: "a\nb\n", new: "a\nc\nd\n"});
        let call = call(tool, arguments);
        assert_eq!(call.headline, format!("{tool} src/main.rs (+2 −1)"));
        assert_eq!(lines_of(&call, CallLineKind::Added), ["+c", "+d"]);
        assert_eq!(lines_of(&call, CallLineKind::Removed), ["-b"]);
        assert_eq!(lines_of(&call, CallLineKind::Context), [" a"]);
        assert!(call.arguments.is_empty(), "{:?}", call.arguments);
    }
}

#[test]
fn of_an_edit_every_line_is_shown() {
    let old: String = (0..40).map(|line| format!("line {line}\n")).collect();
    let new = old.replace("line 20\n", "line twenty\n");
    let arguments = json!({"path": "a", "old_text": old, "new_text": new});
    let call = call("file_edit", arguments);
    assert_eq!(lines_of(&call, CallLineKind::Context).len(), 39);
    assert_eq!(lines_of(&call, CallLineKind::Hunk), ["@@"]);
}

#[test]
fn several_edits_are_shown_one_by_one() {
    let edits = json!([
        {"old_string": "a", "new_string": "b"},
        {"old_string": "c", "new_string": "", "replace_all": true},
    ]);
    let call = call("MultiEdit", json!({"file_path": "x", "edits": edits}));
    assert_eq!(call.headline, "MultiEdit x (+1 −2)");
    let text = all_text(&call);
    assert!(text.contains("@@ edit 1 of 2 @@\n-a\n+b"), "{text}");
    assert!(
        text.contains("@@ edit 2 of 2, every occurrence @@\n-c"),
        "{text}"
    );
}

#[test]
fn an_edit_is_placed_where_the_bound_content_has_it() {
    let old = "one\ntwo\nthree\ntwo\n";
    let arguments = |text: &str| {
        json!({"path": "x", "old_text": text, "new_text": "2\n",
            "files": [{"path": "x", "sha256": hash(old), "bytes": 18}]})
    };
    let placed = call_with("file_edit", arguments("three\n"), &[("x", old)]);
    assert_eq!(lines_of(&placed, CallLineKind::Hunk), ["@@ -3,1 +3,1 @@"]);
    let twice = call_with("file_edit", arguments("two\n"), &[("x", old)]);
    assert!(all_text(&twice).contains("is in the present content 2 times"));
    let missing = call_with("file_edit", arguments("four\n"), &[("x", old)]);
    assert!(all_text(&missing).contains("is not in the present content"));
}

#[test]
fn a_write_is_compared_with_the_content_that_the_call_binds() {
    let old = "one\ntwo\nthree\nfour\nfive\nsix\nseven\n";
    let new = old.replace("two", "2");
    let arguments = json!({"path": "./notes.txt", "content": new,
        "files": [{"path": "notes.txt", "sha256": hash(old), "bytes": old.len()}]});
    let call = call_with("file_write", arguments, &[("notes.txt", old)]);
    let change = call.change.as_ref().unwrap();
    assert_eq!(change.basis, ChangeBasis::PresentContent);
    assert_eq!(call.headline, "file_write ./notes.txt (+1 −1)");
    assert_eq!(lines_of(&call, CallLineKind::Added), ["+2"]);
    assert_eq!(lines_of(&call, CallLineKind::Removed), ["-two"]);
    assert!(all_text(&call).contains("2 unchanged lines not shown"));
}

#[test]
fn content_with_a_wrong_hash_is_not_used() {
    let (real, forged, new) = ("secret\n", "harmless\n", "harmless\nmore\n");
    let bound = |sha256: String| json!([{"path": "a", "sha256": sha256, "bytes": 7}]);
    let arguments = json!({"path": "a", "content": new, "files": bound(hash(real))});
    for contents in [&[("a", forged)][..], &[("b", real)], &[]] {
        let call = call_with("file_write", arguments.clone(), contents);
        let change = call.change.as_ref().unwrap();
        assert_eq!(change.basis, ChangeBasis::Unknown, "{contents:?}");
        assert_eq!(call.headline, "file_write a (2 lines)");
        assert_eq!(lines_of(&call, CallLineKind::Added), ["+harmless", "+more"]);
        assert!(all_text(&call).contains("the present content is not known"));
    }
    // Nothing is known either if the call binds another file, or one file twice.
    let other = json!([{"path": "b", "sha256": hash(forged)}]);
    let twice = json!([{"path": "a", "sha256": hash(forged)}, {"path": "./a"}]);
    for files in [
        other,
        twice,
        json!({"path": "a"}),
        json!([{"path": "a"}, 7]),
    ] {
        let arguments = json!({"path": "a", "content": new, "files": files});
        let call = call_with("file_write", arguments, &[("a", forged), ("b", forged)]);
        assert_eq!(call.change.unwrap().basis, ChangeBasis::Unknown, "{files}");
    }
}

#[test]
fn a_file_that_must_not_exist_is_all_new() {
    let arguments = json!({"path": "a", "content": "x\ny", "files": [{"path": "a"}]});
    let call = call("file_write", arguments);
    assert_eq!(call.headline, "file_write a (new, 2 lines)");
    assert_eq!(call.change.as_ref().unwrap().basis, ChangeBasis::NewFile);
    let text = all_text(&call);
    assert!(
        text.contains("+x\n+y\n\\ no line feed at the end"),
        "{text}"
    );
}

#[test]
fn a_diff_of_the_agents_own_never_passes_for_the_computed_one() {
    let forged = "--- a\n+++ a\n@@ -1,1 +1,1 @@\n-x = 1\n+x = 2";
    let arguments = json!({"path": "a", "old_text": "x = 1", "new_text": "system('id')",
        "diff": forged, "patch": forged, "+x = 2": "key"});
    let call = call("file_edit", arguments);
    assert_eq!(lines_of(&call, CallLineKind::Added), ["+system('id')"]);
    assert_eq!(lines_of(&call, CallLineKind::Removed), ["-x = 1"]);
    assert_eq!(lines_of(&call, CallLineKind::Hunk).len(), 1);
    let stated = lines_of(&call, CallLineKind::Stated);
    assert_eq!(stated.len(), 10);
    assert!(
        stated.iter().all(|line| line.starts_with("│ ")),
        "{stated:?}"
    );
    let notes = lines_of(&call, CallLineKind::Note);
    assert!(notes.contains(&"diff, as the agent states it, not checked:".to_owned()));
    // Without a change of its own, the call has no lines that look computed at all.
    let only_stated = self::call("apply", json!({"path": "a", "diff": forged}));
    for kind in [
        CallLineKind::Added,
        CallLineKind::Removed,
        CallLineKind::Hunk,
    ] {
        assert!(lines_of(&only_stated, kind).is_empty());
    }
}

#[test]
fn arguments_that_could_mean_two_things_mean_nothing() {
    for (tool, arguments) in [
        (
            "file_write",
            json!({"path": "a", "file_path": "/etc/passwd", "content": "x"}),
        ),
        (
            "file_write",
            json!({"path": "a", "content": "x", "text": "y"}),
        ),
        (
            "file_write",
            json!({"path": "a", "content": "x", "mode": "append"}),
        ),
        (
            "file_write",
            json!({"path": "a", "content": "x", "append": true}),
        ),
        ("file_append", json!({"path": "a", "content": "x"})),
        ("append_to_file_write", json!({"path": "a", "content": "x"})),
        (
            "file_edit",
            json!({"path": "a", "old_text": "x", "new_text": "y", "new_string": "z"}),
        ),
        (
            "file_edit",
            json!({"path": ["a"], "old_text": "x", "new_text": "y"}),
        ),
        (
            "MultiEdit",
            json!({"path": "a", "edits": [{"old_text": "x", "new_text": "y", "at": 3}]}),
        ),
        (
            "file_edit",
            json!({"path": "a", "old_text": "same", "new_text": "same"}),
        ),
        ("deploy", json!({"path": "a", "content": "x"})),
    ] {
        let call = call(tool, arguments.clone());
        assert_eq!(call.change, None, "{tool} {arguments}");
        assert_eq!(
            call.arguments.iter().filter(|it| it.depth == 0).count(),
            arguments.as_object().unwrap().len()
        );
    }
}

#[test]
fn invisible_characters_are_escaped_and_counted_everywhere() {
    let arguments =
        json!({"path": "a\u{202e}", "content": "x\u{200b}\r\n", "no\u{feff}te": "\u{1b}[2K"});
    let call = call("file_write", arguments);
    assert_eq!(call.hidden, 5);
    let mut deep = json!({"\u{1}": "\u{2}\n"});
    for _ in 0..9 {
        deep = json!([deep]);
    }
    let quoted = self::call("x", json!({"a": " \u{1b}", "b\u{7}": "", "deep": deep}));
    assert_eq!(quoted.hidden, 4);
    let text = all_text(&call);
    assert_eq!(escape_invisible(&text), text);
    for shown in [
        r"a\u{202e}",
        r"+x\u{200b}\u{d}",
        r"no\u{feff}te",
        r"\u{1b}[2K",
    ] {
        assert!(text.contains(shown), "{shown} in {text}");
    }
}

#[test]
fn a_call_that_is_too_large_says_how_much_is_missing() {
    let big = "line of text\n".repeat(100_000);
    let items: Vec<_> = (0..9000).collect();
    for (tool, arguments) in [
        ("file_write", json!({"path": "a", "content": big})),
        (
            "file_write",
            json!({"path": "a", "content": "\n".repeat(50_000)}),
        ),
        (
            "file_edit",
            json!({"path": "a", "old_text": big, "new_text": "x"}),
        ),
        ("other", json!({"other": big})),
        ("other", json!({"items": items})),
    ] {
        let call = call(tool, arguments);
        assert!(call.cut_bytes > 0);
        assert!(all_text(&call).contains("more are not shown"));
        assert!(all_text(&call).len() < 8 * 1024 * 1024);
    }
}

#[test]
fn the_shell_is_no_tool_call() {
    let command = Command::Shell {
        line: "ls".to_owned(),
    };
    assert_eq!(
        ToolCallView::of_action(&Action::new(command), &[], None),
        None
    );
}

fn arbitrary_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,12}",
        "[\u{0}-\u{9f}é\u{202e}]{0,6}",
        "([ab+@-]{0,3}\r?\n){0,8}[ab]{0,2}",
        Just("true".to_owned()),
        Just("[0]".to_owned()),
    ]
}

fn arbitrary_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        arbitrary_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(9, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(arbitrary_text(), inner, 0..6)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn arbitrary_arguments() -> impl Strategy<Value = JsonObject> {
    let key = prop_oneof![
        prop::sample::select(vec![
            "path",
            "file_path",
            "content",
            "text",
            "old_text",
            "new_text",
            "old_string",
            "new_string",
            "edits",
            "diff",
            "files",
            "notebook_path",
            "new_source",
            "edit_mode",
            "replace_all",
            "mode",
            "command",
            "args",
            "package",
        ])
        .prop_map(str::to_owned),
        arbitrary_text(),
    ];
    let value = prop_oneof![arbitrary_text().prop_map(Value::from), arbitrary_json()];
    prop::collection::btree_map(key, value, 0..8).prop_map(|map| map.into_iter().collect())
}

/// The texts, numbers and keys of a value, in the pieces that a reader must find: the words of every
/// line, because lines may be marked, quoted and wrapped.
fn pieces(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => found.push(value.to_string()),
        Value::String(text) => found.extend(text.split_whitespace().map(str::to_owned)),
        Value::Array(items) => items.iter().for_each(|item| pieces(item, found)),
        Value::Object(fields) => {
            for (key, field) in fields {
                pieces(&Value::from(key.as_str()), found);
                pieces(field, found);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_arguments_are_a_call_is_shown_in_bounds_and_nothing_is_lost(
        tool in prop_oneof![
            prop::sample::select(vec!["file_write", "file_edit", "Write", "MultiEdit", "NotebookEdit", "npm_install", "mcp__a__b", "x"]).prop_map(str::to_owned),
            "\\PC{1,20}".prop_filter("the shell is no tool", |name| name != "shell"),
        ],
        arguments in arbitrary_arguments(),
    ) {
        let given = Value::Object(arguments.clone());
        let call = call(&tool, given.clone());
        let text = all_text(&call);
        prop_assert_eq!(escape_invisible(&text), text.clone());
        prop_assert!(!call.headline.contains(['\n', '\t']));
        prop_assert!(text.len() < 64 * 1024 && call.lines().len() < 2000);
        prop_assert!(serde_json::to_string(&call).unwrap().len() < 256 * 1024);
        prop_assert_eq!(call.cut_bytes, 0);
        let mut wanted = Vec::new();
        arguments.values().for_each(|value| pieces(value, &mut wanted));
        for piece in wanted {
            // As it is, in quotation marks, or as JSON writes it.
            let in_quotes = piece.replace('\\', r"\\").replace('"', "\\\"");
            let json = Value::from(piece.as_str()).to_string();
            let json = json[1..json.len() - 1].to_owned();
            let mut forms = [piece.clone(), in_quotes, json].into_iter();
            let is_shown = forms.any(|form| text.contains(&escape_invisible(&form)));
            prop_assert!(is_shown, "{} of {} is not in\n{}", piece, given, text);
        }
    }
}
