//! Two of three people must approve; all three see the same events in the same order.
//!
//!     read -rs PVP_LINK && export PVP_LINK   # paste it: http://127.0.0.1:3000/?token=…
//!     cargo run --example multi_participant

#![allow(clippy::print_stdout, reason = "an example prints what it does")]

use anyhow::Context;
use pvp_client::{ApiClient, ConnectOptions, Connection, ConnectionEvents, Link, View};
use pvp_protocol::api::{CreateSessionRequest, InviteRequest};
use pvp_protocol::{MessageId, ParticipantKind, QuorumRule, Role, SessionConfig, SessionId};

/// A participant's connection, and what they see of the session.
struct ConnectedParticipant {
    connection: Connection,
    events: ConnectionEvents,
    view: View,
}

impl ConnectedParticipant {
    async fn join(link: Link) -> anyhow::Result<Self> {
        let (connection, events) = Connection::open(link, ConnectOptions::default()).await?;
        let view = View::default();
        Ok(Self {
            connection,
            events,
            view,
        })
    }

    /// Folds messages until the view satisfies the condition.
    async fn fold_until(&mut self, done: impl Fn(&View) -> bool) -> anyhow::Result<()> {
        while !done(&self.view) {
            let envelope = self
                .events
                .next_message()
                .await
                .context("the connection ended")?;
            self.view.fold(&envelope);
        }
        Ok(())
    }

    /// Approves the action that this person sees at the proposal's gate.
    async fn approve(&mut self, proposal: &MessageId) -> anyhow::Result<()> {
        self.fold_until(|view| view.card(proposal).is_some())
            .await?;
        let card = self.view.card(proposal).context("it waits")?;
        let (gate, digest) = (card.gate.clone(), card.digest);
        self.connection
            .approve(&gate, digest, None)
            .await?
            .ack()
            .await?;
        Ok(())
    }
}

fn invite(
    api: &ApiClient,
    session: &SessionId,
    name: &str,
    role: Role,
    kind: ParticipantKind,
) -> anyhow::Result<Link> {
    let invitation = api.invite(&InviteRequest {
        name: name.to_owned(),
        roles: [role].into(),
        kind,
        capabilities: Default::default(),
        session: Some(session.clone()),
        expires_seconds: Some(3600),
        participant: None,
    })?;
    Ok(Link::parse(&invitation.link)?)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let link = std::env::var("PVP_LINK").context("set PVP_LINK to a link with the admin role")?;
    let api = ApiClient::new(Link::parse(&link)?);
    let links = tokio::task::spawn_blocking(move || -> anyhow::Result<Vec<Link>> {
        let config = SessionConfig {
            default_gate_quorum: QuorumRule::Any { count: 2 },
            ..SessionConfig::default()
        };
        // People are invited before the session exists: those whom one approver invites while it
        // goes on do not count as further people.
        let session = SessionId::parse(pvp_clock::fresh_id().as_str())?;
        let people = ["Ann", "Bob", "Cid"].into_iter();
        let mut links = people
            .map(|name| invite(&api, &session, name, Role::Approver, ParticipantKind::Human))
            .collect::<anyhow::Result<Vec<_>>>()?;
        links.push(invite(
            &api,
            &session,
            "bot",
            Role::Driver,
            ParticipantKind::Agent,
        )?);
        api.create_session(&CreateSessionRequest {
            session: Some(session),
            config,
            ..CreateSessionRequest::default()
        })?;
        Ok(links)
    })
    .await??;

    let mut members = Vec::new();
    for link in links {
        members.push(ConnectedParticipant::join(link).await?);
    }
    let agent = members.pop().context("the agent joined last")?;
    let [ann, bob, cid] = members.as_mut_slice() else {
        anyhow::bail!("three people joined");
    };

    let proposal = agent
        .connection
        .propose_shell("rm -rf build", "start from a clean tree")
        .await?
        .id;
    ann.approve(&proposal).await?;
    cid.fold_until(|view| view.card(&proposal).is_some_and(|card| card.received == 1))
        .await?;
    let card = cid.view.card(&proposal).context("it waits")?;
    println!(
        "Cid sees  {}: {} of {}",
        card.requested.shown, card.received, card.required
    );
    bob.approve(&proposal).await?;

    for (name, member) in [("Ann", ann), ("Bob", bob), ("Cid", cid)] {
        member
            .fold_until(|view| view.running().any(|run| run.id == proposal))
            .await?;
        let resolved = member.view.resolved.back().context("the card is closed")?;
        let approvers: Vec<_> = resolved
            .resolution
            .approvals
            .iter()
            .map(|one| one.participant.as_str())
            .collect();
        println!("{name} sees  it runs, approved by {}", approvers.len());
    }
    Ok(())
}
