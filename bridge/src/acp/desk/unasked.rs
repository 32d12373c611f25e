//! What people read about calls that ran without a question.

use serde_json::Value;

use super::Desk;
use crate::acp::calls::UnaskedCall;
use crate::acp::permission::translate_call;
use crate::headless::ClientEvent;

impl Desk {
    /// A line about a call that nobody was asked about.
    pub(super) fn unasked_text(&self, unasked: &UnaskedCall) -> Option<ClientEvent> {
        if self.own_tools.is_call(&unasked.call) || self.shows_own_terminal(unasked) {
            return None;
        }
        let place = self.place_of(&unasked.session);
        let call = translate_call(&unasked.call, Some(&unasked.meta), &place);
        let what = match call.arguments.get("full_command").and_then(Value::as_str) {
            Some(line) => line.to_owned(),
            None => format!("{} {}", call.tool_name, unasked.call.title),
        };
        let what: String = what.chars().take(1000).collect();
        let how = match &unasked.report {
            None => "it did not say how it ended".to_owned(),
            Some(report) => match (report.exit_code, report.success) {
                (Some(code), _) => format!("exit code {code}"),
                (None, true) => "it says that it worked".to_owned(),
                (None, false) => "it says that it failed".to_owned(),
            },
        };
        let text = format!("\n[PVP: the agent did this without asking: `{what}`; {how}]\n");
        Some(ClientEvent::Text(text))
    }

    fn shows_own_terminal(&self, unasked: &UnaskedCall) -> bool {
        unasked
            .terminals()
            .any(|id| self.delegate.terminals.was_opened(id))
    }
}
