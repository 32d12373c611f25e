//! `pvp up`: starts a server with a session and prints how to use it.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::{ApiClient, ApiError, Link};
use pvp_protocol::api::{CreateSessionRequest, CreatedJoinCode, JoinCodeRequest};
use pvp_protocol::{ErrorCode, Limits, Role, SessionConfig, SessionId};
use pvp_server::Server;
use serde_json::json;

use super::local_server::is_local_url;
pub(super) use super::own_links::OwnLinks;
use super::own_links::{OwnLinkScope, find_or_invite_agent};
use super::server::ServerArguments;
use super::session_settings::{SettingsArguments, read_optional};
use super::{print_json, print_line, server, share};

/// How long the token of whoever joins with a shared code is valid, in seconds: 30 days.
const SHARED_TOKEN_SECONDS: u64 = 30 * 86_400;

#[derive(Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// The id of the session to create or reopen
    #[arg(long, value_name = "ID", default_value = "main", value_parser = super::parse_session_id)]
    session: SessionId,
    /// The display name of the session
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    settings: SettingsArguments,
    /// Other settings for a new session: a TOML file, or JSON such as '{"gate_timeout_seconds": 600}'
    #[arg(long, value_name = "FILE|JSON")]
    session_config: Option<String>,
    /// Print a command to send to another person, `pvp join CODE`; listens on every interface, port
    /// 3000, unless --listen or --public-url is given
    #[arg(long, conflicts_with = "open")]
    share: bool,
    /// A role for the person who joins; may be given several times
    #[arg(
        long,
        value_name = "ROLE",
        default_value = "approver",
        requires = "share"
    )]
    share_role: Vec<Role>,
    /// Print the QR code even if standard output is not a terminal, or the link opens only on this machine
    #[arg(long, requires = "share", conflicts_with = "json")]
    qr: bool,
    /// Make your own link open only this session, not every session of the server
    #[arg(long)]
    this_session_only: bool,
}

pub(crate) fn run(arguments: UpArguments) -> anyhow::Result<ExitCode> {
    if arguments.share_role.contains(&Role::Admin) {
        bail!("a shared line never makes an admin; use `pvp invite --role admin`");
    }
    let config = match arguments.share {
        true => server::prepare_shared(&arguments.server)?,
        false => server::prepare(&arguments.server, server::QUIET_LOG)?,
    };
    let data = server::data_directory(&config)?;
    let limits = config.settings().limits;
    super::runtime()?.block_on(server::serve(config, async move |server: &Server| {
        // First, so that nothing is made or printed if the session cannot have these settings.
        let session_config = session_config(server, &arguments, &limits).await?;
        open_session(server, arguments, session_config, data).await
    }))?;
    Ok(ExitCode::SUCCESS)
}

/// Creates the session once the server answers, and prints how to join.
async fn open_session(
    server: &Server,
    arguments: UpArguments,
    session_config: SessionConfig,
    data: PathBuf,
) -> anyhow::Result<()> {
    let session = arguments.session.clone();
    let admin_link = server.first_admin_link().await?;
    let scope = match arguments.this_session_only {
        true => OwnLinkScope::ThisSession,
        false => OwnLinkScope::EverySession,
    };
    let own = OwnLinks::with_scope(server, &session, scope).await?;
    let agent_link = find_or_invite_agent(server, &session).await?;
    let shared = match arguments.share {
        true => Some(create_shared_code(server, &arguments).await?),
        false => None,
    };
    let printed = PrintedStart {
        listen: server.address(),
        url: server.url(),
        session: session.clone(),
        approvals: quorum_text(&session_config),
        own_link: own.remembered.clone(),
        agent_link,
        admin_link,
        shared,
        qr: arguments.qr,
        certificate_fingerprint: server.certificate_fingerprint(),
        data,
    };
    let (name, json) = (arguments.name, arguments.server.json);
    // In a task of its own, because the server answers only once this function has returned.
    tokio::task::spawn_blocking(move || {
        let api = ApiClient::new(own.creating);
        let result = create_session_if_missing(&api, &session, name, session_config)
            .and_then(|created| printed.print(created, json));
        if let Err(error) = result {
            super::print_error(&error);
        }
    });
    Ok(())
}

/// The configuration that the session is created with. If there is one with other settings, this is
/// an error: whoever asks for two approvals must not get a session that needs one.
async fn session_config(
    server: &Server,
    arguments: &UpArguments,
    limits: &Limits,
) -> anyhow::Result<SessionConfig> {
    let settings = read_optional(arguments.session_config.as_deref());
    let settings = settings.context("--session-config")?;
    let existing = server.session_config(&arguments.session).await?;
    let current = existing.clone().unwrap_or_default();
    let changes = arguments.settings.changes(settings, &current)?;
    let wanted = current.clone().with_changes(&changes);
    if existing.is_some() && wanted != current {
        bail!(
            "session `{id}` exists already, and has other settings; leave them out and change them \
             with `pvp session set`, or create another session with --session (it needs {quorum})",
            id = arguments.session,
            quorum = quorum_text(&current),
        );
    }
    wanted.validate(limits).map_err(anyhow::Error::msg)?;
    Ok(wanted)
}

/// How many approvals a session needs, in words.
fn quorum_text(config: &SessionConfig) -> String {
    let own = [
        ("writes", &config.quorum_by_category.write),
        (
            "destructive commands",
            &config.quorum_by_category.destructive,
        ),
    ];
    let own = own
        .into_iter()
        .filter_map(|(what, quorum)| Some(format!("{} for {what}", quorum.as_ref()?)));
    let tools = config.quorum_by_category.tools.iter();
    let tools = tools.map(|(tool, quorum)| format!("{quorum} for {tool}"));
    let default = config.default_gate_quorum.to_string();
    let texts: Vec<_> = std::iter::once(default).chain(own).chain(tools).collect();
    texts.join(", ")
}

async fn create_shared_code(
    server: &Server,
    arguments: &UpArguments,
) -> anyhow::Result<CreatedJoinCode> {
    let request = JoinCodeRequest {
        roles: arguments.share_role.iter().copied().collect(),
        session: Some(arguments.session.clone()),
        code_seconds: None,
        expires_seconds: Some(SHARED_TOKEN_SECONDS),
    };
    server.create_join_code(request).await
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
        // Whoever may not create it may well find it there.
        Err(ApiError::Refused(report))
            if report.code == ErrorCode::Unauthorized && api.session(session).is_ok() =>
        {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

/// What `pvp up` prints.
struct PrintedStart {
    /// Where the server listens.
    listen: std::net::SocketAddr,
    /// The address that others open.
    url: String,
    /// The session that the links name.
    session: SessionId,
    /// How many approvals commands need, in words.
    approvals: String,
    /// The link of the person who started the server.
    own_link: Link,
    /// The link of their agent.
    agent_link: Link,
    /// An administrator's link; `None` if one was printed before.
    admin_link: Option<String>,
    /// The code to send to another person.
    shared: Option<CreatedJoinCode>,
    /// Whether a QR code is printed even if this is no terminal.
    qr: bool,
    /// The fingerprint of a certificate that the server has signed itself.
    certificate_fingerprint: Option<String>,
    /// The server's data directory.
    data: PathBuf,
}

impl PrintedStart {
    fn print(&self, created: bool, json: bool) -> anyhow::Result<()> {
        match json {
            true => print_json(json!({
                "listen": self.listen.to_string(),
                "url": self.url,
                "session": self.session,
                "fresh": created,
                "link": self.own_link.reveal(),
                "agent_link": self.agent_link.reveal(),
                "admin_link": self.admin_link,
                "share": self.shared.as_ref().map(|shared| json!({
                    "command": share::join_command(shared),
                    "link": shared.link,
                    "expires": shared.expires,
                })),
                "certificate_fingerprint": self.certificate_fingerprint,
                "data": self.data.display().to_string(),
            })),
            false => self.print_text(created),
        }
    }

    fn print_text(&self, created: bool) -> anyhow::Result<()> {
        let session_text = if created {
            "a new session"
        } else {
            "the session"
        };
        print_line(format!(
            "PVP is up on {} with {session_text} `{}`; commands that are not reads need {}",
            self.url, self.session, self.approvals
        ))?;
        print_line("")?;
        if let Some(shared) = &self.shared {
            share::print_join_code(shared, self.qr)?;
            self.print_reach()?;
            self.print_browser_advice()?;
        }
        print_line(format!("  you    {}", self.own_link.reveal()))?;
        print_line(format!("  agent  {}", self.agent_link.reveal()))?;
        if let Some(link) = &self.admin_link {
            print_line(format!("  admin  {link}"))?;
        }
        print_line("")?;
        if self.admin_link.is_some() {
            print_line(
                "The admin link is shown once and saved nowhere; keep it off this machine.",
            )?;
        }
        print_line("Your link and the agent's are saved for this directory.")?;
        print_line("Start an agent here: pvp agent --model MODEL, or --script FILE")?;
        print_line("In another shell here: pvp tui, pvp gates, pvp tail --follow")?;
        print_line(
            "In a browser: open the link that `pvp open` prints, or `pvp open --admin` to invite people there",
        )?;
        print_line("Invite others: pvp invite --name Ann --role approver")
    }

    /// Says what somebody with a phone or a browser has to know.
    fn print_browser_advice(&self) -> anyhow::Result<()> {
        if let Some(fingerprint) = &self.certificate_fingerprint {
            print_line(format!(
                "The browser warns of a certificate that it does not know: go on only if it shows this one.\n\n    {}\n",
                share::certificate_text(fingerprint)
            ))?;
        }
        if is_local_url(&self.url) {
            return Ok(());
        }
        match &self.certificate_fingerprint {
            Some(_) => print_line(
                "A phone opens the link in the same network. Notifications on it need a certificate that it\n\
                 trusts: --acme or --tls-cert.\n",
            ),
            None if self.url.starts_with("https://") => Ok(()),
            None => print_line(
                "A phone opens the link in the same network. Nothing is encrypted: add --tls-self-signed for\n\
                 that, and --acme or --tls-cert for notifications on a phone too.\n",
            ),
        }
    }

    /// Says how others come to a server that only this machine reaches.
    fn print_reach(&self) -> anyhow::Result<()> {
        if !self.listen.ip().is_loopback() || !is_local_url(&self.url) {
            return Ok(());
        }
        let port = self.listen.port();
        print_line(format!(
            "This server accepts connections from this machine only, so they first run `ssh -L {port}:{} HOST`\nwith this machine as HOST.\n",
            self.listen
        ))
    }
}
