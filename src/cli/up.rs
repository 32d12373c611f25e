//! `pvp up`: starts a server with a session and prints the links to give out.

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_client::{ApiClient, ApiError, Link};
use pvp_protocol::api::{CreateSessionRequest, Invitation, InviteRequest};
use pvp_protocol::{ErrorCode, ParticipantKind, Role, SessionConfig, SessionId};
use pvp_server::Server;
use serde_json::json;

use super::server::ServerArguments;
use super::{links, print_line, server};

#[derive(Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The session to make or go on with
    #[arg(long, default_value = "main", value_parser = super::parse_session_id)]
    session: SessionId,
    /// What people call it
    #[arg(long)]
    name: Option<String>,
}

pub(crate) fn run(arguments: UpArguments) -> anyhow::Result<ExitCode> {
    let config = server::prepare(&arguments.server)?;
    let json = arguments.server.json;
    super::runtime()?.block_on(server::serve(config, move |server: &Server| {
        open_session(
            server,
            &arguments.session,
            arguments.name.clone(),
            SessionConfig::default(),
            json,
        )
    }))?;
    Ok(ExitCode::SUCCESS)
}

/// Creates the session once the server answers, and prints how to join.
fn open_session(
    server: &Server,
    session: &SessionId,
    name: Option<String>,
    config: SessionConfig,
    json: bool,
) -> anyhow::Result<()> {
    let link_path = links::directory_link_path()?;
    let own_link = own_link(server, &link_path)?;
    let guests = GuestInvitations::invite(server, session)?;
    let session = session.clone();
    let address = server.address();
    // In a task of its own, because the server answers only once this function has returned.
    tokio::task::spawn_blocking(move || {
        let own_link = own_link.with_session(session.clone());
        let result =
            create_session_if_missing(&ApiClient::new(own_link.clone()), &session, name, config)
                .and_then(|created| links::save_link(&link_path, &own_link).map(|()| created))
                .and_then(|created| {
                    print_links(address, &own_link, &session, &guests, created, json)
                });
        if let Err(error) = result {
            super::print_error(&error);
        }
    });
    Ok(())
}

/// The link saved for this directory if this server still accepts it, otherwise a new one.
pub(super) fn own_link(server: &Server, path: &Path) -> anyhow::Result<Link> {
    let saved = std::fs::read_to_string(path).ok();
    let saved = saved.and_then(|text| Link::parse(&text).ok());
    if let Some(link) = saved
        && link.base_url() == server.url()
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
    links::save_link(path, &link)?;
    Ok(link)
}

/// The invitations for others that `pvp up` prints.
struct GuestInvitations {
    approver: Invitation,
    agent: Invitation,
}

/// How long the printed invitations are valid, in seconds: one day.
const INVITATION_SECONDS: u64 = 86_400;

impl GuestInvitations {
    fn invite(server: &Server, session: &SessionId) -> anyhow::Result<Self> {
        let invite = |name: &str, role: Role, kind: ParticipantKind| {
            server.invite(InviteRequest {
                name: name.to_owned(),
                roles: [role].into(),
                kind,
                capabilities: Default::default(),
                session: Some(session.clone()),
                expires_seconds: Some(INVITATION_SECONDS),
                participant: None,
            })
        };
        Ok(Self {
            approver: invite("approver", Role::Approver, ParticipantKind::Human)?,
            agent: invite("agent", Role::Driver, ParticipantKind::Agent)?,
        })
    }
}

/// Creates the session; false if it exists already.
pub(super) fn create_session_if_missing(
    api: &ApiClient,
    session: &SessionId,
    name: Option<String>,
    config: SessionConfig,
) -> anyhow::Result<bool> {
    let new = CreateSessionRequest {
        session: Some(session.clone()),
        name,
        config,
    };
    match api.create_session(&new) {
        Ok(_) => Ok(true),
        Err(ApiError::Refused(report)) if report.code == ErrorCode::InvalidState => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn print_links(
    address: std::net::SocketAddr,
    own_link: &Link,
    session: &SessionId,
    guests: &GuestInvitations,
    created: bool,
    json: bool,
) -> anyhow::Result<()> {
    let mine = own_link.reveal();
    if json {
        return print_line(json!({
            "listen": address.to_string(), "session": session, "fresh": created, "link": mine,
            "approver_link": guests.approver.link, "agent_link": guests.agent.link,
        }));
    }
    let session_text = if created {
        "a new session"
    } else {
        "the session"
    };
    print_line(format!(
        "PVP is up on {} with {session_text} `{session}`",
        own_link.base_url()
    ))?;
    print_line("")?;
    print_line(format!("  you       {mine}"))?;
    print_line(format!("  approver  {}", guests.approver.link))?;
    print_line(format!("  agent     {}", guests.agent.link))?;
    print_line("")?;
    print_line("Start an agent with its link: pvp agent LINK --model MODEL, or --script FILE")?;
    print_line("Your link is remembered for this directory; the other two hold for a day.")?;
    print_line(
        "In another shell here: pvp gates, pvp tail --follow, pvp invite --name Ann --role approver",
    )
}
