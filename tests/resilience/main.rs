//! What crashes and cuts do to commands that run: nothing is lost, nothing runs twice, and nothing
//! is waited for in vain.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../kit/mod.rs"]
mod kit;

mod agent_killed;
mod late_grants;
mod line_cut;
mod rounds;
mod session_ends;

use kit::desk::Desk;
use kit::proxy::Proxy;
use kit::room::room_of;
use kit::worker::{Worker, script_at};
use kit::{Client, Server};
use serde_json::json;

/// A room whose agent follows a script and reaches the server over a network that can be cut.
async fn behind_a_proxy(
    settings: &[(&str, &str)],
    script: &str,
) -> (Server, Proxy, Client, Worker) {
    let listener = Proxy::bind().await;
    let public = format!("http://{}", listener.local_addr().unwrap());
    let settings = [settings, &[("PVP_PUBLIC_URL", public.as_str())]].concat();
    let server = Server::start_env(&[], &settings).await;
    let (server, ann) = room_of(server, json!({})).await;
    let proxy = Proxy::start(listener, &server.address);
    let who = server.invite("worker", &["driver"], &["--kind", "agent"]);
    let link = format!("{public}/?token={}&session=owl", who.token);
    let desk = Desk::new();
    let script = script_at(&desk, script);
    let worker = Worker::start_by(desk, who, link, &["--script", &script], &[]).await;
    (server, proxy, ann, worker)
}
