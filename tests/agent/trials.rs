//! Commands that are tried in the sandbox before anybody is asked.

use std::path::{Path, PathBuf};

use pvp_agent::agent::Agent;
use pvp_agent::executor::ExecutorSettings;
use pvp_agent::proposer::ProposalHandle;
use pvp_agent::sandbox::can_count_denials;
use pvp_client::{ConnectOptions, Link};
use pvp_policy::Policy;
use pvp_protocol::SandboxProfile;
use pvp_protocol::payload::{ClearedBy, GrantTerms};
use serde_json::{Value, json};

use crate::support::lying_server::{DeceivedAgent, grant, shell};
use crate::support::session::{approve, collect_output, next_gate, result_of, start_session};
use crate::support::skip::skip;
use crate::support::{TestClient, TestServer};

const CANARY: &str = "canary-8d1f0a";

struct TrialFixture {
    _server: TestServer,
    ann: TestClient,
    agent: Agent,
    directory: tempfile::TempDir,
}

impl TrialFixture {
    /// `None` if this machine cannot count what a sandbox denies.
    async fn new() -> Option<Self> {
        Self::with_settings(|_| {}).await
    }

    async fn with_settings(change: impl FnOnce(&mut ExecutorSettings)) -> Option<Self> {
        if !can_count_denials() {
            skip("this machine cannot count denials");
            return None;
        }
        let (server, ann) = start_session(json!({ "try_unknown": true })).await;
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path().canonicalize().unwrap();
        let mut settings = ExecutorSettings::new(workspace.clone(), workspace.join(".state"));
        settings.program = PathBuf::from(env!("CARGO_BIN_EXE_pvp"));
        change(&mut settings);
        let bot = server.invite("bot", &["driver"], &["--kind", "agent"]);
        let link = Link::parse(&server.link(&bot, Some("owl"))).unwrap();
        let options = ConnectOptions::default();
        let agent = Agent::connect_with(link, options, settings, Policy::built_in())
            .await
            .unwrap();
        Some(Self {
            _server: server,
            ann,
            agent,
            directory,
        })
    }

    fn workspace(&self) -> &Path {
        self.directory.path()
    }

    async fn propose(&mut self, line: &str) -> ProposalHandle {
        self.agent.propose_shell(line).await.unwrap()
    }

    /// The payloads of the messages of a type that ann received.
    fn told(&self, kind: &str) -> Vec<Value> {
        let received = self.ann.received.iter();
        received
            .filter(|message| message["type"] == kind)
            .map(|message| message["payload"].clone())
            .collect()
    }
}

#[tokio::test]
async fn a_pure_command_is_told_without_a_gate() {
    let Some(mut fixture) = TrialFixture::new().await else {
        return;
    };
    let handle = fixture.propose("perl -e 'print 6 * 7'").await;
    let result = result_of(&mut fixture.ann, handle.id.as_str()).await;
    assert_eq!(
        (&result["success"], &result["tried"]),
        (&json!(true), &json!(true)),
        "{result}"
    );
    let output = collect_output(&fixture.ann.received, handle.id.as_str(), "stdout");
    assert_eq!(output, "42");
    assert_eq!(fixture.told("gate.request"), Vec::<Value>::new());
    let executes = fixture.told("tool.execute");
    assert_eq!(executes.len(), 1);
    assert_eq!(executes[0]["grant"]["cleared_by"], "tried");
    assert_eq!(executes[0]["approved_by"], json!([]));
}

#[tokio::test]
async fn a_command_with_an_effect_is_asked_for_and_then_runs_once() {
    let Some(mut fixture) = TrialFixture::new().await else {
        return;
    };
    let handle = fixture
        .propose("perl -e 'print 1; open(F, \">>z\") && print F 1'; echo done")
        .await;
    let (gate, _) = next_gate(&mut fixture.ann).await;
    assert!(!fixture.workspace().join("z").exists());
    let request = fixture.told("gate.request").remove(0);
    assert_eq!(request["trial"], json!({ "denied": ["write z"] }));
    assert_eq!(fixture.told("tool.output"), Vec::<Value>::new());
    approve(&mut fixture.ann, &gate).await;
    let result = result_of(&mut fixture.ann, handle.id.as_str()).await;
    assert_eq!(
        (&result["success"], &result["tried"]),
        (&json!(true), &Value::Null)
    );
    let written = std::fs::read_to_string(fixture.workspace().join("z")).unwrap();
    assert_eq!(written, "1", "once");
    let executes = fixture.told("tool.execute");
    let cleared: Vec<_> = executes
        .iter()
        .map(|it| &it["grant"]["cleared_by"])
        .collect();
    assert_eq!(cleared, ["tried", "quorum"]);
    assert_ne!(executes[0]["grant"]["id"], executes[1]["grant"]["id"]);
}

#[tokio::test]
async fn nothing_secret_is_told_by_a_trial() {
    let Some(mut fixture) = TrialFixture::new().await else {
        return;
    };
    let deep = fixture.workspace().join("deploy/keys");
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(fixture.workspace().join(".env"), CANARY).unwrap();
    std::fs::write(deep.join("server.pem"), CANARY).unwrap();
    for (line, denied) in [
        ("perl -e 'open(F, \"<.env\"); print <F>'", "read .env"),
        (
            "perl -e 'open(F, \"<\", join(\"/\", qw(deploy keys server.pem))); print <F>'",
            "read deploy/keys/server.pem",
        ),
        (
            "perl -e 'open(F, \"<.state/grants.journal\"); print <F>'",
            "read .state/grants.journal",
        ),
    ] {
        fixture.propose(line).await;
        next_gate(&mut fixture.ann).await;
        let request = fixture.told("gate.request").pop().unwrap();
        assert_eq!(request["trial"], json!({ "denied": [denied] }), "{line}");
    }
    let told = serde_json::to_string(&fixture.ann.received).unwrap();
    assert!(!told.contains(CANARY));
}

#[tokio::test]
async fn a_trial_that_takes_too_much_is_asked_for() {
    let Some(mut fixture) = TrialFixture::new().await else {
        return;
    };
    for (line, reason) in [
        (
            "perl -e 'print q(x) x 2000000'",
            "it printed more than 1048576 bytes",
        ),
        (
            "perl -e 'exit if fork; sleep 60'; echo done",
            "it left a process running",
        ),
        ("perl -e 'sleep 60'", "it ran for more than 10 s"),
    ] {
        fixture.propose(line).await;
        next_gate(&mut fixture.ann).await;
        let request = fixture.told("gate.request").pop().unwrap();
        assert_eq!(request["trial"], json!({ "reason": reason }), "{line}");
    }
    assert_eq!(fixture.told("tool.output"), Vec::<Value>::new());
}

#[tokio::test]
async fn an_agent_that_was_told_not_to_try_asks() {
    let Some(mut fixture) = TrialFixture::with_settings(|settings| settings.trials = false).await
    else {
        return;
    };
    fixture.propose("perl -e 'print 1'").await;
    next_gate(&mut fixture.ann).await;
    assert_eq!(fixture.told("tool.execute"), Vec::<Value>::new());
    let notes = fixture.told("tool.propose").remove(0)["assessment"]["notes"].to_string();
    assert!(notes.contains("not tried in the sandbox"), "{notes}");
}

fn trial_of(line: &str) -> GrantTerms {
    GrantTerms {
        cleared_by: ClearedBy::Tried,
        approvals: Vec::new(),
        // More than a trial may have.
        profile: Some(SandboxProfile::None),
        ..grant(shell(line))
    }
}

#[tokio::test]
async fn a_server_gets_no_more_out_of_a_trial_than_reading() {
    if !can_count_denials() {
        skip("this machine cannot count denials");
        return;
    }
    let mut deceived = DeceivedAgent::new().await;
    std::fs::create_dir(deceived.workspace().join("precious")).unwrap();
    for line in [
        "rm -rf precious",
        "touch marker",
        "ls",
        "perl -e 'print 1' > marker",
    ] {
        let (proposal, _handle) = deceived.propose(line).await;
        deceived
            .expect_refused(&proposal, &trial_of(line), "it may not be tried")
            .await;
    }
    assert!(deceived.workspace().join("precious").exists());
    let line = "perl -e 'open(F, \">marker\"); print 1'";
    let (proposal, _handle) = deceived.propose(line).await;
    deceived.server.grant(&proposal, &trial_of(line)).await;
    let discard = deceived.server.receive("tool.discard").await;
    assert_eq!(
        discard["payload"]["trial"],
        json!({ "denied": ["write marker"] })
    );
    deceived
        .expect_refused(&proposal, &trial_of(line), "it has already been tried")
        .await;
    assert!(!deceived.workspace().join("marker").exists());
}

#[tokio::test]
async fn a_server_cannot_make_an_executor_try_that_was_told_not_to() {
    let mut deceived = DeceivedAgent::with_settings(|settings| settings.trials = false).await;
    let line = "perl -e 'print 1'";
    let (proposal, _handle) = deceived.propose(line).await;
    deceived
        .expect_refused(&proposal, &trial_of(line), "does not try commands")
        .await;
}
