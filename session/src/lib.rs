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
mod seen;
mod state;
mod view;

pub use apply::{Answer, Outcome, Settings, Terms, Whisper};
pub use entry::{Audience, Entry, EntryError, Private, Who};
pub use gate::{Clearance, Gate};
pub use grant::Grant;
pub use input::{Attendance, Identity, Input, Said, Stamped};
pub use member::Member;
pub use proposal::{Closed, Ending, Execution, OutputSpan, Past, Proposal, Stage, Trail};
pub use state::Session;
