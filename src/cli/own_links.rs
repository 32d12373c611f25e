//! The links that are remembered for whoever starts a server and for their agent. They are used again
//! at the next start, as long as they are valid.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::Context;
use pvp_client::Link;
use pvp_protocol::api::{Invitation, InviteRequest};
use pvp_protocol::{ParticipantId, ParticipantKind, Role, SessionId};
use pvp_server::Server;
use pvp_server::token::TokenClaims;

use super::links;

/// How long the link that creates a session is valid, in seconds.
const CREATING_SECONDS: u64 = 60;

/// How long an agent's link is valid, in seconds: one day.
const AGENT_SECONDS: u64 = 86_400;

/// How long an agent's link must still be valid to be used again, in seconds.
const AGENT_REST_SECONDS: u64 = 3600;

/// Which sessions the remembered link of a person opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnLinkScope {
    /// Every session, also those that are made later.
    EverySession,
    /// The session that it names.
    ThisSession,
}

/// The links of the person who starts a server.
pub(super) struct OwnLinks {
    /// Saved for this directory, as a driver's and approver's. It is not an administrator's, because
    /// it stays on a machine on which an agent works.
    pub(super) remembered: Link,
    /// Creates the session if it is not there: the same, or one that is saved nowhere and valid for
    /// a minute.
    pub(super) creating: Link,
}

impl OwnLinks {
    /// Uses the link that is saved for this directory if it is one to this server, and otherwise
    /// makes and saves one. It opens every session, and names this one.
    pub(super) async fn find_or_invite(
        server: &Server,
        session: &SessionId,
    ) -> anyhow::Result<Self> {
        Self::with_scope(server, session, OwnLinkScope::EverySession).await
    }

    /// The same, for one session only if the scope says so.
    pub(super) async fn with_scope(
        server: &Server,
        session: &SessionId,
        scope: OwnLinkScope,
    ) -> anyhow::Result<Self> {
        let path = links::directory_link_path(ParticipantKind::Human)?;
        let saved = SavedLink::read(server, &path).await;
        let bound = (scope == OwnLinkScope::ThisSession).then(|| session.clone());
        let usable = saved.as_ref().filter(|saved| saved.is_own(bound.as_ref()));
        let known = saved.as_ref().and_then(SavedLink::person);
        let (link, participant) = match usable {
            Some(saved) => (saved.link.clone(), saved.claims.participant.clone()),
            None => {
                let roles = [Role::Driver, Role::Approver].into();
                let invitation = invite_self(server, roles, bound.clone(), None, known).await?;
                (parse_own(&invitation)?, invitation.participant)
            }
        };
        let remembered = local(link, server, session)?;
        links::save_link(&path, &remembered)?;
        let creating = match scope {
            OwnLinkScope::EverySession => remembered.clone(),
            OwnLinkScope::ThisSession if server.has_session(session).await? => remembered.clone(),
            OwnLinkScope::ThisSession => {
                let (roles, expires) = ([Role::Driver].into(), Some(CREATING_SECONDS));
                let person = Some(participant);
                let creating = invite_self(server, roles, None, expires, person).await?;
                local(parse_own(&creating)?, server, session)?
            }
        };
        Ok(Self {
            remembered,
            creating,
        })
    }
}

/// The agent's link to this session: the saved one if it is valid for a while, or else a new one,
/// which is saved. It opens no other session: an agent could make one with laxer rules.
pub(super) async fn find_or_invite_agent(
    server: &Server,
    session: &SessionId,
) -> anyhow::Result<Link> {
    let path = links::directory_link_path(ParticipantKind::Agent)?;
    let saved = SavedLink::read(server, &path).await;
    let usable = saved.as_ref().filter(|saved| saved.is_agents(session));
    let link = match usable {
        Some(saved) => saved.link.clone(),
        None => {
            let known = saved.as_ref().and_then(SavedLink::agent);
            parse_own(&invite_agent(server, session, known).await?)?
        }
    };
    let link = local(link, server, session)?;
    links::save_link(&path, &link)?;
    Ok(link)
}

/// A link in a file, with what its token says on this server.
struct SavedLink {
    link: Link,
    claims: TokenClaims,
    /// Seconds until the token expires; `None` means never.
    rest_seconds: Option<u64>,
}

impl SavedLink {
    /// The link in a file, if its token is valid on this server.
    async fn read(server: &Server, path: &Path) -> Option<Self> {
        let link = super::link_argument::from_file(path).ok()?;
        let (claims, expires_at) = server.token_claims(link.token()?).await?;
        let rest = expires_at.map(|at| at.millis_since(pvp_clock::now()) / 1000);
        Some(Self {
            link,
            claims,
            rest_seconds: rest,
        })
    }

    /// Whether it is the link of whoever starts the server, with this scope.
    fn is_own(&self, bound: Option<&SessionId>) -> bool {
        let claims = &self.claims;
        claims.kind == ParticipantKind::Human
            && claims.session.as_ref() == bound
            && claims.roles == BTreeSet::from([Role::Driver, Role::Approver])
            && self.rest_seconds.is_none()
    }

    fn is_agents(&self, session: &SessionId) -> bool {
        let claims = &self.claims;
        claims.kind == ParticipantKind::Agent
            && claims.session.as_ref() == Some(session)
            && claims.roles == BTreeSet::from([Role::Driver])
            && self
                .rest_seconds
                .is_none_or(|rest| rest > AGENT_REST_SECONDS)
    }

    /// Who holds it, to make them another token and not another person. An administrator stays one
    /// apart, so that a remembered token never shares their name in the record.
    fn person(&self) -> Option<ParticipantId> {
        let is_person =
            self.claims.kind == ParticipantKind::Human && !self.claims.roles.contains(&Role::Admin);
        is_person.then(|| self.claims.participant.clone())
    }

    fn agent(&self) -> Option<ParticipantId> {
        let is_agent = self.claims.kind == ParticipantKind::Agent;
        is_agent.then(|| self.claims.participant.clone())
    }
}

/// The link by the address for this machine, which stays when the network changes.
fn local(link: Link, server: &Server, session: &SessionId) -> anyhow::Result<Link> {
    let link = link.with_base_url(&server.local_address().link(""));
    let link = link.context("the server's own address")?;
    Ok(link.with_session(session.clone()))
}

fn parse_own(invitation: &Invitation) -> anyhow::Result<Link> {
    Link::parse(&invitation.link).context("the server's own link")
}

async fn invite_self(
    server: &Server,
    roles: BTreeSet<Role>,
    session: Option<SessionId>,
    expires_seconds: Option<u64>,
    participant: Option<ParticipantId>,
) -> anyhow::Result<Invitation> {
    let name = std::env::var("USER").ok();
    let name = name.filter(|name| !name.trim().is_empty());
    let invite = InviteRequest {
        name: name.unwrap_or_else(|| "you".to_owned()),
        roles,
        kind: ParticipantKind::Human,
        capabilities: Default::default(),
        session,
        expires_seconds,
        participant,
    };
    server.invite(invite).await
}

async fn invite_agent(
    server: &Server,
    session: &SessionId,
    participant: Option<ParticipantId>,
) -> anyhow::Result<Invitation> {
    let invite = InviteRequest {
        name: "agent".to_owned(),
        roles: [Role::Driver].into(),
        kind: ParticipantKind::Agent,
        capabilities: Default::default(),
        session: Some(session.clone()),
        expires_seconds: Some(AGENT_SECONDS),
        participant,
    };
    server.invite(invite).await
}
