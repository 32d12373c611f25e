//! Tests that the generated schema and TypeScript match the types and what the parser accepts.

use std::collections::BTreeSet;
use std::path::Path;

use pvp_protocol::{ClientMessage, generate, is_published};
use serde_json::Value;

use crate::examples::{MessageSide, load_examples, with_key_removed, with_value_replaced};
use crate::schema::Schema;

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the crate touches no files; what is generated from it are files"
)]
fn the_generated_files_are_up_to_date() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated");
    let schema = serde_json::to_string_pretty(&generate::json_schema()).expect("a schema is JSON");
    for (name, text) in [
        ("pvp.schema.json", schema + "\n"),
        ("pvp.ts", generate::typescript()),
    ] {
        let path = directory.join(name);
        if std::env::var("PVP_BLESS").is_ok_and(|bless| bless == "1") {
            std::fs::write(&path, text).expect("writing a generated file");
            continue;
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            found == text,
            "protocol/generated/{name} is not what the types say; run `make generate`"
        );
    }
}

#[test]
fn every_example_is_valid() {
    let schema = Schema::new(generate::json_schema());
    for example in load_examples() {
        let found = schema.validate_message(example.side.name(), &example.envelope);
        assert_eq!(found, Ok(()), "{}", example.file());
    }
}

#[test]
fn the_schema_accepts_exactly_what_the_parser_accepts() {
    let schema = Schema::new(generate::json_schema());
    for example in load_examples() {
        let payload = &example.envelope["payload"];
        for mutated in with_key_removed(payload)
            .into_iter()
            .chain(with_value_replaced(payload))
        {
            let envelope = example.with_payload(mutated.payload);
            let read = example.side.round_trip(&envelope).map(drop);
            let checked = schema.validate_message(example.side.name(), &envelope);
            assert_eq!(
                read.is_ok(),
                checked.is_ok(),
                "{}: {} ({}): reader {read:?}, schema {checked:?}",
                example.file(),
                mutated.mutation,
                mutated.field,
            );
        }
    }
}

#[test]
fn the_examples_show_every_field() {
    let schema = Schema::new(generate::json_schema());
    for side in [MessageSide::Client, MessageSide::Server] {
        for kind in side.kinds() {
            let shown: BTreeSet<String> = load_examples()
                .iter()
                .filter(|example| example.kind() == *kind)
                .filter_map(|example| example.envelope["payload"].as_object())
                .flat_map(|payload| payload.keys().cloned())
                .collect();
            let missing: Vec<_> = schema
                .payload_fields(side.name(), kind)
                .fields
                .into_iter()
                .filter(|field| !shown.contains(field))
                .collect();
            assert_eq!(missing, Vec::<String>::new(), "{kind}");
        }
    }
}

/// The payloads of the published protocol: every field, with a `?` after the optional ones.
const PUBLISHED: [(&str, &str); 41] = [
    ("session.create", "name? config"),
    ("session.join", "participant token? supported_versions"),
    ("session.leave", "reason?"),
    ("session.end", "reason final_state"),
    ("session.config_update", "changes reason"),
    (
        "participant.announce",
        "id name type roles capabilities? transport metadata?",
    ),
    (
        "participant.role_change",
        "participant old_roles new_roles changed_by reason?",
    ),
    ("heartbeat.ping", ""),
    ("heartbeat.pong", ""),
    ("presence.update", "participant status last_active"),
    (
        "context.add",
        "key content_type content? content_ref? visible_to? source? tags?",
    ),
    (
        "context.update",
        "key diff? new_content? new_content_ref? reason",
    ),
    ("context.remove", "key reason"),
    (
        "secret.share",
        "key scope expires_at? value_ref secret_type?",
    ),
    ("secret.revoke", "key reason"),
    ("prompt.draft", "content target_agent? contributors"),
    (
        "prompt.submit",
        "content target_agent contributors context_keys config?",
    ),
    ("prompt.amend", "original_prompt amendment reason"),
    ("thinking.start", "agent prompt_ref visible_to"),
    ("thinking.chunk", "text"),
    ("thinking.end", "summary? duration_ms?"),
    ("response.start", "agent prompt_ref"),
    ("response.chunk", "text"),
    ("response.end", "finish_reason usage?"),
    (
        "tool.propose",
        "tool_name arguments agent risk_level description requires_approval suggested_approvers? category",
    ),
    ("tool.approve", "tool_proposal approver comment?"),
    ("tool.reject", "tool_proposal rejector reason suggestion?"),
    ("tool.execute", "tool_proposal approved_by"),
    ("tool.output", "tool_proposal stream text complete"),
    (
        "tool.result",
        "tool_proposal success result? error? duration_ms",
    ),
    (
        "gate.request",
        "action_type action_ref quorum timeout_seconds message",
    ),
    ("gate.approve", "gate approver comment?"),
    ("gate.reject", "gate rejector reason"),
    (
        "gate.timeout",
        "gate approvals_received approvals_required resolution",
    ),
    (
        "interrupt.raise",
        "target? urgency message inject_context? inject_context_ref?",
    ),
    (
        "interrupt.acknowledge",
        "interrupt by action_taken ignore_reason?",
    ),
    (
        "fork.create",
        "name from_point reason participants copy_context",
    ),
    ("fork.switch", "target_fork"),
    ("merge.propose", "source_fork target_fork strategy summary"),
    ("merge.execute", "merge_proposal resolved_conflicts?"),
    ("error", "code message recoverable details? related_to?"),
];

#[test]
fn published_payloads_have_their_fields_and_clients_need_no_others() {
    let schema = Schema::new(generate::json_schema());
    for (kind, fields) in PUBLISHED {
        assert!(is_published(kind), "{kind}");
        let required: BTreeSet<_> = fields
            .split_whitespace()
            .filter(|field| !field.ends_with('?'))
            // The whole configuration has defaults, and an agent may make no estimate of a risk,
            // which is more lenient than the published protocol.
            .filter(|field| {
                let lenient = [("session.create", "config"), ("tool.propose", "risk_level")];
                !lenient.contains(&(kind, *field))
            })
            .map(str::to_owned)
            .collect();
        for side in [MessageSide::Client, MessageSide::Server] {
            if !side.kinds().contains(&kind) {
                continue;
            }
            let payload = schema.payload_fields(side.name(), kind);
            for field in fields.split_whitespace() {
                let field = field.trim_end_matches('?');
                assert!(payload.fields.contains(field), "{kind} lacks `{field}`");
            }
            if ClientMessage::KINDS.contains(&kind) {
                assert_eq!(payload.required, required, "{kind}");
            } else {
                assert!(payload.required.is_superset(&required), "{kind}");
            }
        }
    }
}

#[test]
fn typescript_names_only_types_that_it_declares() {
    let text = generate::typescript();
    let code: String = text
        .lines()
        .filter(|line| !line.trim_start().starts_with(['*', '/']))
        .flat_map(|line| [line, "\n"])
        .collect();
    let declared: BTreeSet<_> = code
        .lines()
        .filter_map(|line| {
            line.strip_prefix("export type ")
                .or_else(|| line.strip_prefix("export interface "))
        })
        .filter_map(|rest| rest.split([' ', '<']).next())
        .chain(["Array", "Record", "Type", "Payload"])
        .collect();
    // Text in quotes is a value, so only every second piece of the split is outside quotes.
    for outside in code.split('"').step_by(2) {
        for word in outside.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if word.starts_with(|c: char| c.is_ascii_uppercase()) {
                assert!(declared.contains(word), "`{word}` is not declared");
            }
        }
    }
}

#[test]
fn every_reference_in_the_schema_resolves() {
    let document = generate::json_schema();
    let mut nodes = vec![&document];
    while let Some(location) = nodes.pop() {
        if let Some(Value::String(target)) = location.get("$ref") {
            let target = target.strip_prefix('#').expect("a local reference");
            assert!(document.pointer(target).is_some(), "{target}");
        }
        nodes.extend(location.as_array().into_iter().flatten());
        nodes.extend(location.as_object().into_iter().flat_map(|o| o.values()));
    }
}
