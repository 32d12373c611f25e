//! Tests of providers over real connections to a local server.

#![expect(
    clippy::unwrap_used,
    reason = "what helps a test may fail as a test does"
)]

mod fake_provider;

use std::time::Duration;

use pvp_agent::brain::conversation::ModelAnswer;
use pvp_agent::brain::provider::{Dialect, Provider, ProviderSettings};
use pvp_agent::brain::{
    AnswerFinish, AnswerStream, Brain, BrainError, BrainErrorKind, BrainEvent, Conversation,
    ParsedToolCall, ToolContext, tools,
};
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;

use fake_provider::{FakeProviderReply, read_request, split_bytes, start_fake_provider};

const ANTHROPIC: &str = include_str!("../wire/anthropic.sse");
const OPENAI: &str = include_str!("../wire/openai.sse");
const KEY: &str = "sk-test-0123456789";

fn recording(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Anthropic => ANTHROPIC,
        Dialect::OpenAi => OPENAI,
    }
}

/// The stream up to the end of the event that contains this text.
fn through_event<'a>(text: &'a str, part: &str) -> &'a str {
    let at = text.find(part).unwrap();
    &text[..at + text[at..].find("\n\n").unwrap() + 2]
}

const DIALECTS: [Dialect; 2] = [Dialect::Anthropic, Dialect::OpenAi];

fn start_answer(dialect: Dialect, base: &str) -> AnswerStream {
    let mut settings = ProviderSettings::new(dialect, "model-1");
    settings.base_url = Some(base.to_owned());
    let provider = Provider::with_environment(settings, |name| {
        (name == dialect.key_variable()).then(|| KEY.to_owned())
    });
    let mut conversation = Conversation::new("Be careful.");
    conversation.push_prompt("look around");
    let offers = tools::tool_definitions(&ToolContext {
        working_directory: "/srv".to_owned(),
        read_approval: tools::ReadApproval::NotRequired,
        file_tools: tools::FileToolOffer::Offered,
    });
    Brain::Provider(provider.unwrap()).start_answer(&mut conversation, &offers, None)
}

/// Collects all events; delays between attempts pass at once.
async fn collect_events(
    answer_stream: &mut AnswerStream,
    text_received: &Notify,
) -> Vec<Result<BrainEvent, BrainError>> {
    let mut events = Vec::new();
    while let Some(event) = answer_stream.next().await {
        if let Ok(BrainEvent::Retrying { wait, .. }) = &event {
            tokio::time::pause();
            tokio::time::advance(*wait).await;
            tokio::time::resume();
        }
        if let Ok(BrainEvent::Text(_)) = &event {
            text_received.notify_one();
        }
        events.push(event);
    }
    events
}

async fn events_from(
    dialect: Dialect,
    replies: Vec<FakeProviderReply>,
) -> Vec<Result<BrainEvent, BrainError>> {
    let server = start_fake_provider(replies).await;
    collect_events(
        &mut start_answer(dialect, &server.base_url),
        &server.text_received,
    )
    .await
}

fn retry_delays(events: &[Result<BrainEvent, BrainError>]) -> Vec<Duration> {
    let wait = |event: &Result<BrainEvent, BrainError>| match event {
        Ok(BrainEvent::Retrying { wait, .. }) => Some(*wait),
        _ => None,
    };
    events.iter().filter_map(wait).collect()
}

fn assert_complete_answer(events: &[Result<BrainEvent, BrainError>]) {
    let mut answer = ModelAnswer::default();
    for event in events {
        answer.push(event.as_ref().unwrap());
    }
    let mut conversation = Conversation::new("");
    conversation.push_prompt("x");
    let calls = conversation.push_answer(answer);
    let uses: Vec<_> = calls
        .iter()
        .map(|call| ParsedToolCall::parse(call).unwrap())
        .collect();
    assert!(matches!(&uses[0], ParsedToolCall::Shell(shell) if shell.command == "ls -la"));
    assert!(matches!(&uses[1], ParsedToolCall::Jobs(_)));
    assert_eq!(
        events.last(),
        Some(&Ok(BrainEvent::Finished(AnswerFinish::ToolUse)))
    );
}

fn last_error(events: &[Result<BrainEvent, BrainError>]) -> &BrainError {
    events.last().unwrap().as_ref().unwrap_err()
}

#[tokio::test]
async fn answers_arrive_complete_however_the_bytes_are_split() {
    for dialect in DIALECTS {
        let text = recording(dialect);
        let owl = text.find('🦉').unwrap();
        let cut_in_a_character = vec![
            text.as_bytes()[..owl + 2].to_vec(),
            text.as_bytes()[owl + 2..].to_vec(),
        ];
        let whole = events_from(
            dialect,
            vec![FakeProviderReply::Stream(split_bytes(text, usize::MAX))],
        )
        .await;
        assert_complete_answer(&whole);
        let is_owl = |event: &Result<BrainEvent, BrainError>| matches!(event, Ok(BrainEvent::Thinking(text)) if text.ends_with('🦉'));
        assert!(whole.iter().any(is_owl));
        for cut in [
            cut_in_a_character,
            split_bytes(text, 7),
            split_bytes(text, 1),
        ] {
            assert_eq!(
                events_from(dialect, vec![FakeProviderReply::Stream(cut)]).await,
                whole
            );
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
        let fake_reply = FakeProviderReply::Stream(split_bytes(recording(dialect), usize::MAX));
        let mut server = start_fake_provider(vec![fake_reply]).await;
        assert_complete_answer(
            &collect_events(
                &mut start_answer(dialect, &server.base_url),
                &server.text_received,
            )
            .await,
        );
        let request = server.requests.recv().await.unwrap();
        assert!(request.head.starts_with(path), "{}", request.head);
        assert!(request.head.contains(&credential), "{}", request.head);
        let version = request.head.contains("anthropic-version: 2023-06-01");
        assert_eq!(version, dialect == Dialect::Anthropic);
        assert_eq!(request.body["stream"], true);
        assert_eq!(request.body["model"], "model-1");
        let tools = request.body["tools"].as_array().unwrap();
        let name = |tool: &Value| match dialect {
            Dialect::Anthropic => tool["name"].clone(),
            Dialect::OpenAi => tool["function"]["name"].clone(),
        };
        let names: Vec<_> = tools.iter().map(name).collect();
        assert_eq!(
            names,
            [
                "shell",
                "file_read",
                "file_write",
                "file_edit",
                "recall",
                "jobs"
            ]
        );
    }
}

#[tokio::test]
async fn a_busy_provider_is_retried_after_the_requested_wait() {
    for dialect in DIALECTS {
        let limited =
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}"#;
        let replies = vec![
            FakeProviderReply::Full(
                429,
                "retry-after: 7\r\ncontent-type: application/json\r\n",
                limited.to_owned(),
            ),
            FakeProviderReply::Full(529, "", String::new()),
            FakeProviderReply::Full(
                502,
                "content-type: text/html\r\n",
                "<html><title>Bad</title></html>".to_owned(),
            ),
            FakeProviderReply::Stream(split_bytes(recording(dialect), 100)),
        ];
        let events = events_from(dialect, replies).await;
        assert_complete_answer(&events);
        let waits = retry_delays(&events);
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
async fn the_client_gives_up_after_several_attempts() {
    let replies = (0..5)
        .map(|_| FakeProviderReply::Full(503, "", String::new()))
        .collect();
    let events = events_from(Dialect::OpenAi, replies).await;
    assert_eq!(retry_delays(&events).len(), 4);
    let message = "the provider answered with an error (503) (tried 5 times)";
    assert_eq!(
        last_error(&events),
        &BrainError {
            kind: BrainErrorKind::Busy { after: None },
            message: message.to_owned()
        }
    );
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_reported_instead() {
    let events = events_from(
        Dialect::Anthropic,
        vec![FakeProviderReply::Full(
            429,
            "retry-after: 3600\r\n",
            String::new(),
        )],
    )
    .await;
    assert_eq!(events.len(), 1);
    let error = last_error(&events);
    assert_eq!(
        error.kind,
        BrainErrorKind::Busy {
            after: Some(Duration::from_secs(3600))
        }
    );
    assert!(error.message.ends_with("it asks to wait 3600 s"), "{error}");
}

#[tokio::test]
async fn permanent_errors_are_reported_at_once_and_without_the_key() {
    let json = "content-type: application/json\r\n";
    for (status, headers, body, kind, message) in [
        (401, json, format!(r#"{{"error":{{"message":"bad key {KEY}"}}}}"#), BrainErrorKind::Refused, "bad key [key]; is OPENAI_API_KEY right?"),
        (404, json, r#"{"error":{"message":"no such model"}}"#.to_owned(), BrainErrorKind::Refused, "no such model; check the model"),
        (400, json, r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#.to_owned(), BrainErrorKind::ContextTooLong, "maximum context length"),
        (429, json, r#"{"error":{"message":"pay","code":"insufficient_quota"}}"#.to_owned(), BrainErrorKind::Refused, "pay"),
        (302, "location: http://127.0.0.1:1/\r\n", String::new(), BrainErrorKind::Refused, "redirects are not followed"),
        (200, "content-type: text/html\r\n", "<html>Log in</html>".to_owned(), BrainErrorKind::Refused, "text/html instead of a stream"),
        (200, "", String::new(), BrainErrorKind::Refused, "something instead of a stream"),
        (200, json, r#"{"error":{"message":"no","type":"invalid_request_error"}}"#.to_owned(), BrainErrorKind::Refused, "invalid_request_error: no"),
    ] {
        let events = events_from(Dialect::OpenAi, vec![FakeProviderReply::Full(status, headers, body)]).await;
        assert_eq!(events.len(), 1, "{events:?}");
        let error = last_error(&events);
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.message.contains(message), "{error}");
        assert!(!error.message.contains(KEY));
    }
}

#[tokio::test]
async fn a_stream_that_fails_before_its_first_event_is_retried() {
    for dialect in DIALECTS {
        let text = recording(dialect);
        let first = text.find("\n\n").unwrap() + 2;
        let overloaded = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
        for bad in [
            FakeProviderReply::Stream(split_bytes(&text[..first], 50)),
            FakeProviderReply::Reset(split_bytes(&text[..first], 50)),
            FakeProviderReply::Reset(Vec::new()),
            FakeProviderReply::Stream(split_bytes(&format!("{}{overloaded}", &text[..first]), 50)),
            FakeProviderReply::Stream(split_bytes("data: {\"type\": \"mess\n\n", 50)),
            FakeProviderReply::Stream(split_bytes(&"x".repeat(2 * 1024 * 1024), 100_000)),
        ] {
            let events = events_from(
                dialect,
                vec![bad, FakeProviderReply::Stream(split_bytes(text, 500))],
            )
            .await;
            assert_eq!(retry_delays(&events).len(), 1);
            assert_complete_answer(&events);
        }
    }
}

#[tokio::test]
async fn a_stream_that_fails_later_is_not_repeated() {
    for dialect in DIALECTS {
        let text = recording(dialect);
        let half = through_event(text, "zwei");
        for (bad, trouble) in [
            (
                FakeProviderReply::Stream(split_bytes(half, 50)),
                BrainErrorKind::ConnectionLost,
            ),
            (
                FakeProviderReply::ResetLater(split_bytes(half, 50)),
                BrainErrorKind::ConnectionLost,
            ),
            (
                FakeProviderReply::Stream(split_bytes(&format!("{}data: {{]\n\n", half), 50)),
                BrainErrorKind::InvalidResponse,
            ),
        ] {
            let events = events_from(dialect, vec![bad]).await;
            assert_eq!(retry_delays(&events), []);
            let is_text =
                |event: &Result<BrainEvent, BrainError>| matches!(event, Ok(BrainEvent::Text(_)));
            assert!(events.iter().any(is_text), "{events:?}");
            let error = last_error(&events);
            assert_eq!(error.kind, trouble);
            assert!(error.is_retryable());
        }
    }
}

/// Receives half of an answer and then no more of it. Returns the error, which must come within
/// `most`.
async fn error_after(
    dialect: Dialect,
    then: fn(Vec<Vec<u8>>) -> FakeProviderReply,
    most: Duration,
) -> BrainError {
    let half = through_event(recording(dialect), "zwei");
    let server = start_fake_provider(vec![then(split_bytes(half, 50))]).await;
    let mut answer_stream = start_answer(dialect, &server.base_url);
    let is_half =
        |event: BrainEvent| matches!(event, BrainEvent::Text(text) if text.contains("zwei"));
    while !is_half(answer_stream.next().await.unwrap().unwrap()) {}
    // Nothing else can happen, so the paused clock jumps from one wait to the next.
    tokio::time::pause();
    let paused = tokio::time::Instant::now();
    let error = answer_stream.next().await.unwrap().unwrap_err();
    assert!(paused.elapsed() <= most);
    tokio::time::resume();
    assert_eq!(answer_stream.next().await, None);
    error
}

#[tokio::test]
async fn a_provider_that_goes_silent_counts_as_lost() {
    for dialect in DIALECTS {
        let error = error_after(dialect, FakeProviderReply::Stall, Duration::from_secs(301)).await;
        let message = "the provider sent nothing for 300 s".to_owned();
        let kind = BrainErrorKind::ConnectionLost;
        assert_eq!(error, BrainError { kind, message });
    }
}

#[tokio::test]
async fn an_endless_answer_is_cut_off() {
    for dialect in DIALECTS {
        let error = error_after(
            dialect,
            FakeProviderReply::KeepAlive,
            Duration::from_secs(3601),
        )
        .await;
        let message = "the provider's answer did not end in 3600 s".to_owned();
        let kind = BrainErrorKind::Refused;
        assert_eq!(error, BrainError { kind, message });
    }
}

#[tokio::test]
async fn an_unreachable_server_counts_as_lost() {
    // Bound, so that nobody else listens on the port, but not listening.
    let held = TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let base = format!("http://{}", held.local_addr().unwrap());
    let events = collect_events(&mut start_answer(Dialect::Anthropic, &base), &Notify::new()).await;
    assert_eq!(retry_delays(&events).len(), 4);
    let error = last_error(&events);
    assert_eq!(error.kind, BrainErrorKind::ConnectionLost);
    assert!(error.message.contains("onnection refused"), "{error}");
}

#[tokio::test]
async fn dropping_an_answer_closes_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let answer_stream = start_answer(Dialect::OpenAi, &base);
    let (mut socket, _) = listener.accept().await.unwrap();
    read_request(&mut socket).await;
    drop(answer_stream);
    assert_eq!(socket.read(&mut [0; 16]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_complete_answer_needs_no_formal_end() {
    for dialect in DIALECTS {
        // The stop reason is the last thing that matters.
        let text = match dialect {
            Dialect::Anthropic => through_event(ANTHROPIC, "\"stop_reason\":\"tool_use\""),
            Dialect::OpenAi => through_event(OPENAI, "\"finish_reason\":\"tool_calls\""),
        };
        assert_complete_answer(
            &events_from(
                dialect,
                vec![FakeProviderReply::Stream(split_bytes(text, 50))],
            )
            .await,
        );
        assert_complete_answer(
            &events_from(
                dialect,
                vec![FakeProviderReply::ResetLater(split_bytes(text, usize::MAX))],
            )
            .await,
        );
        let server =
            start_fake_provider(vec![FakeProviderReply::Stall(split_bytes(text, 50))]).await;
        let mut answer_stream = start_answer(dialect, &server.base_url);
        let mut events = Vec::new();
        let is_last_text = |events: &[Result<BrainEvent, BrainError>]| matches!(events.last(), Some(Ok(BrainEvent::Text(text))) if text.ends_with("“gleich”."));
        while !is_last_text(&events) {
            events.push(answer_stream.next().await.unwrap());
        }
        // Nothing else can happen, so the paused clock jumps to the end of the wait.
        tokio::time::pause();
        events.extend(collect_events(&mut answer_stream, &server.text_received).await);
        tokio::time::resume();
        assert_complete_answer(&events);
    }
}

#[tokio::test]
async fn no_part_of_a_key_is_shown() {
    let keys = KEY.repeat(400);
    let json = "content-type: application/json\r\n";
    let page = "content-type: text/html\r\n";
    let error = format!(r#"{{"error":{{"type":"{keys}","message":"{keys}"}}}}"#);
    for dialect in DIALECTS {
        for fake_reply in [
            FakeProviderReply::Full(400, json, error.clone()),
            FakeProviderReply::Full(400, page, keys.clone()),
            FakeProviderReply::Full(400, page, format!("<html><title>{keys}</title></html>")),
            FakeProviderReply::Full(200, page, keys.clone()),
            FakeProviderReply::Full(200, json, error.clone()),
            FakeProviderReply::Stream(split_bytes(
                &format!(
                    "data: {{\"type\":\"error\",\"error\":{{\"type\":\"invalid_request_error\",\"message\":\"{keys}\"}}}}\n\n"
                ),
                usize::MAX,
            )),
        ] {
            let events = events_from(dialect, vec![fake_reply]).await;
            let seen = format!("{events:?}");
            assert!(seen.contains("[key]"), "{seen}");
            assert!(seen.len() < 4000, "{}", seen.len());
            // How long it waits is random, and may have the same digits.
            let parts = seen.split("wait: ").enumerate();
            let seen: String = parts
                .map(|(index, part)| match index {
                    0 => part,
                    _ => part.split_once('}').map_or("", |(_, rest)| rest),
                })
                .collect();
            for piece in ["sk-", "test-", "0123", "6789"] {
                assert!(!seen.contains(piece), "{piece} in {seen}");
            }
        }
    }
}
