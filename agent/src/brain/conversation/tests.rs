//! Conversations that are kept well formed, whatever happens to them.

use super::*;
use proptest::prelude::*;

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

proptest! {
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
