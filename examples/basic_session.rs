//! A session from beginning to end: create it, join it, propose a command, approve it, report its
//! result.
//!
//! Start a server, then pass a link with the admin and driver roles, such as the one that `pvp up`
//! prints:
//!
//!     read -rs PVP_LINK && export PVP_LINK   # paste it: http://127.0.0.1:3000/?token=…
//!     cargo run --example basic_session

#![allow(clippy::print_stdout, reason = "an example prints what it does")]

use anyhow::Context;
use pvp_client::{ApiClient, ConnectOptions, Connection, ConnectionEvents, Link, View};
use pvp_protocol::api::{CreateSessionRequest, InviteRequest};
use pvp_protocol::payload::{ToolResult, ToolResultBody};
use pvp_protocol::{ExtraFields, MessageId, ParticipantKind, Role, ServerMessage};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let link = std::env::var("PVP_LINK").context("set PVP_LINK to a link with the admin role")?;
    let link = Link::parse(&link)?;

    // Over HTTP: create a session and invite an agent to it.
    let (session, agent_link) = tokio::task::spawn_blocking({
        let api = ApiClient::new(link.clone());
        move || -> anyhow::Result<_> {
            let session = api
                .create_session(&CreateSessionRequest::default())?
                .session;
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

    // Both join. The messages that the person receives are folded into a view.
    let options = ConnectOptions {
        session: Some(session),
        ..ConnectOptions::default()
    };
    let (person, mut person_events) = Connection::open(link, options).await?;
    let (agent, mut agent_events) = Connection::open(agent_link, ConnectOptions::default()).await?;
    let mut view = View::default();

    // The agent proposes a command. The server assesses it, and it waits at a gate.
    let proposal = agent
        .propose_shell("echo hello > greeting.txt", "leave a greeting")
        .await?
        .id;
    fold_until(&mut view, &mut person_events, |view| {
        view.card(&proposal).is_some()
    })
    .await?;
    let card = view.card(&proposal).context("it waits")?;
    println!("waits     {} ({})", card.requested.shown, card.quorum_words);

    // The person approves exactly the action shown, and the agent is granted exactly that, once.
    let (gate, digest) = (card.gate.clone(), card.digest);
    person.approve(&gate, digest, None).await?.ack().await?;
    wait_for_grant(&mut agent_events, &proposal).await?;
    println!("granted   approved by {}", person.participant());

    // A real executor would run the command here; this example only reports a result.
    let result = ToolResult {
        tool_proposal: proposal.clone(),
        success: true,
        result: Some(
            ToolResultBody {
                exit_code: Some(0),
                stdout: String::new(),
                stderr: String::new(),
                extra: ExtraFields::new(),
            }
            .into(),
        ),
        error: None,
        duration_ms: 1,
        outcome: None,
        more_output: false,
        attested: false,
        extra: ExtraFields::new(),
    };
    agent.send_and_wait(result).await?;
    fold_until(&mut view, &mut person_events, |view| {
        !view.history.is_empty()
    })
    .await?;
    println!("finished  exit 0, {} messages in the log", view.head);
    Ok(())
}

/// Folds messages until the view satisfies the condition.
async fn fold_until(
    view: &mut View,
    events: &mut ConnectionEvents,
    done: impl Fn(&View) -> bool,
) -> anyhow::Result<()> {
    while !done(view) {
        let envelope = events
            .next_message()
            .await
            .context("the connection ended")?;
        view.fold(&envelope);
    }
    Ok(())
}

/// Waits until the agent is granted its proposal.
async fn wait_for_grant(events: &mut ConnectionEvents, proposal: &MessageId) -> anyhow::Result<()> {
    loop {
        let envelope = events
            .next_message()
            .await
            .context("the connection ended")?;
        if let ServerMessage::ToolExecute(execute) = &envelope.message
            && execute.tool_proposal == *proposal
        {
            return Ok(());
        }
    }
}
