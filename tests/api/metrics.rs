//! Metrics and health checks.

use std::collections::BTreeMap;

use serde_json::json;

use crate::fixture::{ApiFixture, SESSION, approve_vote, context_payload, reject_vote};
use crate::http_client::{HttpTestClient, raw_exchange};
use crate::limits::hold_polls;
use crate::support::{TEST_TIMEOUT, TestServer};

type MetricSamples = BTreeMap<String, f64>;

/// Every sample of `/metrics`, parsed as strictly as Prometheus does.
async fn scrape_metrics(api: &HttpTestClient) -> MetricSamples {
    let answer = api.get("/metrics").await;
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.headers["content-type"], kind);
    let mut numbers = MetricSamples::new();
    let mut types = BTreeMap::new();
    let mut lines = answer.text.lines();
    assert_eq!(lines.next_back(), Some("# EOF"));
    for line in lines {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(types.insert(name, kind), None, "one type for each");
        } else if !line.starts_with("# HELP ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap();
            let base = ["_total", "_sum", "_count", "_bucket"];
            let base = base
                .iter()
                .find_map(|end| family.strip_suffix(end))
                .unwrap_or(family);
            let suffixed = types
                .get(base)
                .is_some_and(|kind| (*kind == "counter") == family.ends_with("_total"));
            assert!(suffixed, "{line}");
            let before = numbers.insert(name.to_owned(), value.parse().unwrap());
            assert_eq!(before, None, "{name} twice");
        }
    }
    numbers
}

/// How much each counter with this prefix has grown.
fn counter_growth(
    before: &MetricSamples,
    after: &MetricSamples,
    counter: &str,
) -> BTreeMap<String, f64> {
    let begins = format!("pvp_{counter}_total");
    let of = after.iter().filter_map(|(name, value)| {
        let labels = name.strip_prefix(&begins)?;
        let more = value - before.get(name).unwrap_or(&0.0);
        (more != 0.0).then(|| (labels.replace('"', ""), more))
    });
    of.collect()
}

fn counts(expected: &[(&str, f64)]) -> BTreeMap<String, f64> {
    expected
        .iter()
        .map(|(name, value)| ((*name).to_owned(), *value))
        .collect()
}

#[tokio::test]
async fn counters_grow_with_what_happens() {
    let mut fixture = ApiFixture::new(json!({})).await;
    let nobody = HttpTestClient::anonymous(&fixture.server).await;
    let before = scrape_metrics(&nobody).await;
    let entries = fixture.log().len();
    // Two writes, a destructive command, a read and a blocked one; approved, rejected, withdrawn.
    let write = fixture.propose("touch zebra").await;
    fixture
        .bob
        .api
        .vote(SESSION, &write, approve_vote())
        .await
        .expect_ok();
    fixture.send_result(&write, 0).await;
    let other = fixture.propose("touch b").await;
    fixture
        .bob
        .api
        .vote(SESSION, &other, reject_vote("walrus"))
        .await
        .expect_ok();
    let destructive = fixture.propose("rm -r c").await;
    fixture
        .agent
        .send_and_ack("tool.cancel", json!({ "tool_proposal": destructive }))
        .await;
    let read = fixture.propose("ls").await;
    fixture.send_result(&read, 1).await;
    let blocked = fixture.agent.proposal("rm -rf /");
    let id = fixture.agent.send("tool.propose", blocked).await;
    fixture.agent.expect_refusal(&id).await;
    fixture
        .ann
        .api
        .send_message(SESSION, "shell.exec", json!({ "command": "touch d" }))
        .await
        .expect_ok();
    // Refused over HTTP and on the socket.
    assert_eq!(
        fixture
            .eve
            .api
            .send_message(SESSION, "context.add", context_payload("k"))
            .await
            .status,
        403
    );
    assert_eq!(
        fixture.ann.api.get("/api/sessions/nowhere").await.status,
        404
    );
    assert_eq!(fixture.ann.api.get("/nowhere").await.status, 404);
    assert_eq!(nobody.get("/api/sessions").await.status, 401);
    let id = fixture
        .agent
        .send("context.remove", json!({ "key": "none", "reason": "r" }))
        .await;
    fixture.agent.expect_refusal(&id).await;

    let after = scrape_metrics(&nobody).await;
    let grown = |counter: &str| counter_growth(&before, &after, counter);
    assert_eq!(
        grown("proposals"),
        counts(&[
            ("{category=write}", 3.0),
            ("{category=destructive}", 1.0),
            ("{category=read}", 1.0),
            ("{category=blocked}", 1.0)
        ])
    );
    assert_eq!(
        grown("gates"),
        counts(&[
            ("{outcome=approved}", 1.0),
            ("{outcome=rejected}", 1.0),
            ("{outcome=cancelled}", 1.0)
        ])
    );
    assert_eq!(
        grown("grants"),
        counts(&[
            ("{cleared_by=quorum}", 1.0),
            ("{cleared_by=read}", 1.0),
            ("{cleared_by=direct}", 1.0)
        ])
    );
    assert_eq!(
        grown("results"),
        counts(&[("{success=true}", 1.0), ("{success=false}", 1.0)])
    );
    assert_eq!(
        grown("refusals"),
        counts(&[
            ("{code=UNAUTHORIZED}", 2.0),
            ("{code=SESSION_NOT_FOUND}", 1.0),
            ("{code=INVALID_MESSAGE}", 1.0),
            ("{code=INVALID_STATE}", 1.0),
            ("{code=GATE_FAILED}", 1.0)
        ])
    );
    assert_eq!(
        grown("entries"),
        counts(&[("", (fixture.log().len() - entries) as f64)])
    );
    let requests = [
        (
            "{route=/api/sessions/{session}/gates/{gate}/vote,status=2xx}",
            2.0,
        ),
        ("{route=/api/sessions/{session}/messages,status=2xx}", 1.0),
        ("{route=/api/sessions/{session}/messages,status=4xx}", 1.0),
        ("{route=/api/sessions/{session},status=4xx}", 1.0),
        ("{route=/api/sessions,status=4xx}", 1.0),
        ("{route=other,status=4xx}", 1.0),
        ("{route=/metrics,status=2xx}", 1.0),
    ];
    assert_eq!(grown("http_requests"), counts(&requests));
    assert_eq!(after["pvp_sessions_stored"], 1.0);
    assert_eq!(after["pvp_sessions_in_memory"], 1.0);
    assert_eq!(after["pvp_failed_appends_total"], 0.0);
    let text = nobody.get("/metrics").await.text;
    for name in [
        SESSION,
        "ann",
        "bob",
        "eve",
        "bot",
        "zebra",
        "walrus",
        "nowhere",
        "touch",
        write.as_str(),
    ] {
        let named = text
            .lines()
            .find(|line| !line.starts_with('#') && line.contains(&format!("={name:?}")));
        assert_eq!(named, None);
        if name != "bot" && name != SESSION {
            assert!(!text.contains(name), "{name}");
        }
    }
}

#[tokio::test]
async fn connections_are_counted_once_each() {
    let fixture = ApiFixture::with_env(json!({}), &[("PVP_CONNECTIONS_PER_TOKEN", "1")]).await;
    let nobody = HttpTestClient::anonymous(&fixture.server).await;
    let messages = format!("/api/sessions/{SESSION}/messages");
    let poll = hold_polls(
        &fixture.eve.api,
        &format!("{messages}?after=1000&wait=60"),
        1,
    )
    .await;
    let begun = std::time::Instant::now();
    // The agent's socket, the poll, and this request.
    while scrape_metrics(&nobody).await["pvp_connections"] != 3.0 {
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "{:?}",
            scrape_metrics(&nobody).await
        );
    }
    assert!(!poll[0].is_finished());
    poll[0].abort();
}

#[tokio::test]
async fn health_checks_need_no_token() {
    let server = TestServer::start(&[]).await;
    let nobody = HttpTestClient::anonymous(&server).await;
    for (path, expected) in [("/health", "ok"), ("/healthz", "ok"), ("/readyz", "ready")] {
        assert_eq!(
            nobody.get(path).await.expect_ok(),
            json!({ "status": expected })
        );
    }
    let schema = nobody.get("/schema.json").await;
    assert_eq!(schema.headers["content-type"], "application/schema+json");
    assert_eq!(schema.text, pvp_protocol::SCHEMA);
    let keys = nobody.get("/api/key").await.expect_ok();
    let public_key = std::fs::read_to_string(server.data.join("server.pub")).unwrap();
    assert_eq!(
        keys,
        json!({ "key": public_key.trim(), "earlier_keys": [] })
    );
    // A HEAD is a GET without the body.
    let head = raw_exchange(&server.address, "HEAD", "/healthz", &[], b"").await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
}
