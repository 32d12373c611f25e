//! Doing what the screen asks of the server, without making it wait.

use std::sync::Arc;

use pvp_client::{ApiClient, Connection, fresh_id};
use pvp_protocol::{ClientMessage, MessageId, SessionId};
use tokio::sync::mpsc;

use crate::app::{Effect, Input, Ticket};

/// Lines that a search in an output finds at most.
const FOUND: u64 = 2_000;

/// Programs that completion knows.
const PROGRAMS: usize = 20_000;

/// Talks to the server on behalf of the screen; answers come back as inputs.
pub(crate) struct Errands {
    api: Arc<ApiClient>,
    session: SessionId,
    outgoing: mpsc::UnboundedSender<(Ticket, Box<ClientMessage>)>,
    replies: mpsc::UnboundedSender<Input>,
}

impl Errands {
    pub(crate) fn new(
        api: ApiClient,
        session: SessionId,
        connection: Connection,
        replies: mpsc::UnboundedSender<Input>,
    ) -> Self {
        let (outgoing, queue) = mpsc::unbounded_channel();
        tokio::spawn(speak(connection, queue, replies.clone()));
        let errands = Self {
            api: Arc::new(api),
            session,
            outgoing,
            replies,
        };
        errands.ask(|_, _| Input::Programs(programs()));
        errands
    }

    /// Does what takes time. What needs the terminal is done by whoever has it.
    pub(crate) fn run(&self, effect: Effect) {
        match effect {
            // Whoever listens is gone only when the screen is.
            Effect::Send(ticket, message) => drop(self.outgoing.send((ticket, message))),
            Effect::Fetch {
                reference,
                offset,
                limit,
            } => self.ask(move |api, session| {
                let query = [
                    ("offset", Some(offset.to_string())),
                    ("limit", Some(limit.to_string())),
                ];
                let page = api.output(session, &reference, &query);
                Input::Fetched(page.map_err(|error| error.to_string()))
            }),
            Effect::Find { reference, needle } => {
                self.ask(move |api, session| Input::Found(find(api, session, &reference, &needle)))
            }
            Effect::Invite(invite) => self.ask(move |api, _| {
                let invitation = api.invite(&invite).map(Box::new);
                Input::Invited(invitation.map_err(|error| error.to_string()))
            }),
            Effect::Copy(_)
            | Effect::Keep(_)
            | Effect::Call
            | Effect::Redraw
            | Effect::Suspend
            | Effect::Quit => {}
        }
    }

    /// Asks something that blocks, beside everything else.
    fn ask(&self, question: impl FnOnce(&ApiClient, &SessionId) -> Input + Send + 'static) {
        let (api, session) = (self.api.clone(), self.session.clone());
        let replies = self.replies.clone();
        tokio::task::spawn_blocking(move || {
            // The screen may be closed by now.
            let _ = replies.send(question(&api, &session));
        });
    }
}

fn find(
    api: &ApiClient,
    session: &SessionId,
    reference: &MessageId,
    needle: &str,
) -> Result<pvp_protocol::payload::OutputPage, String> {
    let query = [
        ("grep", Some(needle.to_owned())),
        ("limit", Some(FOUND.to_string())),
    ];
    let page = api.output(session, reference, &query);
    page.map_err(|error| error.to_string())
}

/// Sends one message after the other, and waits for each answer beside that.
async fn speak(
    connection: Connection,
    mut queue: mpsc::UnboundedReceiver<(Ticket, Box<ClientMessage>)>,
    replies: mpsc::UnboundedSender<Input>,
) {
    while let Some((ticket, message)) = queue.recv().await {
        let sent = connection.send_with_id(fresh_id(), None, *message).await;
        let replies = replies.clone();
        tokio::spawn(async move {
            let answer = match sent {
                Ok(receipt) => receipt.ack().await.map(|ack| ack.id),
                Err(error) => Err(error),
            };
            let answer = answer.map_err(|error| error.to_string());
            // The screen may be closed by now.
            let _ = replies.send(Input::Answered(ticket, answer));
        });
    }
}

/// Names of the programs on the PATH here.
fn programs() -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path);
    let entries = directories.filter_map(|directory| std::fs::read_dir(directory).ok());
    let names = entries
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.take(PROGRAMS).collect();
    names.sort_unstable();
    names.dedup();
    names
}
