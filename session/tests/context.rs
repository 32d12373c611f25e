//! Context and secrets.

mod kit;
use kit::*;
use pvp_protocol::Limits;
use pvp_session::Settings;
use serde_json::{Value, json};

fn text(key: &str, content: &str) -> Value {
    json!({"key": key, "content_type": "text", "content": content})
}

fn secret(key: &str, scope: &[&str]) -> Value {
    json!({"key": key, "scope": scope, "value_ref": "vault:1", "value": audit::SECRET})
}

#[test]
fn context_is_added_changed_and_removed() {
    let mut room = Room::team(json!({}));
    told(
        room.says("dan", "context.add", text("notes", "one")),
        &["8 dan context.add notes one", "= accepted 8"],
    );
    told(
        room.says("dan", "context.add", text("notes", "two")),
        &["9 dan context.add notes two", "= accepted 9"],
    );
    told(
        room.says(
            "cat",
            "context.update",
            json!({"key": "notes", "new_content": {"a": 1}, "reason": "r"}),
        ),
        &["10 cat context.update notes", "= accepted 10"],
    );
    told(
        room.says(
            "cat",
            "context.update",
            json!({"key": "notes", "diff": "+x", "reason": "r"}),
        ),
        &["11 cat context.update notes", "= accepted 11"],
    );
    told(
        room.says(
            "ann",
            "context.remove",
            json!({"key": "notes", "reason": "r"}),
        ),
        &["12 ann context.remove notes", "= accepted 12"],
    );
    let reference = json!({"hash": "0".repeat(64), "size_bytes": 1, "mime_type": "text/plain", "storage": "local"});
    told(
        room.says(
            "ann",
            "context.add",
            json!({"key": "file", "content_type": "file", "content_ref": reference}),
        ),
        &["13 ann context.add file by reference", "= accepted 13"],
    );
}

#[test]
fn only_those_named_see_it_and_for_the_others_it_is_not_there() {
    let mut room = Room::team(json!({}));
    let mut plan = text("plan", "hush");
    plan["visible_to"] = json!(["cat", "bot"]);
    told(
        room.says("dan", "context.add", plan),
        &[
            "8 dan context.add plan hush | only [bot,cat,dan]",
            "= accepted 8",
        ],
    );
    told(
        room.says(
            "cat",
            "context.update",
            json!({"key": "plan", "diff": "+", "reason": "r"}),
        ),
        &[
            "9 cat context.update plan | only [bot,cat,dan]",
            "= accepted 9",
        ],
    );
    says_no(
        room.refused(
            "ann",
            "context.update",
            json!({"key": "plan", "diff": "+", "reason": "r"}),
        ),
        "InvalidState: there is no context `plan`",
    );
    says_no(
        room.refused(
            "ann",
            "context.update",
            json!({"key": "nothing", "diff": "+", "reason": "r"}),
        ),
        "InvalidState: there is no context `nothing`",
    );
    says_no(
        room.refused(
            "ann",
            "context.remove",
            json!({"key": "plan", "reason": "r"}),
        ),
        "InvalidState: there is no context `plan`",
    );
    told(
        room.says(
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
fn what_context_may_not_be() {
    let mut room = Room::team(json!({}));
    room.says("dan", "context.add", text("taken", "x"));
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
            "Unauthorized: keys that begin `session:` are the server's",
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
        says_no(room.refused("cat", "context.add", add), answer);
    }
    says_no(
        room.refused("eve", "context.add", text("a", "x")),
        "Unauthorized: you need the capability `add_context`; ask an admin for a role that has it",
    );
    says_no(
        room.refused("bot", "context.add", text("a", "x")),
        "Unauthorized: you need the capability `add_context`; ask an admin for a role that has it",
    );
    says_no(
        room.refused(
            "cat",
            "context.update",
            json!({"key": "taken", "reason": "r"}),
        ),
        "InvalidMessage: `context.update` needs `diff`, `new_content` or `new_content_ref`",
    );
    says_no(
        room.refused(
            "cat",
            "context.update",
            json!({"key": "session:tasks", "diff": "x", "reason": "r"}),
        ),
        "Unauthorized: keys that begin `session:` are the server's",
    );
    says_no(
        room.refused(
            "cat",
            "context.remove",
            json!({"key": "session:tasks", "reason": "r"}),
        ),
        "Unauthorized: keys that begin `session:` are the server's",
    );
}

#[test]
fn context_is_bounded_also_when_it_grows_by_diffs_or_by_names() {
    let settings = Settings {
        limits: Limits {
            context_bytes: 100,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let mut room = Room::team_under(settings, json!({}));
    room.says("dan", "context.add", text("a", &"x".repeat(59)));
    says_no(
        room.refused("dan", "context.add", text("b", &"x".repeat(40))),
        "ContextTooLarge: context would be 101 bytes; this session holds at most 100",
    );
    room.says("dan", "context.add", text("b", &"x".repeat(29)));
    let diff = json!({"key": "a", "diff": "+".repeat(6), "reason": "r"});
    room.says("dan", "context.update", diff.clone());
    says_no(
        room.refused("dan", "context.update", diff.clone()),
        "ContextTooLarge: context would be 102 bytes; this session holds at most 100",
    );
    room.says(
        "dan",
        "context.update",
        json!({"key": "a", "new_content": "x", "reason": "r"}),
    );
    room.says("dan", "context.update", diff);
    let mut named = text("c", "x");
    named["visible_to"] = json!(["n".repeat(60)]);
    says_no(
        room.refused("dan", "context.add", named),
        "ContextTooLarge: context would be 103 bytes; this session holds at most 100",
    );
    let reference = json!({"hash": "0".repeat(64), "size_bytes": 1, "mime_type": "text/plain", "storage": "local"});
    room.says(
        "dan",
        "context.update",
        json!({"key": "b", "new_content_ref": reference, "reason": "r"}),
    );
    told(
        room.says("dan", "context.add", text("c", &"y".repeat(89))),
        &[
            "14 dan context.add c yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
            "= accepted 14",
        ],
    );
}

#[test]
fn a_secret_is_told_by_name_to_its_scope_and_its_value_to_nobody() {
    let mut room = Room::team(json!({}));
    told(
        room.says("dan", "secret.share", secret("API_KEY", &["bot"])),
        &[
            "8 dan secret.share {\"key\":\"API_KEY\",\"scope\":[\"bot\"],\"value_ref\":\"vault:1\"} | only [bot,dan]",
            "= accepted 8",
        ],
    );
    assert_eq!(
        room.session.secrets_for(&person("bot"), room.now),
        ["API_KEY"]
    );
    assert!(
        room.session
            .secrets_for(&person("cat"), room.now)
            .is_empty()
    );
    let origin = room.log.last().unwrap().origin;
    let mut other = secret("API_KEY", &["bot"]);
    other["value"] = json!("something else");
    let mut again = Room::team(json!({}));
    again.says("dan", "secret.share", other);
    assert_eq!(
        again.log.last().unwrap().origin,
        origin,
        "a stored fingerprint tells nothing of the value"
    );
}

#[test]
fn a_secret_is_taken_back_by_who_shared_it_or_an_admin() {
    let mut room = Room::team(json!({}));
    room.says("dan", "secret.share", secret("A", &["bot", "cat"]));
    room.says("dan", "secret.share", secret("B", &["bot"]));
    says_no(
        room.refused("cat", "secret.revoke", json!({"key": "A", "reason": "r"})),
        "InvalidState: there is no secret `A`",
    );
    says_no(
        room.refused("cat", "secret.revoke", json!({"key": "Z", "reason": "r"})),
        "InvalidState: there is no secret `Z`",
    );
    told(
        room.says("dan", "secret.revoke", json!({"key": "A", "reason": "r"})),
        &[
            "10 dan secret.revoke A r | only [bot,cat,dan]",
            "= accepted 10",
        ],
    );
    told(
        room.says("ann", "secret.revoke", json!({"key": "B", "reason": "r"})),
        &[
            "11 ann secret.revoke B r | only [ann,bot,dan]",
            "= accepted 11",
        ],
    );
    assert!(
        room.session
            .secrets_for(&person("bot"), room.now)
            .is_empty()
    );
}

#[test]
fn a_secret_expires_by_itself() {
    let mut room = Room::team(json!({}));
    let mut share = secret("A", &["bot"]);
    share["expires_at"] = json!(at(60).to_string());
    told(
        room.says("dan", "secret.share", share),
        &[
            "8 dan secret.share {\"key\":\"A\",\"scope\":[\"bot\"],\"expires_at\":\"2026-01-01T00:01:00.000Z\",\"value_ref\":\"vault:1\"} | only [bot,dan]",
            "= accepted 8",
        ],
    );
    assert_eq!(room.session.next_deadline(), Some(at(60)));
    told(room.ticks(59), &["= accepted"]);
    room.later(1);
    assert!(
        room.session
            .secrets_for(&person("bot"), room.now)
            .is_empty()
    );
    told(
        room.ticks(0),
        &[
            "9 system secret.revoke A expired | only [bot,dan]",
            "= accepted",
        ],
    );
    assert_eq!(room.session.next_deadline(), None);
}

#[test]
fn what_a_secret_may_not_be() {
    let mut room = Room::team(json!({}));
    room.says("dan", "secret.share", secret("TAKEN", &["bot"]));
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
        says_no(room.refused("cat", "secret.share", share), answer);
    }
    says_no(
        room.refused("eve", "secret.share", secret("A", &[])),
        "Unauthorized: you need the capability `add_context`; ask an admin for a role that has it",
    );
    for number in 0..199 {
        room.says("dan", "secret.share", secret(&format!("S{number}"), &[]));
    }
    says_no(
        room.refused("dan", "secret.share", secret("ONE_MORE", &[])),
        "RateLimited: too many secrets: at most 200",
    );
    told(
        room.says("dan", "secret.share", secret("TAKEN", &["cat"])),
        &[
            "208 dan secret.share {\"key\":\"TAKEN\",\"scope\":[\"cat\"],\"value_ref\":\"vault:1\"} | only [cat,dan]",
            "= accepted 208",
        ],
    );
}
