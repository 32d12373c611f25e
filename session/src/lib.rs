//! The session core: a pure state machine that decides what happens in a PVP session.
//!
//! [`Session::apply`] takes an input stamped with the time and a seed, and returns a decision: new
//! log entries, an ephemeral message and an answer. It has no other inputs or outputs. Only folding
//! an entry changes the state, both live and after a restart, so a replayed session equals the live
//! one by construction.

mod apply;
mod authority;
mod closed_proposals;
mod entry;
mod fold;
mod gate;
mod grant;
mod history_filter;
mod input;
mod member;
mod output_index;
mod proposal;
mod recent_messages;
mod short_hash;
mod snapshot;
mod state;
mod welcome;
mod workspace;

pub use apply::{Answer, Decision, DecisionContext, Ephemeral, SessionSettings};
pub use entry::{Audience, Entry, EntryError, GrantNonce, Viewers};
pub use gate::{Clearance, Gate};
pub use grant::Grant;
pub use history_filter::HistoryFilter;
pub use input::{AttendanceChange, Ceiling, Identity, Input, InvitedBy, Stamped, SubmittedMessage};
pub use member::Member;
pub use output_index::{
    IndexChange, IndexedChunk, MAX_LINE_BYTES, OutputPosition, OutputStreamPosition, OutputStreams,
    line_ends,
};
pub use proposal::{
    Execution, ExecutionKind, GateSteps, Proposal, ProposalOutcome, ProposalRecord, ProposalSeqs,
    ProposalStage,
};
pub use recent_messages::MAX_RECENT_MESSAGES;
pub use snapshot::SnapshotError;
pub use state::Session;
pub use workspace::workspace_name;
