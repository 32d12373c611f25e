//! The session core: a pure state machine that decides what happens in a PVP session.
//!
//! [`Session::apply`] takes an input stamped with the time and a seed, and returns a decision: new
//! log entries, an ephemeral message and an answer. It has no other inputs or outputs. Only folding
//! an entry changes the state, both live and after a restart, so a replayed session equals the live
//! one by construction.

mod apply;
mod authority;
mod entry;
mod fold;
mod gate;
mod grant;
mod input;
mod member;
mod proposal;
mod recent_messages;
mod state;
mod welcome;

pub use apply::{Answer, Decision, DecisionContext, Ephemeral, SessionSettings};
pub use entry::{Audience, Entry, EntryError, GrantNonce, Viewers};
pub use gate::{Clearance, Gate};
pub use grant::Grant;
pub use input::{AttendanceChange, Identity, Input, Stamped, SubmittedMessage};
pub use member::Member;
pub use proposal::{
    ClosedProposal, Execution, OutputRange, Proposal, ProposalOutcome, ProposalRecord,
    ProposalSeqs, ProposalStage,
};
pub use state::Session;
