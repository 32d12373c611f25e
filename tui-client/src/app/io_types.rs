//! The app's inputs, which the event loop provides, and its effects, which the loop performs.

use crossterm::event::{KeyEvent, MouseEvent};
use pvp_client::RecordWarning;
use pvp_protocol::api::{Invitation, InviteRequest};
use pvp_protocol::payload::OutputPage;
use pvp_protocol::{ClientMessage, Envelope, MessageId};
use ratatui::layout::Size;

use crate::history::LoadedHistory;

/// An invitation, as it was just made.
#[derive(Debug)]
pub(crate) struct MadeInvitation {
    pub(crate) invitation: Invitation,
    /// What its holder opens in a browser, once; agents open none.
    pub(crate) page_link: Option<String>,
}

/// Something that happened, for the app to react to.
#[derive(Debug)]
pub(crate) enum AppInput {
    Key(KeyEvent),
    Paste(String),
    Mouse(MouseEvent),
    /// The terminal window gained (true) or lost (false) the focus.
    FocusChanged(bool),
    Resize(Size),
    Message(Box<Envelope>),
    Connected {
        resumed: bool,
    },
    /// Something is odd about the session's log.
    RecordWarning(RecordWarning),
    Disconnected {
        reason: String,
    },
    /// The connection will not come back.
    Closed {
        reason: String,
    },
    /// The answer to a message: the id it got, or why it was refused.
    RequestDone(PendingRequestId, Result<MessageId, String>),
    OutputFetched(Result<OutputPage, String>),
    OutputSearched(Result<OutputPage, String>),
    InvitationCreated(Result<Box<MadeInvitation>, String>),
    /// The input history of earlier runs.
    HistoryLoaded(LoadedHistory),
    /// Names of programs on this machine, for completion.
    ProgramsListed(Vec<String>),
    Tick,
}

impl AppInput {
    /// Whether the person at this terminal caused it.
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
            | AppInput::RecordWarning(_)
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

/// Identifies a message that we sent until the server answers it.
pub(crate) type PendingRequestId = u64;

/// Something for the event loop to do.
#[derive(Debug, PartialEq)]
pub(crate) enum AppEffect {
    Send(PendingRequestId, Box<ClientMessage>),
    /// Copy to the clipboard.
    Copy(String),
    /// Read lines of a command's output.
    FetchOutput {
        reference: MessageId,
        offset: u64,
        limit: u64,
    },
    /// Find the lines of a command's output that contain the needle.
    SearchOutput {
        reference: MessageId,
        needle: String,
    },
    CreateInvitation(Box<InviteRequest>),
    /// Append a sent text to the history file.
    AppendHistory(String),
    /// Get the attention of a user who is not looking.
    Notify,
    Redraw,
    /// Suspend the process until the shell continues it.
    Suspend,
    Quit,
}
