//! Driving an interactive command: its screen here, and my keys there.

use pvp_protocol::payload::{TerminalSize, ToolInput};
use pvp_protocol::{ExtraFields, MessageId};

use super::{App, Errand, Focus, Main};
use crate::keys::Chord;

impl App {
    pub(super) fn open_pane(&mut self, proposal: MessageId) {
        self.show(Main::Terminal(proposal));
        self.resize_pane();
    }

    /// Whether keys of mine reach this command.
    pub(super) fn may_type_into(&self, proposal: &MessageId) -> bool {
        let proposal = self.view.proposal(proposal).filter(|it| it.is_running());
        let driver = proposal.and_then(|it| {
            let granted = it.run.as_ref().and_then(|run| run.driver.as_ref());
            granted.or(it.requested.driver.as_ref())
        });
        driver.is_some_and(|driver| self.view.is_me(driver))
    }

    /// The interactive command that has the focus and takes my keys.
    pub(super) fn driven_pane(&self) -> Option<MessageId> {
        match (&self.main, self.focus) {
            (Main::Terminal(proposal), Focus::Main) if self.may_type_into(proposal) => {
                Some(proposal.clone())
            }
            _ => None,
        }
    }

    /// Tells the command how large its screen is here, if that changed.
    pub(super) fn resize_pane(&mut self) {
        let Some(tool_proposal) = self.driven_pane() else {
            return;
        };
        let area = crate::draw::areas(self).main;
        let size = TerminalSize {
            columns: area.width.saturating_sub(2).max(2),
            rows: area.height.saturating_sub(2).max(2),
        };
        let told = (tool_proposal.clone(), size);
        if self.told_size.as_ref() == Some(&told) {
            return;
        }
        self.told_size = Some(told);
        let message = ToolInput {
            tool_proposal,
            data: None,
            resize: Some(size),
            extra: ExtraFields::new(),
        };
        self.send(Errand::Silent, message);
    }

    pub(super) fn type_into_pane(&mut self, chord: Chord) {
        if let (Some(proposal), Some(keys)) = (self.driven_pane(), crate::pane::encoded(chord)) {
            self.type_text(proposal, keys);
        }
    }

    pub(super) fn paste_into_pane(&mut self, proposal: &MessageId, text: &str) {
        let wrapped = self.panes.wraps_paste(proposal);
        let text = if wrapped {
            // Nothing pasted can end the paste.
            format!("\u{1b}[200~{}\u{1b}[201~", text.replace('\u{1b}', ""))
        } else {
            text.replace('\n', "\r")
        };
        self.type_text(proposal.clone(), text);
    }

    fn type_text(&mut self, tool_proposal: MessageId, data: String) {
        let message = ToolInput {
            tool_proposal,
            data: Some(data),
            resize: None,
            extra: ExtraFields::new(),
        };
        self.send(Errand::Quiet, message);
    }
}
