//! Tests that a conversation stays valid, whatever happens to it.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn call_event(id: &str) -> BrainEvent {
    BrainEvent::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "shell".to_owned(),
        arguments: r#"{"command":"ls"}"#.to_owned(),
    })
}

fn answer_from(events: &[BrainEvent]) -> ModelAnswer {
    let mut answer = ModelAnswer::default();
    for event in events {
        answer.push(event);
    }
    answer
}

fn result_with(text: &str) -> CallResult {
    CallResult {
        text: text.to_owned(),
        short_text: "Exit code: 0".to_owned(),
        ..CallResult::failed("")
    }
}

fn long_conversation(rounds: usize) -> Conversation {
    let mut conversation = Conversation::new("Be careful.");
    conversation.push_prompt("look around");
    for round in 0..rounds {
        let id = format!("c{round}");
        conversation.push_answer(answer_from(&[
            BrainEvent::Thinking("hm".into()),
            call_event(&id),
        ]));
        assert!(conversation.set_result(&id, result_with(&"x".repeat(3000))));
    }
    conversation
}

#[test]
fn an_answer_joins_its_events_and_keeps_their_order() {
    let events = [
        BrainEvent::Thinking("a".into()),
        BrainEvent::Thinking("b".into()),
        BrainEvent::ThinkingSignature("s".into()),
        BrainEvent::Thinking("c".into()),
        BrainEvent::Text("d".into()),
        BrainEvent::Text("e".into()),
    ];
    let thinking = |text: &str, signature: Option<&str>| AnswerPart::Thinking {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
    };
    let whole = [
        thinking("ab", Some("s")),
        thinking("c", None),
        AnswerPart::Text("de".into()),
    ];
    assert_eq!(answer_from(&events).parts, whole);
}

#[test]
fn calls_get_unique_ids() {
    let mut conversation = Conversation::new("");
    conversation.push_prompt("go");
    let first = conversation.push_answer(answer_from(&[
        call_event("a"),
        call_event("a"),
        call_event(""),
    ]));
    let ids =
        |calls: &[ToolCall]| -> Vec<String> { calls.iter().map(|call| call.id.clone()).collect() };
    assert_eq!(ids(&first), ["a", "a_2", "call"]);
    conversation.fail_open_calls("stopped");
    let second = conversation.push_answer(answer_from(&[call_event("a")]));
    assert_eq!(ids(&second), ["a_3"]);
}

#[test]
fn a_prompt_closes_calls_that_are_open() {
    let mut conversation = Conversation::new("");
    conversation.push_prompt("go");
    conversation.push_answer(answer_from(&[call_event("a"), call_event("b")]));
    assert!(!conversation.awaits_model());
    assert!(conversation.set_result("b", result_with("done")));
    assert!(!conversation.set_result("b", result_with("twice")));
    assert!(!conversation.awaits_model());
    conversation.push_prompt("wait");
    assert_eq!(conversation.open_calls(), []);
    assert!(conversation.awaits_model());
    assert_eq!(conversation.last_result().unwrap().text, "done");
}

#[test]
fn old_output_is_shortened_before_turns_are_dropped() {
    let mut conversation = long_conversation(10);
    let newest = conversation.last_result().cloned();
    conversation.fit(5000);
    assert!(conversation.tokens() <= 5000);
    assert_eq!(conversation.turns().len(), 11);
    assert_eq!(conversation.last_result().cloned(), newest);
    assert_eq!(conversation.system_prompt(), "Be careful.");
    let again = conversation.clone();
    conversation.fit(5000);
    assert_eq!(conversation, again);
}

#[test]
fn the_oldest_turns_are_dropped_but_never_the_prompt() {
    let mut conversation = long_conversation(40);
    conversation.fit(1500);
    assert!(conversation.tokens() <= 1500);
    assert_eq!(
        conversation.turns()[0],
        ConversationTurn::Person("look around".to_owned())
    );
    assert!(conversation.turns().len() < 41);
    assert!(conversation.system_prompt().contains("left out"));
    conversation.push_prompt("and now?");
    conversation.fit(100);
    assert_eq!(
        conversation.turns(),
        [ConversationTurn::Person("and now?".to_owned())]
    );
}

fn huge_result(text: &str) -> CallResult {
    CallResult {
        short_text: text.to_owned(),
        ..result_with(text)
    }
}

#[test]
fn one_huge_prompt_is_cut_but_still_sent() {
    let mut conversation = Conversation::new("Be careful.");
    conversation.push_prompt(format!("begin {} end", "ü".repeat(300_000)));
    conversation.fit(8000);
    assert!(conversation.tokens() <= 8000, "{}", conversation.tokens());
    let [ConversationTurn::Person(text)] = conversation.turns() else {
        panic!("{:?}", conversation.turns().len());
    };
    assert!(text.starts_with("begin ü") && text.ends_with("ü end"));
    assert!(text.contains("bytes skipped"));
    assert!(conversation.tokens() > 2000, "{}", conversation.tokens());
}

#[test]
fn one_huge_answer_is_cut_where_it_may_be() {
    let mut conversation = Conversation::new("Be careful.");
    conversation.push_prompt("look");
    let wordy = BrainEvent::Text("t".repeat(100_000));
    let long = BrainEvent::ToolCall(ToolCall {
        id: "a".to_owned(),
        name: "shell".to_owned(),
        arguments: json!({ "command": "x".repeat(100_000) }).to_string(),
    });
    let signature = BrainEvent::ThinkingSignature("seal".to_owned());
    let parts = [
        BrainEvent::Thinking("hm".into()),
        signature,
        wordy,
        long,
        call_event("b"),
    ];
    conversation.push_answer(answer_from(&parts));
    conversation.set_result("a", huge_result(&"r".repeat(100_000)));
    conversation.set_result("b", huge_result("short"));
    conversation.fit(4000);
    assert!(conversation.tokens() <= 4000, "{}", conversation.tokens());
    let ConversationTurn::Model(parts) = &conversation.turns()[1] else {
        panic!("the answer is left out");
    };
    let sealed = AnswerPart::Thinking {
        text: "hm".to_owned(),
        signature: Some("seal".to_owned()),
    };
    assert_eq!(parts[0], sealed);
    let AnswerPart::Call { call: first, .. } = &parts[2] else {
        panic!("{parts:?}");
    };
    assert_eq!(first.arguments, r#"{"left_out":"100014 bytes"}"#);
    assert!(
        matches!(&parts[3], AnswerPart::Call { result: Some(result), .. } if result.text == "short")
    );
}

#[test]
fn many_small_turns_fit_too() {
    let mut conversation = Conversation::new("Be careful.");
    for round in 0..3000 {
        conversation.push_prompt(format!("prompt {round}"));
        conversation.push_answer(answer_from(&[BrainEvent::Text("yes".into())]));
    }
    conversation.push_prompt("last");
    conversation.fit(2000);
    assert!(conversation.tokens() <= 2000);
    assert!(conversation.tokens() > 1000);
    let last = ConversationTurn::Person("last".to_owned());
    assert_eq!(conversation.turns().last(), Some(&last));
}

#[test]
fn thinking_stays_until_its_exchange_is_over() {
    let mut conversation = Conversation::new("");
    conversation.push_prompt("first");
    let thought = |id: &str| answer_from(&[BrainEvent::Thinking("hm".into()), call_event(id)]);
    conversation.push_answer(thought("a"));
    conversation.set_result("a", result_with(&"x".repeat(30_000)));
    // It joins the result, so that the model continues from its thinking.
    conversation.push_prompt("and this");
    let mut ended = conversation.clone();
    conversation.fit(5000);
    let thinks = |turn: &ConversationTurn| {
        let thinking = |part: &AnswerPart| matches!(part, AnswerPart::Thinking { .. });
        matches!(turn, ConversationTurn::Model(parts) if parts.iter().any(thinking))
    };
    assert!(conversation.turns().iter().any(thinks));
    ended.push_answer(answer_from(&[BrainEvent::Text("done".into())]));
    ended.push_prompt("next");
    ended.fit(5000);
    assert_eq!(ended.turns().len(), 5);
    assert!(!ended.turns().iter().any(thinks));
}

#[test]
fn what_was_not_answered_is_retracted() {
    let mut conversation = Conversation::new("");
    conversation.push_prompt("hello");
    conversation.push_answer(answer_from(&[call_event("a")]));
    conversation.set_result("a", result_with("something that offends"));
    conversation.push_prompt("go on");
    conversation.push_prompt("please");
    conversation.retract_unanswered();
    assert_eq!(conversation.turns().len(), 2);
    let text = &conversation.last_result().unwrap().text;
    assert!(text.starts_with("Left out"), "{text}");
    conversation.retract_unanswered();
    assert_eq!(conversation.turns().len(), 2);
    let mut short = Conversation::new("");
    short.push_prompt("hello");
    short.retract_unanswered();
    short.retract_unanswered();
    assert_eq!(short.turns(), []);
}

proptest! {
    #[test]
    fn the_budget_holds_for_any_conversation(
        steps in prop::collection::vec((0..4_u8, 0..40_000_usize), 1..30), budget in 3000..20_000_u64,
    ) {
        let mut conversation = Conversation::new("s");
        conversation.push_prompt("begin");
        for (step, size) in steps {
            match step {
                0 => conversation.push_prompt("ü".repeat(size)),
                1 => drop(conversation.push_answer(answer_from(&[call_event("a"), BrainEvent::Text("t".repeat(size)), call_event("b")]))),
                2 => drop(conversation.push_answer(answer_from(&[BrainEvent::Thinking("t".repeat(100))]))),
                _ => if let Some(open) = conversation.open_calls().first() {
                    conversation.set_result(&open.id, huge_result(&"r".repeat(size)));
                },
            }
            conversation.fit(budget);
            prop_assert!(conversation.tokens() <= budget, "{}", conversation.tokens());
            invariant_begins_with_a_person(&conversation);
        }
    }


    #[test]
    fn a_conversation_stays_valid_after_any_sequence_of_changes(
        steps in prop::collection::vec((0..5_u8, 0..4000_usize), 1..60), budget in 0..6000_u64,
    ) {
        let mut conversation = Conversation::new("s");
        conversation.push_prompt("begin");
        for (step, size) in steps {
            match step {
                0 => conversation.push_prompt("p".repeat(size)),
                1 => drop(conversation.push_answer(answer_from(&[call_event("a"), BrainEvent::Text("t".repeat(size)), call_event("b")]))),
                2 => drop(conversation.push_answer(answer_from(&[BrainEvent::Thinking("t".repeat(size))]))),
                3 => if let Some(open) = conversation.open_calls().first() {
                    conversation.set_result(&open.id, result_with(&"r".repeat(size)));
                },
                _ => conversation.fit(budget),
            }
            invariant_begins_with_a_person(&conversation);
            invariant_only_the_last_answer_has_open_calls(&conversation);
        }
    }
}

fn invariant_begins_with_a_person(conversation: &Conversation) {
    assert!(matches!(
        conversation.turns().first(),
        Some(ConversationTurn::Person(_))
    ));
}

fn invariant_only_the_last_answer_has_open_calls(conversation: &Conversation) {
    let all = conversation.turns().len();
    for turn in &conversation.turns()[..all - 1] {
        if let ConversationTurn::Model(parts) = turn {
            let open = |part: &AnswerPart| matches!(part, AnswerPart::Call { result: None, .. });
            assert!(!parts.iter().any(open));
        }
    }
}
