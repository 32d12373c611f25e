//! What happens next in a PVP session: one pure state machine.
//!
//! [`Session::apply`] decides: it takes an input stamped with the time and a seed, and answers
//! with the entries that follow from it. Nothing else goes in or out. The state changes only by
//! folding entries, live and at restart alike, so replay equals live by construction.

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
pub use input::{AttendanceChange, Identity, Input, Stamped, Submitted};
pub use member::Member;
pub use proposal::{
    ClosedProposal, Execution, OutputRange, Proposal, ProposalEnding, ProposalRecord, ProposalSeqs,
    ProposalStage,
};
pub use state::Session;
