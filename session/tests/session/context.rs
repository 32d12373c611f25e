//! Tests of shared context and secrets.

use crate::support::*;
use pvp_protocol::Limits;
use pvp_session::SessionSettings;
use serde_json::{Value, json};

fn text(key: &str, content: &str) -> Value {
    json!({"key": key, "content_type": "text", "content": content})
}

fn secret(key: &str, scope: &[&str]) -> Value {
    json!({"key": key, "scope": scope, "value_ref": "vault:1", "value": auditor::SECRET})
}

#[test]
fn context_is_added_changed_and_removed() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.sends("dan", "context.add", text("notes", "one")),
        &["8 dan context.add notes one", "= accepted 8"],
    );
    assert_lines(
        fixture.sends("dan", "context.add", text("notes", "two")),
        &["9 dan context.add notes two", "= accepted 9"],
    );
    assert_lines(
        fixture.sends(
            "cat",
            "context.update",
            json!({"key": "notes", "new_content": {"a": 1}, "reason": "r"}),
        ),
        &["10 cat context.update notes", "= accepted 10"],
    );
    assert_lines(
        fixture.sends(
            "cat",
            "context.update",
            json!({"key": "notes", "diff": "+x", "reason": "r"}),
        ),
        &["11 cat context.update notes", "= accepted 11"],
    );
    assert_lines(
        fixture.sends(
            "ann",
            "context.remove",
            json!({"key": "notes", "reason": "r"}),
        ),
        &["12 ann context.remove notes", "= accepted 12"],
    );
    let reference = json!({"hash": "0".repeat(64), "size_bytes": 1, "mime_type": "text/plain", "storage": "local"});
    assert_lines(
        fixture.sends(
            "ann",
            "context.add",
            json!({"key": "file", "content_type": "file", "content_ref": reference}),
        ),
        &["13 ann context.add file by reference", "= accepted 13"],
    );
}

#[test]
fn restricted_context_is_missing_for_everyone_else() {
    let mut fixture = SessionFixture::team(json!({}));
    let mut plan = text("plan", "hush");
    plan["visible_to"] = json!(["cat", "bot"]);
    assert_lines(
        fixture.sends("dan", "context.add", plan),
        &[
            "8 dan context.add plan hush | only [bot,cat,dan]",
            "= accepted 8",
        ],
    );
    assert_lines(
        fixture.sends(
            "cat",
            "context.update",
            json!({"key": "plan", "diff": "+", "reason": "r"}),
        ),
        &[
            "9 cat context.update plan | only [bot,cat,dan]",
            "= accepted 9",
        ],
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "context.update",
            json!({"key": "plan", "diff": "+", "reason": "r"}),
        ),
        "InvalidState: there is no context `plan`",
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "context.update",
            json!({"key": "nothing", "diff": "+", "reason": "r"}),
        ),
        "InvalidState: there is no context `nothing`",
    );
    assert_refusal(
        fixture.refused(
            "ann",
            "context.remove",
            json!({"key": "plan", "reason": "r"}),
        ),
        "InvalidState: there is no context `plan`",
    );
    assert_lines(
        fixture.sends(
            "dan",
            "context.remove",
            json!({"key": "plan", "reason": "r"}),
        ),
        &[
            "10 dan context.remove plan | only [bot,cat,dan]",
            "= accepted 10",
        ],
    );
}

#[test]
fn invalid_context_is_refused() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends("dan", "context.add", text("taken", "x"));
    for (add, answer) in [
        (
            text("", "x"),
            "InvalidMessage: a context key has 1 to 256 bytes and no control characters",
        ),
        (
            text(&"k".repeat(257), "x"),
            "InvalidMessage: a context key has 1 to 256 bytes and no control characters",
        ),
        (
            text("a\nb", "x"),
            "InvalidMessage: a context key has 1 to 256 bytes and no control characters",
        ),
        (
            text("session:working_directory", "/evil"),
            "Unauthorized: keys that begin with `session:` are reserved for the server",
        ),
        (
            json!({"key": "a", "content_type": "text"}),
            "InvalidMessage: `context.add` needs `content` or `content_ref`",
        ),
        (
            text("taken", "y"),
            "InvalidState: the key `taken` is taken; use another, or `context.update`",
        ),
    ] {
        assert_refusal(fixture.refused("cat", "context.add", add), answer);
    }
    assert_refusal(
        fixture.refused("eve", "context.add", text("a", "x")),
        "Unauthorized: you need the capability `add_context`; ask an admin for a role that has it",
    );
    assert_refusal(
        fixture.refused("bot", "context.add", text("a", "x")),
        "Unauthorized: you need the capability `add_context`; ask an admin for a role that has it",
    );
    assert_refusal(
        fixture.refused(
            "cat",
            "context.update",
            json!({"key": "taken", "reason": "r"}),
        ),
        "InvalidMessage: `context.update` needs `diff`, `new_content` or `new_content_ref`",
    );
    assert_refusal(
        fixture.refused(
            "cat",
            "context.update",
            json!({"key": "session:tasks", "diff": "x", "reason": "r"}),
        ),
        "Unauthorized: keys that begin with `session:` are reserved for the server",
    );
    assert_refusal(
        fixture.refused(
            "cat",
            "context.remove",
            json!({"key": "session:tasks", "reason": "r"}),
        ),
        "Unauthorized: keys that begin with `session:` are reserved for the server",
    );
}

#[test]
fn context_is_limited_even_if_it_grows_by_diffs_or_viewers() {
    let settings = SessionSettings {
        limits: Limits {
            context_bytes: 100,
            ..Limits::default()
        },
        ..SessionSettings::default()
    };
    let mut fixture = SessionFixture::team_with_settings(settings, json!({}));
    fixture.sends("dan", "context.add", text("a", &"x".repeat(59)));
    assert_refusal(
        fixture.refused("dan", "context.add", text("b", &"x".repeat(40))),
        "ContextTooLarge: context would be 101 bytes; this session holds at most 100",
    );
    fixture.sends("dan", "context.add", text("b", &"x".repeat(29)));
    let diff = json!({"key": "a", "diff": "+".repeat(6), "reason": "r"});
    fixture.sends("dan", "context.update", diff.clone());
    assert_refusal(
        fixture.refused("dan", "context.update", diff.clone()),
        "ContextTooLarge: context would be 102 bytes; this session holds at most 100",
    );
    fixture.sends(
        "dan",
        "context.update",
        json!({"key": "a", "new_content": "x", "reason": "r"}),
    );
    fixture.sends("dan", "context.update", diff);
    let mut named = text("c", "x");
    named["visible_to"] = json!(["n".repeat(60)]);
    assert_refusal(
        fixture.refused("dan", "context.add", named),
        "ContextTooLarge: context would be 103 bytes; this session holds at most 100",
    );
    let reference = json!({"hash": "0".repeat(64), "size_bytes": 1, "mime_type": "text/plain", "storage": "local"});
    fixture.sends(
        "dan",
        "context.update",
        json!({"key": "b", "new_content_ref": reference, "reason": "r"}),
    );
    assert_lines(
        fixture.sends("dan", "context.add", text("c", &"y".repeat(89))),
        &[
            "14 dan context.add c yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
            "= accepted 14",
        ],
    );
}

#[test]
fn a_secret_is_sent_by_name_to_its_scope_and_its_value_to_nobody() {
    let mut fixture = SessionFixture::team(json!({}));
    assert_lines(
        fixture.sends("dan", "secret.share", secret("API_KEY", &["bot"])),
        &[
            "8 dan secret.share {\"key\":\"API_KEY\",\"scope\":[\"bot\"],\"value_ref\":\"vault:1\"}",
            "= accepted 8",
        ],
    );
    assert_eq!(
        fixture
            .session
            .secrets_for(&participant_id("bot"), fixture.now),
        ["API_KEY"]
    );
    assert!(
        fixture
            .session
            .secrets_for(&participant_id("cat"), fixture.now)
            .is_empty()
    );
    let origin = fixture.log.last().unwrap().submitted_digest;
    let mut other = secret("API_KEY", &["bot"]);
    other["value"] = json!("something else");
    let mut again = SessionFixture::team(json!({}));
    again.sends("dan", "secret.share", other);
    assert_eq!(
        again.log.last().unwrap().submitted_digest,
        origin,
        "a stored fingerprint tells nothing of the value"
    );
}

#[test]
fn a_secret_is_revoked_by_whoever_shared_it_or_an_admin() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends("dan", "secret.share", secret("A", &["bot", "cat"]));
    fixture.sends("dan", "secret.share", secret("B", &["bot"]));
    assert_refusal(
        fixture.refused("cat", "secret.revoke", json!({"key": "A", "reason": "r"})),
        "InvalidState: there is no secret `A`",
    );
    assert_refusal(
        fixture.refused("cat", "secret.revoke", json!({"key": "Z", "reason": "r"})),
        "InvalidState: there is no secret `Z`",
    );
    assert_lines(
        fixture.sends("dan", "secret.revoke", json!({"key": "A", "reason": "r"})),
        &["10 dan secret.revoke A r", "= accepted 10"],
    );
    assert_lines(
        fixture.sends("ann", "secret.revoke", json!({"key": "B", "reason": "r"})),
        &["11 ann secret.revoke B r", "= accepted 11"],
    );
    assert!(
        fixture
            .session
            .secrets_for(&participant_id("bot"), fixture.now)
            .is_empty()
    );
}

#[test]
fn a_secret_expires_by_itself() {
    let mut fixture = SessionFixture::team(json!({}));
    let mut share = secret("A", &["bot"]);
    share["expires_at"] = json!(at(60).to_string());
    assert_lines(
        fixture.sends("dan", "secret.share", share),
        &[
            "8 dan secret.share {\"key\":\"A\",\"scope\":[\"bot\"],\"expires_at\":\"2026-01-01T00:01:00.000Z\",\"value_ref\":\"vault:1\"}",
            "= accepted 8",
        ],
    );
    assert_eq!(fixture.session.next_deadline(), Some(at(60)));
    assert_lines(fixture.advances_and_ticks(59), &["= accepted"]);
    fixture.advance(1);
    assert!(
        fixture
            .session
            .secrets_for(&participant_id("bot"), fixture.now)
            .is_empty()
    );
    assert_lines(
        fixture.advances_and_ticks(0),
        &["9 system secret.revoke A expired", "= accepted"],
    );
    assert_eq!(fixture.session.next_deadline(), None);
}

#[test]
fn an_invalid_secret_is_refused() {
    let mut fixture = SessionFixture::team(json!({}));
    fixture.sends("dan", "secret.share", secret("TAKEN", &["bot"]));
    let mut past = secret("A", &["bot"]);
    past["expires_at"] = json!(at(0).to_string());
    let mut long = secret("A", &["bot"]);
    long["value_ref"] = json!("r".repeat(257));
    for (share, answer) in [
        (
            secret("", &[]),
            "InvalidMessage: a secret's `key` is a variable name: letters, digits and _, at most 128",
        ),
        (
            secret("1A", &[]),
            "InvalidMessage: a secret's `key` is a variable name: letters, digits and _, at most 128",
        ),
        (
            secret("A-B", &[]),
            "InvalidMessage: a secret's `key` is a variable name: letters, digits and _, at most 128",
        ),
        (
            secret(&"A".repeat(129), &[]),
            "InvalidMessage: a secret's `key` is a variable name: letters, digits and _, at most 128",
        ),
        (
            secret("BASH_ENV", &["bot"]),
            "InvalidMessage: a secret may not be called `BASH_ENV`, because variables of that name decide which code a command runs; share it under another name",
        ),
        (
            secret("A", &["zoe"]),
            "ParticipantNotFound: there is no participant `zoe` in this session",
        ),
        (
            secret("TAKEN", &["bot"]),
            "InvalidState: the key `TAKEN` is taken",
        ),
        (past, "InvalidMessage: `expires_at` is in the past"),
        (
            long,
            "InvalidMessage: `value_ref` says where the value is; it is at most 256 bytes",
        ),
    ] {
        assert_refusal(fixture.refused("cat", "secret.share", share), answer);
    }
    assert_refusal(
        fixture.refused("eve", "secret.share", secret("A", &[])),
        "Unauthorized: you need the capability `add_context`; ask an admin for a role that has it",
    );
    for number in 0..199 {
        fixture.sends("dan", "secret.share", secret(&format!("S{number}"), &[]));
    }
    assert_refusal(
        fixture.refused("dan", "secret.share", secret("ONE_MORE", &[])),
        "RateLimited: too many secrets: at most 200",
    );
    assert_lines(
        fixture.sends("dan", "secret.share", secret("TAKEN", &["cat"])),
        &[
            "208 dan secret.share {\"key\":\"TAKEN\",\"scope\":[\"cat\"],\"value_ref\":\"vault:1\"}",
            "= accepted 208",
        ],
    );
}
