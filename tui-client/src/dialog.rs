//! Questions with a text for an answer; they stand where the composer does, below the card.

use pvp_protocol::payload::InterruptUrgency;
use pvp_protocol::{Digest, MessageId};

use crate::editor::Editor;

/// What a question is about: a gate, as it was on the screen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Matter {
    pub(crate) gate: MessageId,
    pub(crate) digest: Digest,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Dialog {
    Reject {
        matter: Matter,
        reason: Editor,
    },
    Edit {
        matter: Matter,
        line: Editor,
    },
    Allow {
        words: Editor,
    },
    Interrupt {
        urgency: InterruptUrgency,
        message: Editor,
    },
    Search {
        needle: Editor,
    },
}

impl Dialog {
    pub(crate) fn reject(matter: Matter) -> Self {
        let reason = Editor::default();
        Dialog::Reject { matter, reason }
    }

    pub(crate) fn edit(matter: Matter, command: &str) -> Self {
        let line = Editor::new(command);
        Dialog::Edit { matter, line }
    }

    pub(crate) fn allow(prefix: &str) -> Self {
        let words = Editor::new(&format!("{prefix} for 1h"));
        Dialog::Allow { words }
    }

    pub(crate) fn interrupt() -> Self {
        let message = Editor::default();
        let urgency = InterruptUrgency::Pause;
        Dialog::Interrupt { urgency, message }
    }

    pub(crate) fn search(needle: &str) -> Self {
        let needle = Editor::new(needle);
        Dialog::Search { needle }
    }

    pub(crate) fn editor(&self) -> &Editor {
        match self {
            Dialog::Reject { reason: editor, .. }
            | Dialog::Edit { line: editor, .. }
            | Dialog::Allow { words: editor }
            | Dialog::Interrupt {
                message: editor, ..
            }
            | Dialog::Search { needle: editor } => editor,
        }
    }

    pub(crate) fn editor_mut(&mut self) -> &mut Editor {
        match self {
            Dialog::Reject { reason: editor, .. }
            | Dialog::Edit { line: editor, .. }
            | Dialog::Allow { words: editor }
            | Dialog::Interrupt {
                message: editor, ..
            }
            | Dialog::Search { needle: editor } => editor,
        }
    }

    /// The gate that it is about.
    pub(crate) fn matter(&self) -> Option<&Matter> {
        match self {
            Dialog::Reject { matter, .. } | Dialog::Edit { matter, .. } => Some(matter),
            Dialog::Allow { .. } | Dialog::Interrupt { .. } | Dialog::Search { .. } => None,
        }
    }

    /// Whether its answer may have several lines.
    pub(crate) fn takes_lines(&self) -> bool {
        match self {
            Dialog::Edit { .. } => true,
            Dialog::Reject { .. }
            | Dialog::Allow { .. }
            | Dialog::Interrupt { .. }
            | Dialog::Search { .. } => false,
        }
    }

    /// The next urgency of an interrupt.
    pub(crate) fn toggle(&mut self) {
        if let Dialog::Interrupt { urgency, .. } = self {
            *urgency = match urgency {
                InterruptUrgency::Pause => InterruptUrgency::Stop,
                InterruptUrgency::Stop => InterruptUrgency::Emergency,
                InterruptUrgency::Emergency => InterruptUrgency::Pause,
            };
        }
    }

    pub(crate) fn title(&self) -> String {
        match self {
            Dialog::Reject { .. } => "Reject: why? The agent reads it".to_owned(),
            Dialog::Edit { .. } => "Edit: everyone votes on the result".to_owned(),
            Dialog::Allow { .. } => "Allow commands that begin with".to_owned(),
            Dialog::Interrupt { urgency, .. } => match urgency {
                InterruptUrgency::Pause => "Interrupt: [pause] stop emergency".to_owned(),
                InterruptUrgency::Stop => "Interrupt: pause [stop] emergency".to_owned(),
                InterruptUrgency::Emergency => "Interrupt: pause stop [emergency]".to_owned(),
            },
            Dialog::Search { .. } => "Search".to_owned(),
        }
    }
}
