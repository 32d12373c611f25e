//! Performs the app's requests to the server in the background.

use std::sync::Arc;

use pvp_client::{ApiClient, Connection, Link, fresh_id};
use pvp_protocol::api::{DeviceCodeRequest, Invitation};
use pvp_protocol::{ClientMessage, MessageId, SessionId};
use tokio::sync::mpsc;

use crate::app::{AppEffect, AppInput, MadeInvitation, PendingRequestId};

/// The most lines that a search in a command's output returns.
const MAX_SEARCH_LINES: u64 = 2_000;

/// The most program names that are listed for completion.
const MAX_PROGRAMS: usize = 20_000;

/// Sends the app's requests to the server; the answers come back as inputs.
pub(crate) struct RequestDispatcher {
    api: Arc<ApiClient>,
    session: SessionId,
    outgoing: mpsc::UnboundedSender<(PendingRequestId, Box<ClientMessage>)>,
    replies: mpsc::UnboundedSender<AppInput>,
}

impl RequestDispatcher {
    pub(crate) fn new(
        api: ApiClient,
        session: SessionId,
        connection: Connection,
        replies: mpsc::UnboundedSender<AppInput>,
    ) -> Self {
        let (outgoing, queue) = mpsc::unbounded_channel();
        tokio::spawn(send_messages(connection, queue, replies.clone()));
        Self {
            api: Arc::new(api),
            session,
            outgoing,
            replies,
        }
    }

    /// Lists the programs of this machine, for completion.
    pub(crate) fn list_programs(&self) {
        self.spawn_request(|_, _| AppInput::ProgramsListed(list_programs()));
    }

    /// Performs the effects that involve the server. The event loop performs the others.
    pub(crate) fn run_effect(&self, effect: AppEffect) {
        match effect {
            // The receiver lives as long as the screen.
            AppEffect::Send(request_id, message) => drop(self.outgoing.send((request_id, message))),
            AppEffect::FetchOutput {
                reference,
                offset,
                limit,
            } => self.spawn_request(move |api, session| {
                let query = [
                    ("offset", Some(offset.to_string())),
                    ("limit", Some(limit.to_string())),
                ];
                let page = api.output(session, &reference, &query);
                AppInput::OutputFetched(page.map_err(|error| error.to_string()))
            }),
            AppEffect::SearchOutput { reference, needle } => {
                self.spawn_request(move |api, session| {
                    AppInput::OutputSearched(search_output(api, session, &reference, &needle))
                })
            }
            AppEffect::CreateInvitation(invite) => self.spawn_request(move |api, _| {
                let made = api.invite(&invite).map(|invitation| {
                    let page_link = page_link(&invitation);
                    Box::new(MadeInvitation {
                        invitation,
                        page_link,
                    })
                });
                AppInput::InvitationCreated(made.map_err(|error| error.to_string()))
            }),
            AppEffect::Copy(_)
            | AppEffect::AppendHistory(_)
            | AppEffect::Notify
            | AppEffect::Redraw
            | AppEffect::Suspend
            | AppEffect::Quit => {}
        }
    }

    /// Runs a blocking request on its own thread and sends its result as an input.
    fn spawn_request(
        &self,
        request: impl FnOnce(&ApiClient, &SessionId) -> AppInput + Send + 'static,
    ) {
        let (api, session) = (self.api.clone(), self.session.clone());
        let replies = self.replies.clone();
        tokio::task::spawn_blocking(move || {
            // The screen may be closed by now.
            let _ = replies.send(request(&api, &session));
        });
    }
}

fn search_output(
    api: &ApiClient,
    session: &SessionId,
    reference: &MessageId,
    needle: &str,
) -> Result<pvp_protocol::payload::OutputPage, String> {
    let query = [
        ("grep", Some(needle.to_owned())),
        ("limit", Some(MAX_SEARCH_LINES.to_string())),
    ];
    let page = api.output(session, reference, &query);
    page.map_err(|error| error.to_string())
}

/// Sends the messages in order, and waits for each answer in a task of its own.
async fn send_messages(
    connection: Connection,
    mut queue: mpsc::UnboundedReceiver<(PendingRequestId, Box<ClientMessage>)>,
    replies: mpsc::UnboundedSender<AppInput>,
) {
    while let Some((request_id, message)) = queue.recv().await {
        let sent = connection.send_with_id(fresh_id(), None, *message).await;
        let replies = replies.clone();
        tokio::spawn(async move {
            let answer = match sent {
                Ok(receipt) => receipt.ack().await.map(|ack| ack.id),
                Err(error) => Err(error),
            };
            let answer = answer.map_err(|error| error.to_string());
            // The screen may be closed by now.
            let _ = replies.send(AppInput::RequestDone(request_id, answer));
        });
    }
}

/// Names of the programs on this machine's PATH, sorted.
fn list_programs() -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path);
    let entries = directories.filter_map(|directory| std::fs::read_dir(directory).ok());
    let names = entries
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<_> = names.take(MAX_PROGRAMS).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// What the holder of an invitation opens in a browser; `None` if they open none.
fn page_link(invitation: &Invitation) -> Option<String> {
    let link = Link::parse(&invitation.link).ok()?;
    let session = link.session().cloned();
    let made = ApiClient::new(link).create_device_code(&DeviceCodeRequest { session });
    made.ok().map(|made| made.link)
}
