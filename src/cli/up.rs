//! `pvp up`: starts a server with a session and prints the links to give out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_client::{ApiClient, ApiError, Link};
use pvp_protocol::api::{CreateSessionRequest, Invitation, InviteRequest};
use pvp_protocol::{ErrorCode, ParticipantId, ParticipantKind, Role, SessionConfig, SessionId};
use pvp_server::Server;
use serde_json::json;

use super::server::ServerArguments;
use super::{links, print_json, print_line, server};

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
    let data = server::data_directory(&config)?;
    let json = arguments.server.json;
    super::runtime()?.block_on(server::serve(config, async move |server: &Server| {
        open_session(
            server,
            &arguments.session,
            arguments.name.clone(),
            data,
            json,
        )
        .await
    }))?;
    Ok(ExitCode::SUCCESS)
}

/// Creates the session once the server answers, and prints how to join.
async fn open_session(
    server: &Server,
    session: &SessionId,
    name: Option<String>,
    data: PathBuf,
    json: bool,
) -> anyhow::Result<()> {
    let admin_link = server.first_admin_link().await?;
    let own = OwnLinks::find_or_invite(server, session).await?;
    let guests = GuestInvitations::invite(server, session).await?;
    links::save_link(
        &links::directory_link_path(ParticipantKind::Agent)?,
        &Link::parse(&guests.agent.link).context("the agent's link")?,
    )?;
    let printed = PrintedLinks {
        listen: server.address(),
        session: session.clone(),
        own_link: own.remembered.clone(),
        admin_link,
        guests,
        data,
    };
    let session = session.clone();
    // In a task of its own, because the server answers only once this function has returned.
    tokio::task::spawn_blocking(move || {
        let config = SessionConfig::default();
        let result =
            create_session_if_missing(&ApiClient::new(own.creating), &session, name, config)
                .and_then(|created| printed.print(created, json));
        if let Err(error) = result {
            super::print_error(&error);
        }
    });
    Ok(())
}

/// The links of the person who starts a server.
pub(super) struct OwnLinks {
    /// Saved for this directory: to one session, as its driver and approver. It is not an
    /// administrator's, because it stays on a machine on which an agent works.
    pub(super) remembered: Link,
    /// Creates the session; saved nowhere, and valid for a minute.
    pub(super) creating: Link,
}

/// How long the link that creates the session is valid, in seconds.
const CREATING_SECONDS: u64 = 60;

impl OwnLinks {
    /// Uses the link that is saved for this directory if it is one to this session on this server,
    /// and otherwise makes and saves one.
    pub(super) async fn find_or_invite(
        server: &Server,
        session: &SessionId,
    ) -> anyhow::Result<Self> {
        let path = links::directory_link_path(ParticipantKind::Human)?;
        let (remembered, participant) = match find_own_link(server, session, &path).await {
            Some(found) => found,
            None => {
                let roles = [Role::Driver, Role::Approver].into();
                let invitation = invite_self(server, roles, Some(session.clone()), None, None);
                let invitation = invitation.await?;
                let link = Link::parse(&invitation.link).context("the server's own link")?;
                links::save_link(&path, &link)?;
                (link, invitation.participant)
            }
        };
        let roles = [Role::Driver].into();
        let expires = Some(CREATING_SECONDS);
        let creating = invite_self(server, roles, None, expires, Some(participant)).await?;
        Ok(Self {
            remembered,
            creating: Link::parse(&creating.link).context("the server's own link")?,
        })
    }
}

/// The link that is saved in a file, and who holds it, if it is for this session and no
/// administrator's.
async fn find_own_link(
    server: &Server,
    session: &SessionId,
    path: &Path,
) -> Option<(Link, ParticipantId)> {
    let link = Link::parse(&std::fs::read_to_string(path).ok()?).ok()?;
    let claims = server.token_claims(link.token()?).await?;
    let fits = link.base_url() == server.url()
        && claims.session.as_ref() == Some(session)
        && claims.kind == ParticipantKind::Human
        && !claims.roles.contains(&Role::Admin);
    fits.then(|| (link.with_session(session.clone()), claims.participant))
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

/// The invitations for others that `pvp up` prints.
struct GuestInvitations {
    approver: Invitation,
    agent: Invitation,
}

/// How long the printed invitations are valid, in seconds: one day.
const INVITATION_SECONDS: u64 = 86_400;

impl GuestInvitations {
    async fn invite(server: &Server, session: &SessionId) -> anyhow::Result<Self> {
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
            approver: invite("approver", Role::Approver, ParticipantKind::Human).await?,
            agent: invite("agent", Role::Driver, ParticipantKind::Agent).await?,
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

/// What `pvp up` prints.
struct PrintedLinks {
    /// Where the server listens.
    listen: std::net::SocketAddr,
    /// The session that the links are for.
    session: SessionId,
    /// The link of the person who started the server.
    own_link: Link,
    /// An administrator's link; `None` if one was printed before.
    admin_link: Option<String>,
    /// The links to give out.
    guests: GuestInvitations,
    /// The server's data directory.
    data: PathBuf,
}

impl PrintedLinks {
    fn print(&self, created: bool, json: bool) -> anyhow::Result<()> {
        match json {
            true => print_json(json!({
                "listen": self.listen.to_string(),
                "session": self.session,
                "fresh": created,
                "link": self.own_link.reveal(),
                "approver_link": self.guests.approver.link,
                "agent_link": self.guests.agent.link,
                "admin_link": self.admin_link,
                "data": self.data.display().to_string(),
            })),
            false => self.print_text(created),
        }
    }

    fn print_text(&self, created: bool) -> anyhow::Result<()> {
        let (base, session) = (self.own_link.base_url(), &self.session);
        let session_text = if created {
            "a new session"
        } else {
            "the session"
        };
        print_line(format!(
            "PVP is up on {base} with {session_text} `{session}`"
        ))?;
        print_line("")?;
        print_line(format!("  you       {}", self.own_link.reveal()))?;
        print_line(format!("  approver  {}", self.guests.approver.link))?;
        print_line(format!("  agent     {}", self.guests.agent.link))?;
        if let Some(link) = &self.admin_link {
            print_line(format!("  admin     {link}"))?;
        }
        print_line("")?;
        if self.admin_link.is_some() {
            print_line(
                "The admin's link is shown once and saved nowhere; keep it off this machine.",
            )?;
        }
        print_line(
            "Your link and the agent's are remembered for this directory; the agent's and the",
        )?;
        print_line("approver's hold for a day. Elsewhere, run `pvp login` and paste a link.")?;
        print_line("Start an agent here: pvp agent --model MODEL, or --script FILE")?;
        print_line("In another shell here: pvp gates, pvp tail --follow, pvp tui")?;
        print_line(format!(
            "Invite others: pvp invite --data {} --url {base} --session {session} --name Ann --role approver",
            self.data.display()
        ))
    }
}
