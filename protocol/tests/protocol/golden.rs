//! Tests that an example of every message survives a round trip, and how invalid ones are refused.

use std::collections::BTreeSet;

use pvp_protocol::{Action, ClientMessage, ErrorCode, JsonObject, ServerMessage, SessionConfig};
use serde_json::{Value, json};

use crate::examples::{Example, MessageSide, load_examples, with_key_removed, with_value_replaced};

#[test]
fn every_type_has_its_example_and_no_example_is_orphaned() {
    for side in [MessageSide::Client, MessageSide::Server] {
        let plain: BTreeSet<_> = load_examples()
            .into_iter()
            .filter(|example| example.side == side && example.name == example.kind())
            .map(|example| example.name)
            .collect();
        let kinds: BTreeSet<_> = side.kinds().iter().map(|&kind| kind.to_owned()).collect();
        assert_eq!(plain, kinds, "{side:?}");
    }
    for example in load_examples() {
        let variant = example.name.strip_prefix(example.kind());
        assert!(
            variant.is_some_and(|variant| variant.is_empty() || variant.starts_with('.')),
            "{} is of type `{}`",
            example.file(),
            example.kind()
        );
    }
}

#[test]
fn every_example_survives_a_round_trip() {
    for example in load_examples() {
        assert_eq!(
            example.side.round_trip(&example.envelope).as_ref(),
            Ok(&expected_round_trip(&example)),
            "{}",
            example.file()
        );
    }
}

/// How an example should be serialised: a configuration then has all its fields, and an agent that
/// makes no estimate of a risk has said so.
fn expected_round_trip(example: &Example) -> Value {
    let mut envelope = example.envelope.clone();
    if example.kind() == "session.create" {
        let mut config = json!(SessionConfig::default());
        let given = envelope["payload"]["config"].as_object().cloned();
        let all = config.as_object_mut().expect("an object");
        all.extend(given.expect("an object"));
        envelope["payload"]["config"] = config;
    }
    if example.kind() == "tool.propose" && envelope["payload"]["risk_level"].is_null() {
        envelope["payload"]["risk_level"] = json!("safe");
    }
    envelope
}

#[test]
fn a_seq_claimed_by_a_client_is_dropped() {
    for example in load_examples() {
        if example.side != MessageSide::Client {
            continue;
        }
        let mut claimed = example.envelope.clone();
        claimed["seq"] = json!(7);
        assert_eq!(
            MessageSide::Client.round_trip(&claimed).as_ref(),
            Ok(&expected_round_trip(&example)),
            "{}",
            example.file()
        );
    }
}

#[test]
fn an_unknown_field_survives_in_every_payload_that_a_client_may_send() {
    for example in load_examples() {
        if !ClientMessage::KINDS.contains(&example.kind()) {
            continue;
        }
        let newer = with_unknown_field(&example);
        assert_eq!(
            example.side.round_trip(&newer).as_ref(),
            Ok(&newer),
            "{}",
            example.file()
        );
    }
}

#[test]
fn an_unknown_field_in_a_server_only_payload_is_accepted() {
    for example in load_examples() {
        if ClientMessage::KINDS.contains(&example.kind()) {
            continue;
        }
        let written = example
            .side
            .round_trip(&with_unknown_field(&example))
            .unwrap_or_else(|error| panic!("{}: {error:?}", example.file()));
        let mut payload = written["payload"].clone();
        payload
            .as_object_mut()
            .expect("an object")
            .remove("from_the_future");
        assert_eq!(payload, example.envelope["payload"], "{}", example.file());
    }
}

fn with_unknown_field(example: &Example) -> Value {
    let mut envelope = expected_round_trip(example);
    envelope["payload"]["from_the_future"] = json!({ "deep": [1, null, "x"] });
    envelope
}

#[test]
fn an_unknown_field_in_the_envelope_is_ignored() {
    for example in load_examples() {
        let mut newer = example.envelope.clone();
        newer["from_the_future"] = json!([{ "payload": {} }]);
        assert_eq!(
            example.side.round_trip(&newer).as_ref(),
            Ok(&expected_round_trip(&example)),
            "{}",
            example.file()
        );
    }
}

#[test]
fn optional_fields_of_the_envelope_may_be_null() {
    for example in load_examples() {
        let mut nulls = example.envelope.clone();
        for field in ["ref", "seq", "causal_refs", "fork"] {
            if nulls.get(field).is_none() {
                nulls[field] = Value::Null;
            }
        }
        assert_eq!(
            example.side.round_trip(&nulls).as_ref(),
            Ok(&expected_round_trip(&example)),
            "{}",
            example.file()
        );
    }
}

#[test]
fn a_missing_field_is_either_optional_or_named_in_the_refusal() {
    for example in load_examples() {
        for mutated in with_key_removed(&example.envelope["payload"]) {
            let Err(error) = example
                .side
                .round_trip(&example.with_payload(mutated.payload))
            else {
                continue;
            };
            let location = format!("{}: {}: {error:?}", example.file(), mutated.mutation);
            assert_eq!(
                error.refusal.code(),
                ErrorCode::InvalidMessage,
                "{location}"
            );
            assert_eq!(
                error.related_to.as_ref().map(|id| id.as_str()),
                example.envelope["id"].as_str(),
                "{location}"
            );
            let named = format!("missing field `{}`", mutated.field);
            assert!(error.refusal.to_string().contains(&named), "{location}");
        }
    }
}

#[test]
fn a_minimal_example_has_nothing_that_could_be_left_out() {
    for example in load_examples() {
        if !example.name.ends_with(".minimal") {
            continue;
        }
        for field in example.envelope["payload"]
            .as_object()
            .expect("an object")
            .keys()
        {
            let mut shorter = example.envelope["payload"].clone();
            shorter.as_object_mut().expect("an object").remove(field);
            let read = example.side.round_trip(&example.with_payload(shorter));
            assert!(
                read.is_err(),
                "{}: `{field}` could be left out",
                example.file()
            );
        }
    }
}

#[test]
fn a_missing_field_of_the_envelope_is_named_in_the_refusal() {
    for example in load_examples() {
        for field in ["v", "id", "session", "sender", "type", "payload"] {
            let mut envelope = example.envelope.clone();
            envelope.as_object_mut().expect("an object").remove(field);
            let error = example.side.round_trip(&envelope).expect_err(field);
            assert_eq!(error.refusal.code(), ErrorCode::InvalidMessage);
            let named = format!("missing field `{field}`");
            assert!(error.refusal.to_string().contains(&named), "{error:?}");
        }
    }
}

#[test]
fn a_wrong_value_is_refused_or_parses_to_something_that_serialises() {
    for example in load_examples() {
        for mutated in with_value_replaced(&example.envelope["payload"]) {
            let location = format!("{}: {}", example.file(), mutated.mutation);
            match example
                .side
                .round_trip(&example.with_payload(mutated.payload))
            {
                Ok(written) => assert_eq!(
                    example.side.round_trip(&written).as_ref(),
                    Ok(&written),
                    "{location}"
                ),
                Err(error) => {
                    assert_eq!(
                        error.refusal.code(),
                        ErrorCode::InvalidMessage,
                        "{location}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_digests_in_the_examples_are_those_of_their_commands() {
    for example in load_examples()
        .iter()
        .filter(|example| example.side == MessageSide::Server)
    {
        let payload = &example.envelope["payload"];
        match example.kind() {
            "tool.propose" | "gate.amend" => {
                let arguments = payload["arguments"].as_object().expect("an object");
                let action = Action::from_arguments("shell", arguments).expect("a command");
                assert_eq!(payload["assessment"]["digest"], json!(action.digest()));
            }
            "tool.execute" => {
                let action: Action =
                    serde_json::from_value(payload["grant"]["action"].clone()).expect("an action");
                assert_eq!(payload["grant"]["digest"], json!(action.digest()));
            }
            _ => {}
        }
    }
}

#[test]
fn the_order_of_keys_does_not_change_a_digest() {
    let digest = |arguments: &str| {
        let arguments: JsonObject = serde_json::from_str(arguments).expect("an object");
        let action = Action::from_arguments("browser", &arguments).expect("an action");
        action.digest()
    };
    assert_eq!(
        digest(r#"{"url":"https://a.example","wait":{"ms":5,"for":"load"}}"#),
        digest(r#"{"wait":{"for":"load","ms":5},"url":"https://a.example"}"#)
    );
}

#[test]
fn relayed_messages_parse_the_same_as_client_and_server_messages() {
    for example in load_examples()
        .iter()
        .filter(|example| example.side == MessageSide::Client)
    {
        if ServerMessage::KINDS.contains(&example.kind()) {
            assert_eq!(
                MessageSide::Server.round_trip(&example.envelope),
                MessageSide::Client.round_trip(&example.envelope),
                "{}",
                example.file()
            );
        }
    }
}
