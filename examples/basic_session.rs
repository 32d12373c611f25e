//! A session from beginning to end: made, joined, a command proposed, approved and reported on.
//!
//! Start a server, then give this a link with the admin and driver roles, such as the one of
//! `pvp up`:
//!
//!     cargo run --example basic_session -- 'http://127.0.0.1:3000/?token=…'

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::Context;
use pvp_client::{Api, Connection, Events, Link, Options, View};
use pvp_protocol::api::{CreateSessionRequest, InviteRequest};
use pvp_protocol::payload::{ToolResult, ToolResultBody};
use pvp_protocol::{ExtraFields, MessageId, ParticipantKind, Role, ServerMessage};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let link = std::env::args()
        .nth(1)
        .context("give a link with the admin role")?;
    let link = Link::parse(&link)?;

    // Over HTTP: make a session, and invite an agent to it.
    let (session, agent_link) = tokio::task::spawn_blocking({
        let api = Api::new(link.clone());
        move || -> anyhow::Result<_> {
            let session = api.create(&CreateSessionRequest::default())?.session;
            let invitation = api.invite(&InviteRequest {
                name: "bot".to_owned(),
                roles: [Role::Driver].into(),
                kind: ParticipantKind::Agent,
                capabilities: Default::default(),
                session: Some(session.clone()),
                expires_seconds: Some(3600),
                participant: None,
            })?;
            Ok((session, Link::parse(&invitation.link)?))
        }
    })
    .await??;
    println!("session   {session}");

    // Both join. What each is told folds into a view.
    let options = Options {
        session: Some(session),
        ..Options::default()
    };
    let (person, mut seen) = Connection::open(link, options).await?;
    let (agent, mut heard) = Connection::open(agent_link, Options::default()).await?;
    let mut view = View::default();

    // The agent proposes. The server judges it, and it waits.
    let proposal = agent
        .propose_shell("echo hello > greeting.txt", "leave a greeting")
        .await?
        .id;
    until(&mut view, &mut seen, |view| view.card(&proposal).is_some()).await?;
    let card = view.card(&proposal).context("it waits")?;
    println!("waits     {} ({})", card.asked.shown, card.quorum_words);

    // The person approves exactly what was shown, and the agent is granted exactly that, once.
    let (gate, digest) = (card.gate.clone(), card.digest);
    person.approve(&gate, digest, None).await?.answer().await?;
    granted(&mut heard, &proposal).await?;
    println!("granted   approved by {}", person.participant());

    // An executor would run it here; this one only reports.
    let result = ToolResult {
        tool_proposal: proposal.clone(),
        success: true,
        result: Some(ToolResultBody {
            exit_code: Some(0),
            stdout: String::new(),
            stderr: String::new(),
            extra: ExtraFields::new(),
        }),
        error: None,
        duration_ms: 1,
        outcome: None,
        extra: ExtraFields::new(),
    };
    agent.say(result).await?;
    until(&mut view, &mut seen, |view| !view.history.is_empty()).await?;
    println!("finished  exit 0, {} messages in the log", view.head);
    Ok(())
}

/// Folds what is told until the view is as wanted.
async fn until(
    view: &mut View,
    events: &mut Events,
    wanted: impl Fn(&View) -> bool,
) -> anyhow::Result<()> {
    while !wanted(view) {
        let envelope = events.next_told().await.context("the connection ended")?;
        view.fold(&envelope);
    }
    Ok(())
}

/// Waits until the agent may run its proposal.
async fn granted(events: &mut Events, proposal: &MessageId) -> anyhow::Result<()> {
    loop {
        let envelope = events.next_told().await.context("the connection ended")?;
        if let ServerMessage::ToolExecute(execute) = &envelope.message
            && execute.tool_proposal == *proposal
        {
            return Ok(());
        }
    }
}
