//! Conversations that are kept well formed, whatever happens to them.

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn call(id: &str) -> BrainEvent {
    BrainEvent::Call(ToolCall {
        id: id.to_owned(),
        name: "shell".to_owned(),
        arguments: r#"{"command":"ls"}"#.to_owned(),
    })
}

fn answer(events: &[BrainEvent]) -> Answer {
    let mut answer = Answer::default();
    for event in events {
        answer.take(event);
    }
    answer
}

fn result(text: &str) -> CallResult {
    CallResult {
        text: text.to_owned(),
        brief: "Exit code: 0".to_owned(),
        ..CallResult::failed("")
    }
}

fn long_story(rounds: usize) -> Conversation {
    let mut conversation = Conversation::new("Be careful.");
    conversation.ask("look around");
    for round in 0..rounds {
        let id = format!("c{round}");
        conversation.answer(answer(&[BrainEvent::Thinking("hm".into()), call(&id)]));
        assert!(conversation.result(&id, result(&"x".repeat(3000))));
    }
    conversation
}

#[test]
fn an_answer_joins_its_pieces_and_keeps_their_order() {
    let events = [
        BrainEvent::Thinking("a".into()),
        BrainEvent::Thinking("b".into()),
        BrainEvent::ThinkingSeal("s".into()),
        BrainEvent::Thinking("c".into()),
        BrainEvent::Text("d".into()),
        BrainEvent::Text("e".into()),
    ];
    let thinking = |text: &str, seal: Option<&str>| Part::Thinking {
        text: text.to_owned(),
        seal: seal.map(str::to_owned),
    };
    let whole = [
        thinking("ab", Some("s")),
        thinking("c", None),
        Part::Text("de".into()),
    ];
    assert_eq!(answer(&events).parts, whole);
}

#[test]
fn calls_get_ids_of_their_own() {
    let mut conversation = Conversation::new("");
    conversation.ask("go");
    let first = conversation.answer(answer(&[call("a"), call("a"), call("")]));
    let ids =
        |calls: &[ToolCall]| -> Vec<String> { calls.iter().map(|call| call.id.clone()).collect() };
    assert_eq!(ids(&first), ["a", "a_2", "call"]);
    conversation.abandon("stopped");
    let second = conversation.answer(answer(&[call("a")]));
    assert_eq!(ids(&second), ["a_3"]);
}

#[test]
fn a_prompt_closes_calls_that_are_open() {
    let mut conversation = Conversation::new("");
    conversation.ask("go");
    conversation.answer(answer(&[call("a"), call("b")]));
    assert!(!conversation.awaits_model());
    assert!(conversation.result("b", result("done")));
    assert!(!conversation.result("b", result("twice")));
    assert!(!conversation.awaits_model());
    conversation.ask("wait");
    assert_eq!(conversation.open_calls(), []);
    assert!(conversation.awaits_model());
    assert_eq!(conversation.last_result().unwrap().text, "done");
}

#[test]
fn old_output_is_reduced_before_anything_is_forgotten() {
    let mut conversation = long_story(10);
    let newest = conversation.last_result().cloned();
    conversation.fit(5000);
    assert!(conversation.tokens() <= 5000);
    assert_eq!(conversation.turns().len(), 11);
    assert_eq!(conversation.last_result().cloned(), newest);
    assert_eq!(conversation.system(), "Be careful.");
    let again = conversation.clone();
    conversation.fit(5000);
    assert_eq!(conversation, again);
}

#[test]
fn then_the_oldest_turns_go_but_never_the_prompt() {
    let mut conversation = long_story(40);
    conversation.fit(1500);
    assert!(conversation.tokens() <= 1500);
    assert_eq!(
        conversation.turns()[0],
        Turn::Person("look around".to_owned())
    );
    assert!(conversation.turns().len() < 41);
    assert!(conversation.system().contains("left out"));
    conversation.ask("and now?");
    conversation.fit(100);
    assert_eq!(conversation.turns(), [Turn::Person("and now?".to_owned())]);
}

fn huge_result(text: &str) -> CallResult {
    CallResult {
        brief: text.to_owned(),
        ..result(text)
    }
}

#[test]
fn one_huge_prompt_is_cut_and_still_asked() {
    let mut conversation = Conversation::new("Be careful.");
    conversation.ask(format!("begin {} end", "ü".repeat(300_000)));
    conversation.fit(8000);
    assert!(conversation.tokens() <= 8000, "{}", conversation.tokens());
    let [Turn::Person(text)] = conversation.turns() else {
        panic!("{:?}", conversation.turns().len());
    };
    assert!(text.starts_with("begin ü") && text.ends_with("ü end"));
    assert!(text.contains("bytes skipped"));
    assert!(conversation.tokens() > 2000, "{}", conversation.tokens());
}

#[test]
fn one_huge_answer_is_cut_where_it_may_be() {
    let mut conversation = Conversation::new("Be careful.");
    conversation.ask("look");
    let wordy = BrainEvent::Text("t".repeat(100_000));
    let long = BrainEvent::Call(ToolCall {
        id: "a".to_owned(),
        name: "shell".to_owned(),
        arguments: json!({ "command": "x".repeat(100_000) }).to_string(),
    });
    let seal = BrainEvent::ThinkingSeal("seal".to_owned());
    let parts = [
        BrainEvent::Thinking("hm".into()),
        seal,
        wordy,
        long,
        call("b"),
    ];
    conversation.answer(answer(&parts));
    conversation.result("a", huge_result(&"r".repeat(100_000)));
    conversation.result("b", huge_result("short"));
    conversation.fit(4000);
    assert!(conversation.tokens() <= 4000, "{}", conversation.tokens());
    let Turn::Model(parts) = &conversation.turns()[1] else {
        panic!("the answer is left out");
    };
    let sealed = Part::Thinking {
        text: "hm".to_owned(),
        seal: Some("seal".to_owned()),
    };
    assert_eq!(parts[0], sealed);
    let Part::Call { call: first, .. } = &parts[2] else {
        panic!("{parts:?}");
    };
    assert_eq!(first.arguments, r#"{"left_out":"100014 bytes"}"#);
    assert!(matches!(&parts[3], Part::Call { result: Some(result), .. } if result.text == "short"));
}

#[test]
fn many_small_turns_fit_too() {
    let mut conversation = Conversation::new("Be careful.");
    for round in 0..3000 {
        conversation.ask(format!("prompt {round}"));
        conversation.answer(answer(&[BrainEvent::Text("yes".into())]));
    }
    conversation.ask("last");
    conversation.fit(2000);
    assert!(conversation.tokens() <= 2000);
    assert!(conversation.tokens() > 1000);
    let last = Turn::Person("last".to_owned());
    assert_eq!(conversation.turns().last(), Some(&last));
}

#[test]
fn thinking_stays_until_its_exchange_is_over() {
    let mut conversation = Conversation::new("");
    conversation.ask("first");
    let thought = |id: &str| answer(&[BrainEvent::Thinking("hm".into()), call(id)]);
    conversation.answer(thought("a"));
    conversation.result("a", result(&"x".repeat(30_000)));
    // It joins the result, so that the model goes on with what it thought.
    conversation.ask("and this");
    let mut ended = conversation.clone();
    conversation.fit(5000);
    let thinks = |turn: &Turn| {
        let thinking = |part: &Part| matches!(part, Part::Thinking { .. });
        matches!(turn, Turn::Model(parts) if parts.iter().any(thinking))
    };
    assert!(conversation.turns().iter().any(thinks));
    ended.answer(answer(&[BrainEvent::Text("done".into())]));
    ended.ask("next");
    ended.fit(5000);
    assert_eq!(ended.turns().len(), 5);
    assert!(!ended.turns().iter().any(thinks));
}

#[test]
fn what_was_not_answered_is_taken_back() {
    let mut conversation = Conversation::new("");
    conversation.ask("hello");
    conversation.answer(answer(&[call("a")]));
    conversation.result("a", result("something that offends"));
    conversation.ask("go on");
    conversation.ask("please");
    conversation.take_back();
    assert_eq!(conversation.turns().len(), 2);
    let text = &conversation.last_result().unwrap().text;
    assert!(text.starts_with("Left out"), "{text}");
    conversation.take_back();
    assert_eq!(conversation.turns().len(), 2);
    let mut short = Conversation::new("");
    short.ask("hello");
    short.take_back();
    short.take_back();
    assert_eq!(short.turns(), []);
}

proptest! {
    #[test]
    fn a_budget_holds_whatever_was_said(
        steps in prop::collection::vec((0..4_u8, 0..40_000_usize), 1..30), budget in 3000..20_000_u64,
    ) {
        let mut conversation = Conversation::new("s");
        conversation.ask("begin");
        for (step, size) in steps {
            match step {
                0 => conversation.ask("ü".repeat(size)),
                1 => drop(conversation.answer(answer(&[call("a"), BrainEvent::Text("t".repeat(size)), call("b")]))),
                2 => drop(conversation.answer(answer(&[BrainEvent::Thinking("t".repeat(100))]))),
                _ => if let Some(open) = conversation.open_calls().first() {
                    conversation.result(&open.id, huge_result(&"r".repeat(size)));
                },
            }
            conversation.fit(budget);
            prop_assert!(conversation.tokens() <= budget, "{}", conversation.tokens());
            invariant_begins_with_a_person(&conversation);
        }
    }


    #[test]
    fn whatever_happens_a_conversation_stays_well_formed(
        steps in prop::collection::vec((0..5_u8, 0..4000_usize), 1..60), budget in 0..6000_u64,
    ) {
        let mut conversation = Conversation::new("s");
        conversation.ask("begin");
        for (step, size) in steps {
            match step {
                0 => conversation.ask("p".repeat(size)),
                1 => drop(conversation.answer(answer(&[call("a"), BrainEvent::Text("t".repeat(size)), call("b")]))),
                2 => drop(conversation.answer(answer(&[BrainEvent::Thinking("t".repeat(size))]))),
                3 => if let Some(open) = conversation.open_calls().first() {
                    conversation.result(&open.id, result(&"r".repeat(size)));
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
        Some(Turn::Person(_))
    ));
}

fn invariant_only_the_last_answer_has_open_calls(conversation: &Conversation) {
    let all = conversation.turns().len();
    for turn in &conversation.turns()[..all - 1] {
        if let Turn::Model(parts) = turn {
            let open = |part: &Part| matches!(part, Part::Call { result: None, .. });
            assert!(!parts.iter().any(open));
        }
    }
}
