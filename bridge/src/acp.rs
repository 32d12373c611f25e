//! Agents that speak the Agent Client Protocol, under the gates of a session.
//!
//! One core answers what an agent asks: its questions become proposals, and what it leaves to its
//! client is carried out by our own executor. Around it stand two ways to use it: this program is
//! the client and people prompt the agent from their screens, or it stands between an editor and
//! its agent.
//!
//! The protocol shows only what an agent chooses to ask. What it reports to have done without asking
//! is in the record as such, after the fact.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the enums of the protocol's crate may grow, and have no complete match"
)]

mod calls;
#[cfg(test)]
mod captured;
mod client;
mod delegated;
mod desk;
mod modes;
mod own_tools;
mod permission;
mod process;
mod proxy;
mod question;
mod recorder;
mod report;
mod terminals;
mod wire;

pub use client::AcpAgent;
pub use process::AcpCommand;
pub use proxy::{EditorAgent, ProxyEnd};

/// Why nothing was allowed while the server cannot be reached.
const SERVER_AWAY: &str = "Not allowed, because nobody can be asked: the PVP server does not answer. \
     Nothing was done. Do not try other ways; tell the person at the terminal.";

/// Eight letters and digits that nobody has guessed before.
fn random_word() -> String {
    // An id begins with the time.
    let id = pvp_client::fresh_id();
    let letters = id.as_str().chars().rev();
    letters
        .filter(char::is_ascii_alphanumeric)
        .take(8)
        .collect()
}
