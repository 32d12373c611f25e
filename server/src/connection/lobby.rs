//! The lobby: a connection that has not joined. It may create a session, and it must join one soon.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use pvp_protocol::payload::{SessionCreate, SessionJoin};
use pvp_protocol::{
    Capability, ClientMessage, Heading, MessageId, ParticipantId, Refusal, Role, Sender, SessionId,
    VERSION, parse_client_message,
};
use pvp_session::Identity;
use tokio::time::{Instant, timeout_at};

use super::{Ended, Farewell, code, poll_message, push};
use crate::envelope;
use crate::house::{House, Place};
use crate::outbox::{Reply, Verdict};
use crate::socket::{Incoming, Socket, Stream};
use crate::task::Joined;
use crate::token::{self, Login};

/// Messages that a stranger may send before joining.
const MOST_MESSAGES: usize = 32;

/// A place in a session.
pub(super) struct Seat {
    pub(super) session: SessionId,
    pub(super) joined: Box<Joined>,
    pub(super) join: SessionJoin,
    pub(super) join_id: MessageId,
    pub(super) login: Option<Login>,
    pub(super) place: Place,
}

/// A stranger, and what is known of them.
struct Stranger<'a> {
    house: &'a Arc<House>,
    login: Option<Login>,
    place: Option<Place>,
    /// Without login, the first message says who this is.
    claimed: Option<ParticipantId>,
}

/// Waits until the connection has joined a session.
pub(super) async fn wait(
    socket: &mut Socket<Stream>,
    house: &Arc<House>,
    login: Option<Login>,
    place: Place,
) -> Result<Box<Seat>, Ended> {
    let seconds = house.config.join_seconds;
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut stranger = Stranger {
        house,
        login,
        place: Some(place),
        claimed: None,
    };
    let mut stopping = house.stopping();
    for _ in 0..MOST_MESSAGES {
        let message = tokio::select! {
            message = timeout_at(deadline, poll_fn(|cx| poll_message(socket, cx))) => message,
            _ = stopping.wait_for(|stopping| *stopping) => {
                return Err(Ended::ByUs(Farewell::new(code::GOING_AWAY, "the server is shutting down")));
            }
        };
        let text = match message {
            Err(_) => {
                let reason = format!("not joined within {seconds} seconds");
                return Err(Ended::ByUs(Farewell::new(code::POLICY, &reason)));
            }
            Ok(Ok(Incoming::Text(text))) => text,
            Ok(Ok(Incoming::Binary(_))) => {
                let refusal = Refusal::Malformed("send text frames, one message each".to_owned());
                push(socket, &envelope::error(&nowhere(), &refusal, None));
                continue;
            }
            Ok(Ok(Incoming::Closed { .. }) | Err(_)) => return Err(Ended::ByThem),
        };
        let (heading, message) = match parse_client_message(&text, &house.settings.limits) {
            Ok(read) => read,
            Err(error) => {
                push(
                    socket,
                    &envelope::error(&nowhere(), &error.refusal, error.related_to),
                );
                continue;
            }
        };
        let (session, id) = (heading.session.clone(), heading.id.clone());
        match Box::pin(stranger.hear(socket, heading, message)).await {
            Ok(Some(seat)) => return Ok(seat),
            Ok(None) => {}
            Err(refusal) => {
                tracing::info!(%session, %refusal, "refused a stranger");
                push(socket, &envelope::error(&session, &refusal, Some(id)));
            }
        }
    }
    Err(Ended::ByUs(Farewell::new(
        code::POLICY,
        "too many messages before joining",
    )))
}

/// The session named in an answer to something that named none.
fn nowhere() -> SessionId {
    SessionId::parse("unknown").expect("a plain word")
}

impl Stranger<'_> {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "a stranger may say three things and nothing else"
    )]
    async fn hear(
        &mut self,
        socket: &mut Socket<Stream>,
        heading: Heading,
        message: ClientMessage,
    ) -> Result<Option<Box<Seat>>, Refusal> {
        match message {
            ClientMessage::HeartbeatPing(_) => {
                self.speaker(&heading.sender)?;
                push(socket, &envelope::pong(&heading.session, heading.id));
                Ok(None)
            }
            ClientMessage::SessionCreate(create) => {
                self.create(socket, heading, create).await.map(|()| None)
            }
            ClientMessage::SessionJoin(join) => self.join(heading, join).await.map(Some),
            _ => Err(Refusal::NotJoined),
        }
    }

    /// The participant this connection speaks for, if the sender says the same.
    fn speaker(&mut self, sender: &Sender) -> Result<ParticipantId, Refusal> {
        let Sender::Participant(claimed) = sender else {
            return Err(Refusal::Unauthorized(
                "nobody but the server is `system`".to_owned(),
            ));
        };
        let known = match &self.login {
            Some(login) => &login.bearer.participant,
            None => self.claimed.get_or_insert_with(|| claimed.clone()),
        };
        if claimed == known {
            return Ok(claimed.clone());
        }
        Err(Refusal::IdentityMismatch {
            field: "sender",
            claimed: claimed.to_string(),
            actual: known.clone(),
        })
    }

    async fn create(
        &mut self,
        socket: &mut Socket<Stream>,
        heading: Heading,
        create: SessionCreate,
    ) -> Result<(), Refusal> {
        match &self.login {
            Some(login) if !login.bearer.may_create() => {
                let problem = "creating a session takes a token with driver or admin that is not bound to one";
                return Err(Refusal::Unauthorized(problem.to_owned()));
            }
            None if !self.house.config.open => return Err(log_in()),
            Some(_) | None => {}
        }
        let by = self.speaker(&heading.sender)?;
        let (session, id) = (heading.session, heading.id);
        let answer = self.house.create(&session, by, id.clone(), create).await?;
        let verdict = Verdict::from(answer);
        push(socket, &envelope::reply(&session, Reply { id, verdict }));
        Ok(())
    }

    async fn join(
        &mut self,
        heading: Heading,
        mut join: SessionJoin,
    ) -> Result<Box<Seat>, Refusal> {
        if let Some(token) = join.token.take() {
            self.login = Some(check(self.house, token).await?);
        }
        if !join.supported_versions.contains(&u32::from(VERSION)) {
            let problem = "`supported_versions` must include 1".to_owned();
            return Err(Refusal::Malformed(problem));
        }
        let session = heading.session;
        let identity = match &self.login {
            Some(login) if !login.bearer.opens(&session) => {
                let problem = "this token is for another session".to_owned();
                return Err(Refusal::Unauthorized(problem));
            }
            Some(login) => login.bearer.identity(),
            None if self.house.config.open => anyone(&join),
            None => return Err(log_in()),
        };
        let speaker = self.speaker(&heading.sender)?;
        if join.participant.id != speaker {
            let claimed = join.participant.id.to_string();
            return Err(Refusal::IdentityMismatch {
                field: "participant.id",
                claimed,
                actual: speaker,
            });
        }
        let mut place = self.place.take().ok_or(Refusal::NotJoined)?;
        if let Some(login) = &self.login
            && let Err(refusal) = self.house.seat_token(&mut place, &login.token_id)
        {
            self.place = Some(place);
            return Err(refusal);
        }
        let (announce, join_id) = (join.participant.clone(), heading.id);
        match self
            .house
            .join(&session, identity, announce, join_id.clone())
            .await
        {
            Ok(joined) => {
                let login = self.login.take();
                Ok(Box::new(Seat {
                    session,
                    joined,
                    join,
                    join_id,
                    login,
                    place,
                }))
            }
            Err(refusal) => {
                self.house.unseat_token(&mut place);
                self.place = Some(place);
                Err(refusal)
            }
        }
    }
}

/// Without login, a connection is whoever it says, and may be anything but the server.
pub(crate) fn anyone(join: &SessionJoin) -> Identity {
    let claimed: BTreeSet<_> = join
        .participant
        .capabilities
        .iter()
        .flatten()
        .copied()
        .collect();
    Identity {
        participant: join.participant.id.clone(),
        name: None,
        kind: join.participant.kind,
        roles: Role::ALL.into(),
        capabilities: BTreeSet::from(Capability::ALL)
            .intersection(&claimed)
            .copied()
            .collect(),
    }
}

fn log_in() -> Refusal {
    let problem =
        "log in: bring a token as `Authorization: Bearer`, `?token=` or in `session.join`";
    Refusal::Unauthorized(problem.to_owned())
}

/// Looks a token up without holding up anyone else.
pub(crate) async fn check(house: &Arc<House>, token: String) -> Result<Login, Refusal> {
    let store = house.store.clone();
    let checked = tokio::task::spawn_blocking(move || {
        token::check(store.tokens(), &token, crate::clock::now())
    })
    .await;
    match checked {
        Ok(Ok(login)) => Ok(login),
        Ok(Err(error)) => Err(Refusal::Unauthorized(error.to_string())),
        Err(panic) => Err(Refusal::ReadFailed(panic.to_string())),
    }
}
