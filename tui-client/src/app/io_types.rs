//! What goes into the screen and what comes out of it: whoever runs it brings the one and does the
//! other.

use crossterm::event::{KeyEvent, MouseEvent};
use pvp_protocol::api::{Invitation, InviteRequest};
use pvp_protocol::payload::OutputPage;
use pvp_protocol::{ClientMessage, Envelope, MessageId};
use ratatui::layout::Size;

use crate::history::LoadedHistory;

/// What happens to the screen.
#[derive(Debug)]
pub(crate) enum AppInput {
    Key(KeyEvent),
    Paste(String),
    Mouse(MouseEvent),
    /// The terminal has, or has not, the focus of its window system.
    FocusChanged(bool),
    Resize(Size),
    Message(Box<Envelope>),
    Connected {
        resumed: bool,
    },
    Disconnected {
        reason: String,
    },
    /// The connection will not come back.
    Closed {
        reason: String,
    },
    /// What became of a message: the id it had, or why it was not taken.
    RequestDone(PendingRequestId, Result<MessageId, String>),
    OutputFetched(Result<OutputPage, String>),
    OutputSearched(Result<OutputPage, String>),
    InvitationCreated(Result<Box<Invitation>, String>),
    /// What was sent from earlier screens.
    HistoryLoaded(LoadedHistory),
    /// Names of programs, for completion.
    ProgramsListed(Vec<String>),
    Tick,
}

impl AppInput {
    /// Whether somebody did it who sits here.
    pub(super) fn is_user_activity(&self) -> bool {
        match self {
            AppInput::Key(_)
            | AppInput::Paste(_)
            | AppInput::Mouse(_)
            | AppInput::FocusChanged(true) => true,
            AppInput::FocusChanged(false)
            | AppInput::Resize(_)
            | AppInput::Message(_)
            | AppInput::Connected { .. }
            | AppInput::Disconnected { .. }
            | AppInput::Closed { .. }
            | AppInput::RequestDone(..)
            | AppInput::OutputFetched(_)
            | AppInput::OutputSearched(_)
            | AppInput::InvitationCreated(_)
            | AppInput::HistoryLoaded(_)
            | AppInput::ProgramsListed(_)
            | AppInput::Tick => false,
        }
    }
}

/// Names a message of ours until it is answered.
pub(crate) type PendingRequestId = u64;

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum AppEffect {
    Send(PendingRequestId, Box<ClientMessage>),
    /// Put into the clipboard.
    Copy(String),
    /// Read lines of an output.
    FetchOutput {
        reference: MessageId,
        offset: u64,
        limit: u64,
    },
    /// Find lines of an output.
    SearchOutput {
        reference: MessageId,
        needle: String,
    },
    CreateInvitation(Box<InviteRequest>),
    /// Keep what was sent for the next time.
    AppendHistory(String),
    /// Call someone who is not looking.
    Notify,
    Redraw,
    /// Stop, until the shell brings the screen back.
    Suspend,
    Quit,
}
