//! The person at the terminal of Codex: their prompts and votes, in their own name.

use std::time::Duration;

use pvp_client::{ApiClient, Link};
use pvp_protocol::api::{VoteChoice, VoteRequest};
use pvp_protocol::payload::{ClientOrigin, PromptSubmit};
use pvp_protocol::{Digest, ExtraFields, MessageId, ParticipantId, SessionId};

use crate::client_files::PersonAtClient;

/// How long the server may take to answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The person at the terminal, with their own link to the session.
#[derive(Clone)]
pub struct TerminalPerson {
    participant: ParticipantId,
    link: Link,
    session: SessionId,
}

impl TerminalPerson {
    /// `None` if their link cannot be read.
    pub fn new(person: &PersonAtClient, session: SessionId) -> Option<Self> {
        Some(Self {
            participant: person.participant.clone(),
            link: Link::parse(&person.link).ok()?,
            session,
        })
    }

    /// Tells the session what they said to the agent.
    pub async fn prompt(self, agent: ParticipantId, origin: ClientOrigin, content: String) {
        let prompt = PromptSubmit {
            content,
            target_agent: agent,
            contributors: vec![self.participant.clone()],
            context_keys: Vec::new(),
            config: None,
            origin: Some(origin),
            extra: ExtraFields::new(),
        };
        let sent = self.blocking(move |api, session| {
            let sent = api.send_message(session, prompt).map(|_| ());
            sent.map_err(|error| error.to_string())
        });
        if let Err(why) = sent.await {
            tracing::warn!(%why, "a prompt is not in the record");
        }
    }

    /// Votes for them on what waits, if it is still what they were shown.
    pub(super) async fn vote(
        self,
        proposal: MessageId,
        digest: Digest,
        vote: VoteChoice,
    ) -> Result<(), String> {
        let reason = match vote {
            VoteChoice::Approve => None,
            VoteChoice::Reject => Some("rejected in Codex's own screen".to_owned()),
        };
        self.blocking(move |api, session| {
            let gates = api.list_gates(None, Duration::ZERO);
            let gates = gates.map_err(|error| error.to_string())?.gates;
            let mut open = gates.into_iter();
            let gate = open
                .find(|gate| gate.session == *session && gate.open.request.action_ref == proposal);
            let gate = gate.ok_or("it no longer waits")?;
            let request = VoteRequest {
                vote,
                comment: None,
                reason,
                digest: Some(digest),
                id: None,
            };
            let voted = api.vote(session, &gate.open.gate, &request);
            voted.map(|_| ()).map_err(|error| error.to_string())
        })
        .await
    }

    async fn blocking(
        self,
        ask: impl FnOnce(&ApiClient, &SessionId) -> Result<(), String> + Send + 'static,
    ) -> Result<(), String> {
        let asked = tokio::task::spawn_blocking(move || {
            let api = ApiClient::with_timeout(self.link, RESPONSE_TIMEOUT);
            ask(&api, &self.session)
        });
        asked
            .await
            .unwrap_or_else(|_| Err("it was stopped".to_owned()))
    }
}
