//! Providers as they are met on the wire.

#![expect(
    clippy::unwrap_used,
    reason = "what helps a test may fail as a test does"
)]

mod server;

use std::time::Duration;

use pvp_agent::brain::conversation::Answer;
use pvp_agent::brain::provider::{Dialect, Provider, Settings};
use pvp_agent::brain::{
    Brain, BrainError, BrainEvent, Conversation, Finish, Reply, Surroundings, ToolUse, Trouble,
    tools,
};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;

use server::{Act, pieces, request, serve};

const ANTHROPIC: &str = include_str!("../wire/anthropic.sse");
const OPENAI: &str = include_str!("../wire/openai.sse");
const KEY: &str = "sk-test-0123456789";

fn recorded(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Anthropic => ANTHROPIC,
        Dialect::OpenAi => OPENAI,
    }
}

/// A stream up to the end of the event that has this in it.
fn up_to<'a>(text: &'a str, part: &str) -> &'a str {
    let at = text.find(part).unwrap();
    &text[..at + text[at..].find("\n\n").unwrap() + 2]
}

const BOTH: [Dialect; 2] = [Dialect::Anthropic, Dialect::OpenAi];

fn begin(dialect: Dialect, base: &str) -> Reply {
    let mut settings = Settings::new(dialect, "model-1");
    settings.base_url = Some(base.to_owned());
    let provider = Provider::with_environment(settings, |name| {
        (name == dialect.key_variable()).then(|| KEY.to_owned())
    });
    let mut conversation = Conversation::new("Be careful.");
    conversation.ask("look around");
    let offers = tools::offers(&Surroundings {
        directory: "/srv".to_owned(),
        reads: tools::Reads::RunThemselves,
    });
    Brain::Provider(provider.unwrap()).begin(&mut conversation, &offers, None)
}

/// Everything that comes; waits between tries pass at once.
async fn all(reply: &mut Reply, told: &Notify) -> Vec<Result<BrainEvent, BrainError>> {
    let mut events = Vec::new();
    while let Some(event) = reply.next().await {
        if let Ok(BrainEvent::Retrying { wait, .. }) = &event {
            tokio::time::pause();
            tokio::time::advance(*wait).await;
            tokio::time::resume();
        }
        if let Ok(BrainEvent::Text(_)) = &event {
            told.notify_one();
        }
        events.push(event);
    }
    events
}

async fn played(dialect: Dialect, acts: Vec<Act>) -> Vec<Result<BrainEvent, BrainError>> {
    let server = serve(acts).await;
    all(&mut begin(dialect, &server.base), &server.told).await
}

fn waits(events: &[Result<BrainEvent, BrainError>]) -> Vec<Duration> {
    let wait = |event: &Result<BrainEvent, BrainError>| match event {
        Ok(BrainEvent::Retrying { wait, .. }) => Some(*wait),
        _ => None,
    };
    events.iter().filter_map(wait).collect()
}

fn good(events: &[Result<BrainEvent, BrainError>]) {
    let mut answer = Answer::default();
    for event in events {
        answer.take(event.as_ref().unwrap());
    }
    let mut conversation = Conversation::new("");
    conversation.ask("x");
    let calls = conversation.answer(answer);
    let uses: Vec<_> = calls
        .iter()
        .map(|call| ToolUse::read(call).unwrap())
        .collect();
    assert!(matches!(&uses[0], ToolUse::Shell(shell) if shell.command == "ls -la"));
    assert!(matches!(&uses[1], ToolUse::Jobs(_)));
    assert_eq!(
        events.last(),
        Some(&Ok(BrainEvent::Finished(Finish::ToolUse)))
    );
}

fn failed(events: &[Result<BrainEvent, BrainError>]) -> &BrainError {
    events.last().unwrap().as_ref().unwrap_err()
}

#[tokio::test]
async fn answers_come_whole_however_they_are_cut() {
    for dialect in BOTH {
        let text = recorded(dialect);
        let owl = text.find('🦉').unwrap();
        let cut_in_a_character = vec![
            text.as_bytes()[..owl + 2].to_vec(),
            text.as_bytes()[owl + 2..].to_vec(),
        ];
        let whole = played(dialect, vec![Act::Stream(pieces(text, usize::MAX))]).await;
        good(&whole);
        let told = |event: &Result<BrainEvent, BrainError>| matches!(event, Ok(BrainEvent::Thinking(text)) if text.ends_with('🦉'));
        assert!(whole.iter().any(told));
        for cut in [cut_in_a_character, pieces(text, 7), pieces(text, 1)] {
            assert_eq!(played(dialect, vec![Act::Stream(cut)]).await, whole);
        }
    }
}

#[tokio::test]
async fn requests_are_what_providers_document() {
    for (dialect, path, credential) in [
        (
            Dialect::Anthropic,
            "POST /v1/messages HTTP/1.1",
            format!("x-api-key: {KEY}"),
        ),
        (
            Dialect::OpenAi,
            "POST /chat/completions HTTP/1.1",
            format!("authorization: Bearer {KEY}"),
        ),
    ] {
        let act = Act::Stream(pieces(recorded(dialect), usize::MAX));
        let mut server = serve(vec![act]).await;
        good(&all(&mut begin(dialect, &server.base), &server.told).await);
        let asked = server.asked.recv().await.unwrap();
        assert!(asked.head.starts_with(path), "{}", asked.head);
        assert!(asked.head.contains(&credential), "{}", asked.head);
        let version = asked.head.contains("anthropic-version: 2023-06-01");
        assert_eq!(version, dialect == Dialect::Anthropic);
        assert_eq!(asked.body["stream"], true);
        assert_eq!(asked.body["model"], "model-1");
        let tools = asked.body["tools"].as_array().unwrap();
        let name = |tool: &Value| match dialect {
            Dialect::Anthropic => tool["name"].clone(),
            Dialect::OpenAi => tool["function"]["name"].clone(),
        };
        let names: Vec<_> = tools.iter().map(name).collect();
        assert_eq!(names, ["shell", "recall", "jobs"]);
    }
}

#[tokio::test]
async fn a_busy_provider_is_asked_again_when_it_says() {
    for dialect in BOTH {
        let limited =
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
        let acts = vec![
            Act::Answer(
                429,
                "retry-after: 7\r\ncontent-type: application/json\r\n",
                limited.to_owned(),
            ),
            Act::Answer(529, "", String::new()),
            Act::Answer(
                502,
                "content-type: text/html\r\n",
                "<html><title>Bad</title></html>".to_owned(),
            ),
            Act::Stream(pieces(recorded(dialect), 100)),
        ];
        let events = played(dialect, acts).await;
        good(&events);
        let waits = waits(&events);
        assert_eq!(waits[0], Duration::from_secs(7));
        assert_eq!(waits.len(), 3);
        assert!(
            waits[1..]
                .iter()
                .all(|wait| *wait >= Duration::from_millis(500))
        );
        let Ok(BrainEvent::Retrying { why, .. }) = &events[0] else {
            panic!("{:?}", events[0]);
        };
        assert_eq!(
            why,
            "the provider answered with an error rate_limit_error (429): slow down"
        );
    }
}

#[tokio::test]
async fn it_gives_up_in_the_end() {
    let acts = (0..5)
        .map(|_| Act::Answer(503, "", String::new()))
        .collect();
    let events = played(Dialect::OpenAi, acts).await;
    assert_eq!(waits(&events).len(), 4);
    let message = "the provider answered with an error (503) (tried 5 times)";
    assert_eq!(
        failed(&events),
        &BrainError {
            trouble: Trouble::Busy { after: None },
            message: message.to_owned()
        }
    );
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_told_and_not_waited_for() {
    let events = played(
        Dialect::Anthropic,
        vec![Act::Answer(429, "retry-after: 3600\r\n", String::new())],
    )
    .await;
    assert_eq!(events.len(), 1);
    let error = failed(&events);
    assert_eq!(
        error.trouble,
        Trouble::Busy {
            after: Some(Duration::from_secs(3600))
        }
    );
    assert!(error.message.ends_with("it asks to wait 3600 s"), "{error}");
}

#[tokio::test]
async fn what_will_not_change_is_told_at_once_and_without_the_key() {
    let json = "content-type: application/json\r\n";
    for (status, headers, body, trouble, said) in [
        (401, json, format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#), Trouble::Refused, "bad key [key]; is OPENAI_API_KEY right?"),
        (404, json, r#"{"error":{"message":"no such model"}}"#.to_owned(), Trouble::Refused, "no such model; are the model"),
        (400, json, r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#.to_owned(), Trouble::TooLong, "maximum context length"),
        (429, json, r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#.to_owned(), Trouble::Refused, "pay"),
        (302, "location: http://127.0.0.1:1/\r\n", String::new(), Trouble::Refused, "leads elsewhere"),
        (200, "content-type: text/html\r\n", "<html>Log in</html>".to_owned(), Trouble::Refused, "text/html instead of a stream"),
        (200, "", String::new(), Trouble::Refused, "something instead of a stream"),
        (200, json, r#"{"error":{"message":"no","type":"invalid_request_error"}}"#.to_owned(), Trouble::Refused, "invalid_request_error: no"),
    ] {
        let events = played(Dialect::OpenAi, vec![Act::Answer(status, headers, body)]).await;
        assert_eq!(events.len(), 1, "{events:?}");
        let error = failed(&events);
        assert_eq!(error.trouble, trouble, "{error}");
        assert!(error.message.contains(said), "{error}");
        assert!(!error.message.contains(KEY));
    }
}

#[tokio::test]
async fn a_stream_that_fails_before_anything_was_told_is_asked_for_again() {
    for dialect in BOTH {
        let text = recorded(dialect);
        let first = text.find("\n\n").unwrap() + 2;
        let overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
        for bad in [
            Act::Stream(pieces(&text[..first], 50)),
            Act::Reset(pieces(&text[..first], 50)),
            Act::Reset(Vec::new()),
            Act::Stream(pieces(&format!("{}{overloaded}", &text[..first]), 50)),
            Act::Stream(pieces("data: {\"type\": \"mess\n\n", 50)),
            Act::Stream(pieces(&"x".repeat(2 * 1024 * 1024), 100_000)),
        ] {
            let events = played(dialect, vec![bad, Act::Stream(pieces(text, 500))]).await;
            assert_eq!(waits(&events).len(), 1);
            good(&events);
        }
    }
}

#[tokio::test]
async fn a_stream_that_fails_later_is_not_told_twice() {
    for dialect in BOTH {
        let text = recorded(dialect);
        let half = up_to(text, "zwei");
        for (bad, trouble) in [
            (Act::Stream(pieces(half, 50)), Trouble::Lost),
            (Act::ResetLater(pieces(half, 50)), Trouble::Lost),
            (
                Act::Stream(pieces(&format!("{}data: {{]\n\n", half), 50)),
                Trouble::Nonsense,
            ),
        ] {
            let events = played(dialect, vec![bad]).await;
            assert_eq!(waits(&events), []);
            let said =
                |event: &Result<BrainEvent, BrainError>| matches!(event, Ok(BrainEvent::Text(_)));
            assert!(events.iter().any(said), "{events:?}");
            let error = failed(&events);
            assert_eq!(error.trouble, trouble);
            assert!(error.worth_trying_again());
        }
    }
}

/// Half of an answer is told, and then nothing of it for as long as it takes: how that ends, and
/// after how long at most.
async fn ends_after(dialect: Dialect, then: fn(Vec<Vec<u8>>) -> Act, most: Duration) -> BrainError {
    let half = up_to(recorded(dialect), "zwei");
    let server = serve(vec![then(pieces(half, 50))]).await;
    let mut reply = begin(dialect, &server.base);
    let told = |event: BrainEvent| matches!(event, BrainEvent::Text(text) if text.contains("zwei"));
    while !told(reply.next().await.unwrap().unwrap()) {}
    // Nothing else can happen, so that the clock goes from one wait to the next.
    tokio::time::pause();
    let paused = tokio::time::Instant::now();
    let error = reply.next().await.unwrap().unwrap_err();
    assert!(paused.elapsed() <= most);
    tokio::time::resume();
    assert_eq!(reply.next().await, None);
    error
}

#[tokio::test]
async fn a_provider_that_falls_silent_is_lost() {
    for dialect in BOTH {
        let error = ends_after(dialect, Act::Silence, Duration::from_secs(301)).await;
        let message = "the provider was silent for 300 s".to_owned();
        let trouble = Trouble::Lost;
        assert_eq!(error, BrainError { trouble, message });
    }
}

#[tokio::test]
async fn an_answer_that_does_not_end_is_ended() {
    for dialect in BOTH {
        let error = ends_after(dialect, Act::Drip, Duration::from_secs(3601)).await;
        let message = "the provider's answer did not end in 3600 s".to_owned();
        let trouble = Trouble::Refused;
        assert_eq!(error, BrainError { trouble, message });
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_lost() {
    // Held, so that nobody else listens there, and not listening.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let base = format!("http://{}", held.local_addr().unwrap());
    let events = all(&mut begin(Dialect::Anthropic, &base), &Notify::new()).await;
    assert_eq!(waits(&events).len(), 4);
    let error = failed(&events);
    assert_eq!(error.trouble, Trouble::Lost);
    assert!(error.message.contains("onnection refused"), "{error}");
}

#[tokio::test]
async fn dropping_an_answer_hangs_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let reply = begin(Dialect::OpenAi, &base);
    let (mut socket, _) = listener.accept().await.unwrap();
    request(&mut socket).await;
    drop(reply);
    assert_eq!(socket.read(&mut [0; 16]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn an_answer_that_is_whole_needs_no_formal_end() {
    for dialect in BOTH {
        // Why it stops is the last thing that matters.
        let text = match dialect {
            Dialect::Anthropic => up_to(ANTHROPIC, "\"stop_reason\":\"tool_use\""),
            Dialect::OpenAi => up_to(OPENAI, "\"finish_reason\":\"tool_calls\""),
        };
        good(&played(dialect, vec![Act::Stream(pieces(text, 50))]).await);
        good(&played(dialect, vec![Act::ResetLater(pieces(text, usize::MAX))]).await);
        let server = serve(vec![Act::Silence(pieces(text, 50))]).await;
        let mut reply = begin(dialect, &server.base);
        let mut events = Vec::new();
        let told = |events: &[Result<BrainEvent, BrainError>]| matches!(events.last(), Some(Ok(BrainEvent::Text(text))) if text.ends_with("“gleich”."));
        while !told(&events) {
            events.push(reply.next().await.unwrap());
        }
        // Nothing else can happen, so that the clock goes on to the end of the wait.
        tokio::time::pause();
        events.extend(all(&mut reply, &server.told).await);
        tokio::time::resume();
        good(&events);
    }
}

#[tokio::test]
async fn not_even_a_piece_of_a_key_is_told() {
    let keys = KEY.repeat(400);
    let json = "content-type: application/json\r\n";
    let page = "content-type: text/html\r\n";
    let error = format!(r#"{{"error":{{"type":"{keys}","message":"{keys}"}}}}"#);
    for dialect in BOTH {
        for act in [
            Act::Answer(400, json, error.clone()),
            Act::Answer(400, page, keys.clone()),
            Act::Answer(400, page, format!("<html><title>{keys}</title></html>")),
            Act::Answer(200, page, keys.clone()),
            Act::Answer(200, json, error.clone()),
            Act::Stream(pieces(
                &format!(
                    "data: {{\"type\":\"error\",\"error\":{{\"type\":\"invalid_request_error\",\"message\":\"{keys}\"}}}}\n\n"
                ),
                usize::MAX,
            )),
        ] {
            let events = played(dialect, vec![act]).await;
            let seen = format!("{events:?}");
            assert!(seen.contains("[key]"), "{seen}");
            assert!(seen.len() < 4000, "{}", seen.len());
            for piece in ["sk-", "test-", "0123", "6789"] {
                assert!(!seen.contains(piece), "{piece} in {seen}");
            }
        }
    }
}
