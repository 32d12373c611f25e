//! Real agent clients on every route, with a scripted model, a real server and people who vote.
//!
//! `make test-bridges` runs them; a plain `cargo test` checks the model alone.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "whatever is not as expected ends the test"
)]

#[path = "../support/mod.rs"]
mod support;

mod clients;
mod editor;
mod model;
mod process;
mod results;
mod scenarios;
mod stage;

use clients::Client;
use support::skip::skip;

/// Set by `make test-bridges`, which also installs the clients.
const RUN: &str = "PVP_TEST_BRIDGES";

async fn check(client: &'static Client) {
    match std::env::var(RUN) {
        Ok(_) => scenarios::run_all(client).await,
        Err(_) => skip("real clients run with `make test-bridges`"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claude() {
    check(&clients::CLAUDE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opencode() {
    check(&clients::OPENCODE).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn codex() {
    check(&clients::CODEX).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gemini() {
    check(&clients::GEMINI).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn copilot() {
    check(&clients::COPILOT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claude_headless() {
    check(&clients::CLAUDE_HEADLESS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claude_deferred() {
    check(&clients::CLAUDE_DEFERRED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claude_installed() {
    check(&clients::CLAUDE_INSTALLED).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn codex_headless() {
    check(&clients::CODEX_HEADLESS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opencode_acp() {
    check(&clients::OPENCODE_ACP).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn opencode_editor() {
    check(&clients::OPENCODE_EDITOR).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gemini_acp() {
    check(&clients::GEMINI_ACP).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn copilot_acp() {
    check(&clients::COPILOT_ACP).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn qwen_acp() {
    check(&clients::QWEN_ACP).await;
}
