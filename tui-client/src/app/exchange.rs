//! What goes into the screen and what comes out of it: whoever runs it brings the one and does the
//! other.

use crossterm::event::{KeyEvent, MouseEvent};
use pvp_protocol::api::{Invitation, InviteRequest};
use pvp_protocol::payload::OutputPage;
use pvp_protocol::{ClientMessage, Envelope, MessageId};
use ratatui::layout::Size;

use crate::history::Past;

/// What happens to the screen.
#[derive(Debug)]
pub(crate) enum Input {
    Key(KeyEvent),
    Paste(String),
    Mouse(MouseEvent),
    /// The terminal has, or has not, the focus of its window system.
    Focus(bool),
    Resize(Size),
    Told(Box<Envelope>),
    Up {
        resumed: bool,
    },
    Down {
        why: String,
    },
    /// The connection will not come back.
    Over {
        why: String,
    },
    /// What became of a message: the id it had, or why it was not taken.
    Answered(Ticket, Result<MessageId, String>),
    Fetched(Result<OutputPage, String>),
    Found(Result<OutputPage, String>),
    Invited(Result<Box<Invitation>, String>),
    /// What was sent from earlier screens.
    Past(Past),
    /// Names of programs, for completion.
    Programs(Vec<String>),
    Tick,
}

impl Input {
    /// Whether somebody did it who sits here.
    pub(super) fn is_a_persons(&self) -> bool {
        match self {
            Input::Key(_) | Input::Paste(_) | Input::Mouse(_) | Input::Focus(true) => true,
            Input::Focus(false)
            | Input::Resize(_)
            | Input::Told(_)
            | Input::Up { .. }
            | Input::Down { .. }
            | Input::Over { .. }
            | Input::Answered(..)
            | Input::Fetched(_)
            | Input::Found(_)
            | Input::Invited(_)
            | Input::Past(_)
            | Input::Programs(_)
            | Input::Tick => false,
        }
    }
}

/// Names a message of ours until it is answered.
pub(crate) type Ticket = u64;

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(crate) enum Effect {
    Send(Ticket, Box<ClientMessage>),
    /// Put into the clipboard.
    Copy(String),
    /// Read lines of an output.
    Fetch {
        reference: MessageId,
        offset: u64,
        limit: u64,
    },
    /// Find lines of an output.
    Find {
        reference: MessageId,
        needle: String,
    },
    Invite(Box<InviteRequest>),
    /// Keep what was sent for the next time.
    Keep(String),
    /// Call someone who is not looking.
    Call,
    Redraw,
    /// Stop, until the shell brings the screen back.
    Suspend,
    Quit,
}
