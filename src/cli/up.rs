//! `pvp up`: a server, a session in it, and the links to give out.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_client::{Api, ApiError, Link};
use pvp_protocol::api::{CreateSessionRequest, Invitation, InviteRequest};
use pvp_protocol::{ErrorCode, ParticipantKind, Role, SessionConfig, SessionId};
use pvp_server::Server;
use serde_json::json;

use super::server::ServerArguments;
use super::{links, say, server};

#[derive(Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The session to make or go on with
    #[arg(long, default_value = "main", value_parser = super::session_id)]
    session: SessionId,
    /// What people call it
    #[arg(long)]
    name: Option<String>,
}

pub(crate) fn run(arguments: UpArguments) -> anyhow::Result<ExitCode> {
    let config = server::prepare(&arguments.server)?;
    let json = arguments.server.json;
    super::runtime()?.block_on(server::serve(config, move |server: &Server| {
        open(
            server,
            &arguments.session,
            arguments.name.clone(),
            SessionConfig::default(),
            json,
        )
    }))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the session once the server answers, and says how to come in.
fn open(
    server: &Server,
    session: &SessionId,
    name: Option<String>,
    config: SessionConfig,
    json: bool,
) -> anyhow::Result<()> {
    let here = links::here()?;
    let me = own_link(server, &here)?;
    let guests = Guests::invite(server, session)?;
    let session = session.clone();
    let address = server.address();
    // The server answers only once this function has returned.
    tokio::task::spawn_blocking(move || {
        let me = me.into_session(session.clone());
        let told = make(&Api::new(me.clone()), &session, name, config)
            .and_then(|fresh| links::remember(&here, &me).map(|()| fresh))
            .and_then(|fresh| announce(address, &me, &session, &guests, fresh, json));
        if let Err(error) = told {
            super::complain(&error);
        }
    });
    Ok(())
}

/// The link that is remembered for this directory, if this server still takes it; else a new one.
pub(super) fn own_link(server: &Server, path: &Path) -> anyhow::Result<Link> {
    let remembered = std::fs::read_to_string(path).ok();
    let remembered = remembered.and_then(|text| Link::parse(&text).ok());
    if let Some(link) = remembered
        && link.base() == server.url()
        && link
            .token()
            .is_some_and(|token| server.accepts_token(token))
    {
        return Ok(link);
    }
    let name = std::env::var("USER")
        .ok()
        .filter(|name| !name.trim().is_empty());
    let invitation = server.invite(InviteRequest {
        name: name.unwrap_or_else(|| "admin".to_owned()),
        roles: [Role::Admin, Role::Driver].into(),
        kind: ParticipantKind::Human,
        capabilities: Default::default(),
        session: None,
        expires_seconds: None,
        participant: None,
    })?;
    let link = Link::parse(&invitation.link).context("the server's own link")?;
    links::remember(path, &link)?;
    Ok(link)
}

/// Invitations to give away.
struct Guests {
    approver: Invitation,
    agent: Invitation,
}

/// How long the invitations that are printed hold, in seconds: a day.
const INVITED_FOR: u64 = 86_400;

impl Guests {
    fn invite(server: &Server, session: &SessionId) -> anyhow::Result<Self> {
        let invite = |name: &str, role: Role, kind: ParticipantKind| {
            server.invite(InviteRequest {
                name: name.to_owned(),
                roles: [role].into(),
                kind,
                capabilities: Default::default(),
                session: Some(session.clone()),
                expires_seconds: Some(INVITED_FOR),
                participant: None,
            })
        };
        Ok(Self {
            approver: invite("approver", Role::Approver, ParticipantKind::Human)?,
            agent: invite("agent", Role::Driver, ParticipantKind::Agent)?,
        })
    }
}

/// Makes the session; false if it was there already.
pub(super) fn make(
    api: &Api,
    session: &SessionId,
    name: Option<String>,
    config: SessionConfig,
) -> anyhow::Result<bool> {
    let new = CreateSessionRequest {
        session: Some(session.clone()),
        name,
        config,
    };
    match api.create(&new) {
        Ok(_) => Ok(true),
        Err(ApiError::Refused(report)) if report.code == ErrorCode::InvalidState => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn announce(
    address: std::net::SocketAddr,
    me: &Link,
    session: &SessionId,
    guests: &Guests,
    fresh: bool,
    json: bool,
) -> anyhow::Result<()> {
    let mine = me.reveal();
    if json {
        return say(json!({
            "listen": address.to_string(), "session": session, "fresh": fresh, "link": mine,
            "approver_link": guests.approver.link, "agent_link": guests.agent.link,
        }));
    }
    let word = if fresh {
        "a new session"
    } else {
        "the session"
    };
    say(format!(
        "PVP is up on {} with {word} `{session}`",
        me.base()
    ))?;
    say("")?;
    say(format!("  you       {mine}"))?;
    say(format!("  approver  {}", guests.approver.link))?;
    say(format!("  agent     {}", guests.agent.link))?;
    say("")?;
    say("Start an agent with its link: pvp agent LINK --model MODEL, or --script FILE")?;
    say("Your link is remembered for this directory; the other two hold for a day.")?;
    say(
        "In another shell here: pvp gates, pvp tail --follow, pvp invite --name Ann --role approver",
    )
}
