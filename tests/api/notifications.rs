//! Notifications of gates: to whom, by what, when, and what they say.

mod browsers;
mod kinds;
mod operator;
mod refusals;
mod restarts;
mod retries;
mod vote_links;
mod voters;

use serde_json::{Value, json};

use crate::fixture::{ApiFixture, ApiUser, SESSION, approve_vote};
use crate::support::TEST_TIMEOUT;
use crate::support::http_receiver::{HttpReceiver, ReceiverRequest};

/// Settings of the operator that let channels lead to this machine.
pub(crate) const TRUSTING: &str = "trusted_hosts = [\"127.0.0.1\"]";

/// A session whose server notifies receivers on this machine.
pub(crate) async fn trusting_fixture(config: Value, more: &str) -> ApiFixture {
    let settings = format!("{TRUSTING}\n{more}");
    ApiFixture::with_env(config, &[("PVP_NOTIFICATIONS", &settings)]).await
}

impl ApiUser {
    /// Adds a channel of this kind; returns it as the server describes it.
    pub(crate) async fn add_channel(&self, kind: &str, target: &str) -> Value {
        let body = json!({ "kind": kind, "label": format!("my {kind}"), "target": target });
        let path = "/api/notifications/channels";
        self.api.post(path, body).await.expect_status(201)
    }

    /// Adds a webhook that leads to the receiver.
    pub(crate) async fn add_webhook(&self, receiver: &HttpReceiver) -> Value {
        self.add_channel("webhook", &receiver.url("/hook")).await
    }

    pub(crate) async fn notification_settings(&self) -> Value {
        self.api.get("/api/notifications").await.expect_ok()
    }

    /// Changes some preferences, and leaves the others as they are.
    pub(crate) async fn prefer(&self, changes: Value) -> Value {
        let settings = self.notification_settings().await;
        let mut body = json!({});
        for key in [
            "events",
            "sessions",
            "quiet_hours",
            "show_command",
            "vote_links",
        ] {
            body[key] = changes.get(key).unwrap_or(&settings[key]).clone();
        }
        let answer = self.api.request("PUT", "/api/notifications", Some(body));
        answer.await.expect_ok()
    }
}

impl ApiFixture {
    /// Approves a gate as Ann, which closes it where one approval is enough.
    pub(crate) async fn approve(&self, proposal: &str) {
        let answer = self.ann.api.vote(SESSION, proposal, approve_vote()).await;
        answer.expect_ok();
    }

    /// The value of one series of the metrics.
    pub(crate) async fn notification_count(&self, kind: &str, outcome: &str) -> u64 {
        let text = self.ann.api.get("/metrics").await.text;
        let series = format!("pvp_notifications_total{{kind=\"{kind}\",outcome=\"{outcome}\"}} ");
        let mut values = text.lines().filter_map(|line| line.strip_prefix(&series));
        values.next().unwrap().parse().unwrap()
    }
}

/// Asks again and again until it is so.
pub(crate) async fn wait_until(is_so: impl AsyncFn() -> bool) {
    let asking = async { while !is_so().await {} };
    let waiting = tokio::time::timeout(TEST_TIMEOUT, asking).await;
    waiting.expect("it is so in time");
}

/// The event and the gate that a webhook was told of.
pub(crate) fn told(request: &ReceiverRequest) -> (String, String) {
    let body = request.json();
    let text = |key: &str| body[key].as_str().unwrap().to_owned();
    (text("event"), text("gate"))
}
