//! `pvp agent` in real sessions: what it proposes, runs, tells and hears.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../kit/mod.rs"]
mod kit;

mod model;
mod script;

use kit::{Client, Server};
use serde_json::{Value, json};

/// A session in which gates have no deadline, and someone who may do everything in it.
async fn room(config: Value) -> (Server, Client) {
    let server = Server::start(&[]).await;
    let mut all = json!({ "gate_timeout_seconds": 0 });
    for (key, value) in config.as_object().unwrap() {
        all[key] = value.clone();
    }
    server.create("owl", all).await;
    let ann = server.invite("ann", &["driver", "approver", "admin"], &[]);
    let ann = server.join("owl", &ann).await;
    (server, ann)
}

/// Waits for the next gate; gives its id and the line that it guards.
async fn gate(person: &mut Client) -> (String, String) {
    let request = person.wait_for("gate.request").await;
    let proposal = request["payload"]["action_ref"].clone();
    let propose = person
        .received
        .iter()
        .find(|message| message["id"] == proposal)
        .expect("a proposal is told before its gate");
    let line = propose["payload"]["arguments"]["full_command"].clone();
    (
        request["id"].as_str().unwrap().to_owned(),
        line.as_str().unwrap_or_default().to_owned(),
    )
}

async fn approve(person: &mut Client, gate: &str) {
    let answer = person.approve(gate).await;
    assert_eq!(answer["type"], "session.ack", "{answer}");
}

async fn reject(person: &mut Client, gate: &str, reason: &str) {
    let payload = json!({ "gate": gate, "rejector": person.participant, "reason": reason });
    person.say("gate.reject", payload).await;
}

/// Waits for the result of a command; gives it with the proposal's id.
async fn result(person: &mut Client) -> Value {
    person.wait_for("tool.result").await["payload"].clone()
}
