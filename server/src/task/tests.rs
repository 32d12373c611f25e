//! Tests of the session task and the directory on a store in memory.

mod faults;
mod joining;

use pvp_session::Input;

/// The id of a message whose handling fails, to see what follows.
const FAULT: &str = "fault-on-purpose";

pub(super) fn panic_if_asked(input: &Input) {
    if let Input::Submit { submitted, .. } = input {
        assert_ne!(submitted.id.as_str(), FAULT, "asked to fail");
    }
}
