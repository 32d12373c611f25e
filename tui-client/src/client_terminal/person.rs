//! The person at the client's terminal: their own connection to the session, which shows them what
//! waits and sends their votes.

use std::time::Duration;

use pvp_client::{ApiClient, ConnectError, ConnectOptions, Connection, ConnectionEvents, Link};
use tokio::sync::mpsc;

use crate::app::{AppEffect, AppInput};
use crate::event_loop::{connection_input, next_event};
use crate::requests::RequestDispatcher;

/// The pause between two attempts to join.
const RETRY_PAUSE: Duration = Duration::from_secs(3);

/// How a person joins the session that a client is supervised in.
#[derive(Clone)]
pub struct PersonAtTerminal {
    /// Their own link, never the agent's.
    pub link: Link,
    /// How they join.
    pub options: ConnectOptions,
}

/// What became of an attempt to join.
enum Joining {
    Joined(Connection, ConnectionEvents),
    Failed { reason: String },
    Refused { reason: String },
}

/// A person's connection, from before it is there.
pub(super) struct PersonConnection {
    /// Who they are.
    person: PersonAtTerminal,
    /// What became of attempts to join.
    joining: mpsc::Receiver<Joining>,
    /// What happens in the session, once they have joined.
    events: Option<ConnectionEvents>,
    /// Sends their messages, once they have joined.
    requests: Option<RequestDispatcher>,
    /// What the server answered to these.
    answers: mpsc::UnboundedReceiver<AppInput>,
    /// Where those answers come from.
    answer_sender: mpsc::UnboundedSender<AppInput>,
}

impl PersonConnection {
    /// Begins to join; the client does not wait for it.
    pub(super) fn start(person: PersonAtTerminal) -> Self {
        let (sender, joining) = mpsc::channel(1);
        tokio::spawn(join(person.clone(), sender));
        let (answer_sender, answers) = mpsc::unbounded_channel();
        Self {
            person,
            joining,
            events: None,
            requests: None,
            answers,
            answer_sender,
        }
    }

    /// What happens next, for the card. Cancel safe.
    pub(super) async fn next(&mut self) -> AppInput {
        loop {
            tokio::select! {
                Some(answer) = self.answers.recv() => return answer,
                Some(joining) = self.joining.recv() => {
                    if let Some(input) = self.on_joining(joining) {
                        return input;
                    }
                }
                event = next_event(&mut self.events) => match event {
                    Some(event) => if let Some(input) = connection_input(event) {
                        return input;
                    },
                    None => self.events = None,
                },
            }
        }
    }

    fn on_joining(&mut self, joining: Joining) -> Option<AppInput> {
        match joining {
            Joining::Joined(connection, events) => {
                let api = ApiClient::new(self.person.link.clone());
                let session = connection.session().clone();
                let answers = self.answer_sender.clone();
                let requests = RequestDispatcher::new(api, session, connection, answers);
                self.requests = Some(requests);
                self.events = Some(events);
                None
            }
            Joining::Failed { reason } => Some(AppInput::Disconnected { reason }),
            Joining::Refused { reason } => Some(AppInput::Closed { reason }),
        }
    }

    /// Performs what involves the server. There is nothing to send before there is a connection.
    pub(super) fn run_effect(&self, effect: AppEffect) {
        if let Some(requests) = &self.requests {
            requests.run_effect(effect);
        }
    }
}

/// Joins, however often the server has to be asked.
async fn join(person: PersonAtTerminal, sender: mpsc::Sender<Joining>) {
    loop {
        let joined = Connection::open(person.link.clone(), person.options.clone()).await;
        let (joining, is_final) = match joined {
            Ok((connection, events)) => (Joining::Joined(connection, events), true),
            Err(error) => {
                let is_final = match &error {
                    ConnectError::Refused(_)
                    | ConnectError::RecordChanged(_)
                    | ConnectError::NoSession
                    | ConnectError::NoParticipant => true,
                    ConnectError::Api(error) => !error.is_transient(),
                    ConnectError::Failed(_) => false,
                };
                let reason = error.to_string();
                match is_final {
                    true => (Joining::Refused { reason }, true),
                    false => (Joining::Failed { reason }, false),
                }
            }
        };
        if sender.send(joining).await.is_err() || is_final {
            return;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
