//! The dialogs: each asks for a text, below the card, in place of the composer.

use pvp_protocol::payload::InterruptUrgency;
use pvp_protocol::{Digest, MessageId};

use crate::editor::Editor;

/// A gate with the digest that was on the screen.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GateVersion {
    pub(crate) gate: MessageId,
    pub(crate) digest: Digest,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Dialog {
    Reject {
        gate_version: GateVersion,
        reason: Editor,
    },
    Edit {
        gate_version: GateVersion,
        command: Editor,
    },
    Allow {
        prefix: Editor,
        /// What the rule does to the command on the card; empty if there is none.
        effect: String,
    },
    AllowReading {
        directories: Editor,
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
    pub(crate) fn reject(gate_version: GateVersion) -> Self {
        let reason = Editor::default();
        Dialog::Reject {
            gate_version,
            reason,
        }
    }

    pub(crate) fn edit(gate_version: GateVersion, command: &str) -> Self {
        let command = Editor::new(command);
        Dialog::Edit {
            gate_version,
            command,
        }
    }

    /// Suggests a prefix, in the directory of the command that it is for; `effect` says what becomes
    /// of that command.
    pub(crate) fn allow(prefix: &str, directory: Option<&str>, effect: String) -> Self {
        let place = directory.map(|directory| format!(" in {directory}"));
        let place = place.unwrap_or_default();
        let prefix = Editor::new(&format!("{prefix}{place} for 1h"));
        Dialog::Allow { prefix, effect }
    }

    /// Suggests directories that reads may see.
    pub(crate) fn allow_reading(directories: &[String]) -> Self {
        let directories = Editor::new(&format!("{} for 1h", directories.join(" ")));
        Dialog::AllowReading { directories }
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
            | Dialog::Edit {
                command: editor, ..
            }
            | Dialog::Allow { prefix: editor, .. }
            | Dialog::AllowReading {
                directories: editor,
            }
            | Dialog::Interrupt {
                message: editor, ..
            }
            | Dialog::Search { needle: editor } => editor,
        }
    }

    pub(crate) fn editor_mut(&mut self) -> &mut Editor {
        match self {
            Dialog::Reject { reason: editor, .. }
            | Dialog::Edit {
                command: editor, ..
            }
            | Dialog::Allow { prefix: editor, .. }
            | Dialog::AllowReading {
                directories: editor,
            }
            | Dialog::Interrupt {
                message: editor, ..
            }
            | Dialog::Search { needle: editor } => editor,
        }
    }

    /// The gate that the dialog is about, if it is about one.
    pub(crate) fn gate_version(&self) -> Option<&GateVersion> {
        match self {
            Dialog::Reject { gate_version, .. } | Dialog::Edit { gate_version, .. } => {
                Some(gate_version)
            }
            Dialog::Allow { .. }
            | Dialog::AllowReading { .. }
            | Dialog::Interrupt { .. }
            | Dialog::Search { .. } => None,
        }
    }

    /// Whether its text may have several lines.
    pub(crate) fn is_multiline(&self) -> bool {
        match self {
            Dialog::Edit { .. } => true,
            Dialog::Reject { .. }
            | Dialog::Allow { .. }
            | Dialog::AllowReading { .. }
            | Dialog::Interrupt { .. }
            | Dialog::Search { .. } => false,
        }
    }

    /// Selects the next urgency of an interrupt; other dialogs ignore it.
    pub(crate) fn cycle_urgency(&mut self) {
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
            Dialog::Reject { .. } => "Reason for rejecting, for the agent".to_owned(),
            Dialog::Edit { .. } => "Edit the command; everyone votes again".to_owned(),
            Dialog::Allow { effect, .. } => {
                format!("Allow commands that begin with this; {effect}")
            }
            Dialog::AllowReading { .. } => "Allow reading below this directory".to_owned(),
            Dialog::Interrupt { urgency, .. } => match urgency {
                InterruptUrgency::Pause => "Interrupt: [pause] stop emergency".to_owned(),
                InterruptUrgency::Stop => "Interrupt: pause [stop] emergency".to_owned(),
                InterruptUrgency::Emergency => "Interrupt: pause stop [emergency]".to_owned(),
            },
            Dialog::Search { .. } => "Search".to_owned(),
        }
    }
}
