//! Sends keys, pastes and the screen size to the interactive command that the user drives.

use pvp_protocol::payload::{TerminalSize, ToolInput};
use pvp_protocol::{ExtraFields, MessageId};

use super::{App, Focus, MainContent, PendingRequest};
use crate::keys::KeyChord;

impl App {
    pub(super) fn open_pty_screen(&mut self, proposal: MessageId) {
        self.show_main(MainContent::Terminal(proposal));
        self.send_pty_size();
    }

    /// Whether this command runs and takes the user's keys.
    pub(super) fn is_driver_of(&self, proposal: &MessageId) -> bool {
        let proposal = self.view.proposal(proposal).filter(|it| it.is_running());
        let driver = proposal.and_then(|it| {
            let granted = it.run.as_ref().and_then(|run| run.driver.as_ref());
            granted.or(it.requested.driver.as_ref())
        });
        driver.is_some_and(|driver| self.view.is_me(driver))
    }

    /// The interactive command that has the focus and takes the user's keys.
    pub(super) fn focused_driven_pty(&self) -> Option<MessageId> {
        match (&self.main, self.focus) {
            (MainContent::Terminal(proposal), Focus::Main) if self.is_driver_of(proposal) => {
                Some(proposal.clone())
            }
            _ => None,
        }
    }

    /// Sends the command the size of its screen here, if that changed.
    pub(super) fn send_pty_size(&mut self) {
        let Some(tool_proposal) = self.focused_driven_pty() else {
            return;
        };
        let area = crate::draw::areas(self).main;
        let size = TerminalSize {
            columns: area.width.saturating_sub(2).max(2),
            rows: area.height.saturating_sub(2).max(2),
        };
        let proposal_and_size = (tool_proposal.clone(), size);
        if self.sent_pty_size.as_ref() == Some(&proposal_and_size) {
            return;
        }
        self.sent_pty_size = Some(proposal_and_size);
        let message = ToolInput {
            tool_proposal,
            data: None,
            resize: Some(size),
            extra: ExtraFields::new(),
        };
        self.send(PendingRequest::Ignored, message);
    }

    pub(super) fn send_key_to_pty(&mut self, chord: KeyChord) {
        if let (Some(proposal), Some(keys)) = (
            self.focused_driven_pty(),
            crate::pty_screen::encode_key(chord),
        ) {
            self.send_pty_input(proposal, keys);
        }
    }

    pub(super) fn paste_to_pty(&mut self, proposal: &MessageId, text: &str) {
        let bracketed = self.pty_screens.uses_bracketed_paste(proposal);
        let text = if bracketed {
            // Without escape characters, no pasted text can end the paste early.
            format!("\u{1b}[200~{}\u{1b}[201~", text.replace('\u{1b}', ""))
        } else {
            text.replace('\n', "\r")
        };
        self.send_pty_input(proposal.clone(), text);
    }

    fn send_pty_input(&mut self, tool_proposal: MessageId, data: String) {
        let message = ToolInput {
            tool_proposal,
            data: Some(data),
            resize: None,
            extra: ExtraFields::new(),
        };
        self.send(PendingRequest::ErrorsOnly, message);
    }
}
