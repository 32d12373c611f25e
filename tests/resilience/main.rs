//! What crashes and cuts do to commands that run: nothing is lost, nothing runs twice, and nothing
//! is waited for in vain.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod agent_killed;
mod connection_lost;
mod expired_grants;
mod random_kills;
mod session_ends;

use serde_json::json;
use support::agent_process::{AgentProcess, write_script};
use support::cli::CliEnv;
use support::proxy::Proxy;
use support::session::create_session_on;
use support::{TestClient, TestServer};

/// A room whose agent follows a script and reaches the server over a network that can be cut.
async fn agent_behind_proxy(
    settings: &[(&str, &str)],
    script: &str,
) -> (TestServer, Proxy, TestClient, AgentProcess) {
    let listener = Proxy::bind().await;
    let public = format!("http://{}", listener.local_addr().unwrap());
    let settings = [settings, &[("PVP_PUBLIC_URL", public.as_str())]].concat();
    let server = TestServer::start_with_env(&[], &settings).await;
    let (server, ann) = create_session_on(server, json!({})).await;
    let proxy = Proxy::start(listener, &server.address);
    let user = server.invite("worker", &["driver"], &["--kind", "agent"]);
    let link = format!("{public}/?token={}&session=owl", user.token);
    let cli = CliEnv::new();
    let script = write_script(&cli, script);
    let agent_process =
        AgentProcess::start_with_link(cli, user, link, &["--script", &script], &[]).await;
    (server, proxy, ann, agent_process)
}
