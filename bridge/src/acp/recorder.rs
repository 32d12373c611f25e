//! Puts into the record what is said in an editor: prompts in the name of the person at it, and the
//! agent's answers.

use std::collections::BTreeMap;
use std::time::Duration;

use pvp_agent::response_stream::ResponseStream;
use pvp_client::{ApiClient, Connection, Link, fresh_id};
use pvp_protocol::payload::{ClientOrigin, FinishReason, PromptSubmit};
use pvp_protocol::{ExtraFields, JsonObject, MessageId, ParticipantId, SessionId};
use tokio::sync::mpsc;

use crate::client_files::PersonAtClient;
use crate::headless::ClientEvent;
use crate::supervisor::Supervisor;

/// What may wait to be recorded; more is dropped while the server is away.
const MAX_UNRECORDED: usize = 4096;

/// How long the server may take to record a prompt.
const PROMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long text is collected before it is sent.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);

/// Records without holding up the conversation.
pub(super) struct Recorder(mpsc::Sender<Said>);

struct Said {
    conversation: String,
    what: What,
}

enum What {
    Prompt(String),
    Event(ClientEvent),
    End(FinishReason),
}

impl Recorder {
    pub(super) fn start(supervisor: &Supervisor, person: Option<PersonAtClient>) -> Self {
        let (sender, receiver) = mpsc::channel(MAX_UNRECORDED);
        let task = RecorderTask {
            connection: supervisor.connection().clone(),
            agent: supervisor.participant().clone(),
            session: supervisor.session().clone(),
            client: supervisor.client().name.clone(),
            version: supervisor.client().version.clone(),
            person,
            answers: BTreeMap::new(),
        };
        tokio::spawn(task.run(receiver));
        Self(sender)
    }

    /// Notes what the person at the editor asked.
    pub(super) fn prompt(&self, conversation: &str, text: &str) {
        self.send(conversation, What::Prompt(text.to_owned()));
    }

    /// Notes what the agent said.
    pub(super) fn event(&self, conversation: &str, event: ClientEvent) {
        self.send(conversation, What::Event(event));
    }

    /// Notes that the agent's turn is over.
    pub(super) fn end(&self, conversation: &str, finish: FinishReason) {
        self.send(conversation, What::End(finish));
    }

    fn send(&self, conversation: &str, what: What) {
        let conversation = conversation.to_owned();
        if self.0.try_send(Said { conversation, what }).is_err() {
            tracing::warn!("something that was said is not in the record");
        }
    }
}

struct RecorderTask {
    /// The connection to the session.
    connection: Connection,
    /// Who the agent is there.
    agent: ParticipantId,
    /// The session.
    session: SessionId,
    /// The name of the agent program.
    client: String,
    /// Its version, if it is known.
    version: Option<String>,
    /// The person at the editor, if their link is saved.
    person: Option<PersonAtClient>,
    /// The answers that are being given, by conversation.
    answers: BTreeMap<String, ResponseStream>,
}

impl RecorderTask {
    async fn run(mut self, mut said: mpsc::Receiver<Said>) {
        loop {
            tokio::select! {
                next = said.recv() => match next {
                    Some(said) => self.record(said).await,
                    None => break,
                },
                () = tokio::time::sleep(FLUSH_INTERVAL), if !self.answers.is_empty() => {
                    for answer in self.answers.values_mut() {
                        answer.flush().await;
                    }
                }
            }
        }
        for (_, answer) in self.answers {
            answer.finish(FinishReason::Error, None).await;
        }
    }

    async fn record(&mut self, said: Said) {
        match said.what {
            What::Prompt(text) => {
                let prompt = self.record_prompt(&said.conversation, text).await;
                let answer = ResponseStream::new(self.connection.clone(), prompt);
                self.answers.insert(said.conversation, answer);
            }
            What::Event(ClientEvent::Text(text)) => {
                self.answer(said.conversation).push_text(&text).await;
            }
            What::Event(ClientEvent::Thinking(text)) => {
                self.answer(said.conversation).push_thinking(&text).await;
            }
            What::Event(ClientEvent::TurnEnded(finish)) | What::End(finish) => {
                if let Some(answer) = self.answers.remove(&said.conversation) {
                    answer.finish(finish, None).await;
                }
            }
        }
    }

    fn answer(&mut self, conversation: String) -> &mut ResponseStream {
        let answer = || ResponseStream::new(self.connection.clone(), None);
        self.answers.entry(conversation).or_insert_with(answer)
    }

    /// Sends a prompt in the name of the person at the editor; returns its id.
    async fn record_prompt(&self, conversation: &str, text: String) -> Option<MessageId> {
        let person = self.person.as_ref()?;
        let conversation: String = conversation.chars().take(60).collect();
        let prompt = PromptSubmit {
            content: text,
            target_agent: self.agent.clone(),
            contributors: vec![person.participant.clone()],
            context_keys: Vec::new(),
            config: None,
            origin: Some(ClientOrigin {
                client: self.client.clone(),
                version: self.version.clone(),
                session: Some(conversation),
                call: None,
                subagent: None,
                fails_open: false,
            }),
            extra: ExtraFields::new(),
        };
        let id = fresh_id();
        let envelope = JsonObject::from_iter([
            ("id".to_owned(), id.as_str().into()),
            ("type".to_owned(), "prompt.submit".into()),
            ("payload".to_owned(), serde_json::to_value(&prompt).ok()?),
        ]);
        let (link, session) = (Link::parse(&person.link).ok()?, self.session.clone());
        let sent = tokio::task::spawn_blocking(move || {
            ApiClient::with_timeout(link, PROMPT_TIMEOUT).send(&session, &envelope)
        });
        match sent.await.ok()? {
            Ok(_) => Some(id),
            Err(error) => {
                tracing::warn!(%error, "a prompt is not in the record");
                None
            }
        }
    }
}
