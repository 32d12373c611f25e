//! Finds or makes what a client is supervised with: a server, the session of this directory, an
//! identity that no other client has, and the person at the terminal.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, IsTerminal};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use pvp_bridge::client_files::{
    ClientFiles, ClientSettings, IdentityLock, PersonAtClient, is_locked,
};
use pvp_bridge::hooks::HooksFrom;
use pvp_bridge::keeper::Keeper;
use pvp_client::user_directories::{create_private_directory, directory_key, state_directory};
use pvp_client::{ApiClient, ApiError, Link, RecordCheck};
use pvp_protocol::api::{CreatedJoinCode, InviteRequest, JoinCodeRequest, WhoAmI};
use pvp_protocol::{
    ClientReads, Digest, JsonObject, ParticipantId, ParticipantKind, Role, SessionConfig, SessionId,
};
use pvp_server::invite::{Inviter, create_invitation};
use pvp_server::join;
use serde_json::json;

use super::local_server::LocalServer;
use super::{link_argument, links, one_line, print_warning, server, share, up};

/// How long a client's token is valid, in seconds: a week. Every start makes a new one.
const TOKEN_SECONDS: u64 = 7 * 86_400;

/// How many clients of one kind may work in one directory at the same time.
const MAX_IDENTITIES: usize = 32;

/// How often an identity is tried to be taken. A process that is being started holds the lock of
/// whoever starts it until its program runs.
const LOCK_TRIES: u32 = 50;

/// The time between two of these tries.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// How long a server may take to answer whether it is there.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Args, Clone, Default)]
pub(super) struct SupervisionArguments {
    /// Read the agent's link from this file [default: $PVP_AGENT_LINK, or an identity of its own on
    /// the server of this directory, which is started if there is none]
    #[arg(long, value_name = "FILE")]
    link_file: Option<PathBuf>,
    /// The session [default: that of the link saved for this directory, or `main`]
    #[arg(long, value_name = "ID", value_parser = super::parse_session_id)]
    session: Option<SessionId>,
    /// If a server has to be started: let other machines reach it
    #[arg(long)]
    share: bool,
    /// If a session has to be made: ask about reads too, which the client runs without a sandbox
    #[arg(long)]
    ask_reads: bool,
}

/// Where a client is supervised, and as whom.
pub(super) struct Supervision {
    /// Who the client is, and where.
    pub(super) settings: ClientSettings,
    /// Where what is known about it is kept.
    pub(super) files: ClientFiles,
    /// That no other client has its identity.
    pub(super) lock: IdentityLock,
    /// The link that it works with.
    pub(super) agent_link: Link,
    /// What a person is told before the client starts.
    pub(super) notices: Vec<String>,
    /// A code for another person, if this machine may make one.
    pub(super) join_code: Option<CreatedJoinCode>,
    /// From where that code can be used.
    pub(super) reach: ServerReach,
}

/// Who reaches the server that a join code is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerReach {
    ThisMachine,
    OtherMachines,
}

/// Whom a client is.
struct ClientIdentity {
    /// Where what is known about it is kept.
    files: ClientFiles,
    /// That no other client has it.
    lock: IdentityLock,
    /// The link that it works with.
    link: Link,
    /// Who it is in the session.
    participant: ParticipantId,
    /// The session.
    session: SessionId,
    /// What the server holds a lock on, if it is one of this user's.
    server_lock: Option<PathBuf>,
}

impl SupervisionArguments {
    /// Finds or makes everything for a client that works in this directory. A session that is made
    /// for one that ends while its calls wait, after so many seconds, closes no gate by the clock.
    pub(super) fn find(
        &self,
        client: &str,
        version: Option<String>,
        defer_after_seconds: Option<u64>,
    ) -> anyhow::Result<Supervision> {
        let workspace = super::current_directory()?;
        let workspace = workspace
            .canonicalize()
            .with_context(|| format!("cannot work in {}", workspace.display()))?;
        server::warn_of_data_in(&workspace);
        let mut notices = Vec::new();
        let mut join_code = None;
        let mut reach = ServerReach::OtherMachines;
        let identity = match self.given_link()? {
            Some(link) => self.given_identity(link)?,
            None => {
                let wanted = self.new_session_config(defer_after_seconds);
                let place = self.find_or_start_server(&wanted, &mut notices)?;
                if let ServerPlace::Here(server) = &place {
                    reach = self.reach_of(server, &mut notices);
                }
                self.make_session(&place, wanted, &mut notices)?;
                if let ServerPlace::Here(server) = &place {
                    join_code = create_join_code(server, &self.session_of(&place)).ok();
                }
                self.own_identity(client, &place)?
            }
        };
        if let Some(seconds) = defer_after_seconds {
            check_gates_wait(&identity, seconds)?;
        }
        let settings = ClientSettings {
            client: client.to_owned(),
            version,
            workspace,
            session: identity.session,
            participant: identity.participant,
            agent_link: identity.link.reveal(),
            person: person_at(&identity.link),
            server_lock: identity.server_lock,
            defer_after_seconds,
            answer_key: None,
            hooks_from: HooksFrom::PvpRun,
        };
        Ok(Supervision {
            settings,
            files: identity.files,
            lock: identity.lock,
            agent_link: identity.link,
            notices,
            join_code,
            reach,
        })
    }

    /// Finds what a client is supervised with that nobody started here: a session that is there, and
    /// an identity of its own. Nothing of the environment leads elsewhere.
    pub(super) fn find_existing(&self, client: &str) -> anyhow::Result<Supervision> {
        let workspace = super::current_directory()?.canonicalize()?;
        let place = self.existing_server(&workspace)?;
        self.check_session(&place, &workspace)?;
        let identity = self.own_identity(client, &place)?;
        let settings = ClientSettings {
            client: client.to_owned(),
            version: None,
            workspace,
            session: identity.session,
            participant: identity.participant,
            agent_link: identity.link.reveal(),
            person: person_at(&identity.link),
            server_lock: identity.server_lock,
            defer_after_seconds: None,
            answer_key: None,
            hooks_from: HooksFrom::OwnSettings,
        };
        Ok(Supervision {
            settings,
            files: identity.files,
            lock: identity.lock,
            agent_link: identity.link,
            notices: Vec::new(),
            join_code: None,
            reach: ServerReach::OtherMachines,
        })
    }

    /// From where the server can be reached. It may run since before `--share` was given.
    fn reach_of(&self, server: &LocalServer, notices: &mut Vec<String>) -> ServerReach {
        if !server.is_local_only() {
            return ServerReach::OtherMachines;
        }
        // What is told so far is that it was started.
        if self.share && notices.is_empty() {
            notices.push(
                "--share changes nothing: the server runs already, for this machine only; end it, and start the client again"
                    .to_owned(),
            );
        }
        ServerReach::ThisMachine
    }

    fn existing_server(&self, workspace: &Path) -> anyhow::Result<ServerPlace> {
        let saved = links::find_saved_link(&[ParticipantKind::Human])?.map(|(link, _)| link);
        let here = LocalServer::started_here()?;
        match (saved, here) {
            (Some(link), here) if here.as_ref().is_none_or(|it| !it.is_reached_by(&link)) => {
                Ok(ServerPlace::Elsewhere(link))
            }
            (_, Some(server)) if is_up(&server) => Ok(ServerPlace::Here(server)),
            (_, Some(_)) => bail!(
                "the server of {} is not running; start it with `pvp up` there",
                workspace.display()
            ),
            (_, None) => bail!(no_session(workspace)),
        }
    }

    /// Checks that the session is there, as far as somebody here may see it.
    fn check_session(&self, place: &ServerPlace, workspace: &Path) -> anyhow::Result<()> {
        let link = match place {
            ServerPlace::Elsewhere(link) => Some(link.clone()),
            ServerPlace::Here(server) => {
                saved_person_link().filter(|link| server.is_reached_by(link))
            }
        };
        let Some(link) = link else {
            return Ok(());
        };
        let api = ApiClient::with_timeout(link, ANSWER_TIMEOUT);
        match api.session(&self.session_of(place)) {
            Ok(_) => Ok(()),
            Err(ApiError::Refused(_)) => bail!(no_session(workspace)),
            Err(error) => Err(error.into()),
        }
    }

    fn given_link(&self) -> anyhow::Result<Option<Link>> {
        match &self.link_file {
            Some(path) => Ok(Some(link_argument::from_file(path)?)),
            None => links::link_from_variable("PVP_AGENT_LINK"),
        }
    }

    /// The identity of a link, unless another client has it.
    fn given_identity(&self, link: Link) -> anyhow::Result<ClientIdentity> {
        let api = ApiClient::new(link.clone());
        let me = api.whoami()?;
        if me.kind != ParticipantKind::Agent {
            bail!(
                "this link is for {}, a person; make one for an agent with `pvp invite --name NAME --role driver --kind agent`",
                one_line(&me.name)
            );
        }
        let session = self.session.clone().or(me.session);
        let session = session.or_else(|| link.session().cloned());
        let session =
            session.context("the link opens several sessions; choose one with --session")?;
        let (files, lock) = take_identity(&link, &me.participant)?;
        Ok(ClientIdentity {
            files,
            lock,
            link: link.with_session(session.clone()),
            participant: me.participant,
            session,
            server_lock: None,
        })
    }

    /// The server of this directory, which is started if it is not running.
    fn find_or_start_server(
        &self,
        new_session: &SessionConfig,
        notices: &mut Vec<String>,
    ) -> anyhow::Result<ServerPlace> {
        let saved = links::find_saved_link(&[ParticipantKind::Human])?.map(|(link, _)| link);
        let here = LocalServer::started_here()?;
        match (saved, here) {
            (Some(link), here) if here.as_ref().is_none_or(|it| !it.is_reached_by(&link)) => {
                Ok(ServerPlace::Elsewhere(link))
            }
            (_, Some(server)) if is_up(&server) => Ok(ServerPlace::Here(server)),
            (_, known) => {
                let port = known.as_ref().and_then(LocalServer::port);
                let data = known.map(|server| server.data);
                self.start_server(data, port, new_session, notices)
                    .map(ServerPlace::Here)
            }
        }
    }

    /// Starts a server that goes on when the client ends, so that others can still look.
    fn start_server(
        &self,
        data: Option<PathBuf>,
        port: Option<u16>,
        new_session: &SessionConfig,
        notices: &mut Vec<String>,
    ) -> anyhow::Result<LocalServer> {
        let data = match data {
            Some(data) => data,
            None => server::default_data_directory()?,
        };
        let is_new = !data.join("pvp.sqlite3").exists();
        create_private_directory(&data).with_context(|| format!("making {}", data.display()))?;
        let mut log = OpenOptions::new();
        log.create(true).append(true).mode(0o600);
        let log_path = data.join("server.log");
        let log = log
            .open(&log_path)
            .with_context(|| format!("opening {}", log_path.display()))?;
        let mut command = Command::new(std::env::current_exe().context("finding this program")?);
        command
            .args(["up", "--json", "--session"])
            .arg(self.session_name().as_str())
            .arg("--data")
            .arg(&data)
            .arg("--listen")
            .arg(self.listen_address(port).to_string());
        if is_new {
            let config = json!({
                "client_reads": new_session.client_reads,
                "gate_timeout_seconds": new_session.gate_timeout_seconds,
            });
            command.args(["--session-config", &config.to_string()]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            // A signal to the client's terminal is not meant for the server.
            .process_group(0);
        let mut child = command.spawn().context("starting a server")?;
        let stdout = child
            .stdout
            .take()
            .context("reading what the server says")?;
        let mut line = String::new();
        BufReader::new(stdout)
            .read_line(&mut line)
            .context("starting a server")?;
        if line.trim().is_empty() {
            bail!("the server did not start; {} says why", log_path.display());
        }
        notices.push(format!(
            "started a server for this directory; it goes on when the client ends, until `kill {}`",
            child.id()
        ));
        LocalServer::in_directory(&data)
    }

    fn listen_address(&self, port: Option<u16>) -> SocketAddr {
        let ip = match self.share {
            true => Ipv4Addr::UNSPECIFIED,
            false => Ipv4Addr::LOCALHOST,
        };
        let ports = port.into_iter().chain([3000]);
        let free = ports
            .map(|port| SocketAddr::from((ip, port)))
            .find(|address| TcpListener::bind(address).is_ok());
        free.unwrap_or_else(|| SocketAddr::from((ip, 0)))
    }

    fn session_name(&self) -> SessionId {
        let default = || SessionId::parse("main").expect("a plain word");
        self.session.clone().unwrap_or_else(default)
    }

    fn session_of(&self, place: &ServerPlace) -> SessionId {
        let saved = match place {
            ServerPlace::Elsewhere(link) => Some(link.clone()),
            ServerPlace::Here(_) => saved_person_link(),
        };
        let named = saved.and_then(|link| link.session().cloned());
        self.session
            .clone()
            .or(named)
            .unwrap_or_else(|| self.session_name())
    }

    /// The settings of a session that has to be made.
    fn new_session_config(&self, defer_after_seconds: Option<u64>) -> SessionConfig {
        let default = SessionConfig::default();
        SessionConfig {
            client_reads: match self.ask_reads {
                true => ClientReads::Ask,
                false => ClientReads::Workspace,
            },
            gate_timeout_seconds: match defer_after_seconds {
                Some(_) => 0,
                None => default.gate_timeout_seconds,
            },
            ..default
        }
    }

    /// Makes the session if it is not there, and says how reads are handled in it.
    fn make_session(
        &self,
        place: &ServerPlace,
        config: SessionConfig,
        notices: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let session = self.session_of(place);
        let link = match place {
            ServerPlace::Elsewhere(link) => Some(link.clone()),
            ServerPlace::Here(server) => {
                saved_person_link().filter(|link| server.is_reached_by(link))
            }
        };
        let Some(api) = link.map(ApiClient::new) else {
            return Ok(());
        };
        up::create_session_if_missing(&api, &session, None, config)?;
        let details = api.session(&session)?;
        notices.push(match details.config.client_reads {
            ClientReads::Workspace => {
                "reads inside this directory run unasked and are recorded; `pvp session set --config '{\"client_reads\": \"ask\"}'` changes that".to_owned()
            }
            ClientReads::Ask => {
                "every read of the client waits for approval; `pvp session set --config '{\"client_reads\": \"workspace\"}'` lets those inside this directory run".to_owned()
            }
        });
        Ok(())
    }

    /// The first identity for this kind of client that no other client has now.
    fn own_identity(&self, client: &str, place: &ServerPlace) -> anyhow::Result<ClientIdentity> {
        let session = self.session_of(place);
        let here = super::current_directory()?;
        let key = match place {
            ServerPlace::Here(server) => directory_key(&server.data),
            ServerPlace::Elsewhere(link) => {
                let server = Digest::of(&[link.base_url().as_bytes()]).to_string();
                format!("{}-{}", directory_key(&here), &server[..16])
            }
        };
        let directory = bridges_directory()?.join(key).join(session.as_str());
        for number in 1..=MAX_IDENTITIES {
            let name = match number {
                1 => client.to_owned(),
                number => format!("{client}-{number}"),
            };
            let files = ClientFiles::at(&directory.join(&name));
            let lock = files.lock().context("taking an identity for the client")?;
            let Some(lock) = lock else {
                continue;
            };
            let known = files.settings().ok().map(|settings| settings.participant);
            let invite = InviteRequest {
                name,
                roles: [Role::Driver].into(),
                kind: ParticipantKind::Agent,
                capabilities: Default::default(),
                session: Some(session.clone()),
                expires_seconds: Some(TOKEN_SECONDS),
                participant: known,
            };
            let (link, participant) = place.invite(invite)?;
            return Ok(ClientIdentity {
                files,
                lock,
                link: link.with_session(session.clone()),
                participant,
                session,
                server_lock: match place {
                    ServerPlace::Here(server) => Some(server.lock_file()),
                    ServerPlace::Elsewhere(_) => None,
                },
            });
        }
        bail!("{MAX_IDENTITIES} clients work here already; end one of them")
    }
}

/// The server that a client is supervised by.
enum ServerPlace {
    /// Its data is on this machine, so identities can be made.
    Here(LocalServer),
    /// It is reached with this link of a person.
    Elsewhere(Link),
}

impl ServerPlace {
    fn invite(&self, invite: InviteRequest) -> anyhow::Result<(Link, ParticipantId)> {
        let invitation = match self {
            ServerPlace::Here(server) => {
                let (address, now) = (&server.local_address, pvp_clock::now());
                let created = create_invitation(invite, &Inviter::Operator, address, now);
                let (row, invitation) = created.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
                server.tokens()?.insert(&row)?;
                invitation
            }
            ServerPlace::Elsewhere(link) => match ApiClient::new(link.clone()).invite(&invite) {
                Ok(invitation) => invitation,
                Err(ApiError::Refused(report)) => bail!(
                    "your link makes no identity for the client ({}); ask an admin to run `pvp invite --name {} --role driver --kind agent`, and give the link with --link-file",
                    one_line(&report.message),
                    invite.name,
                ),
                Err(error) => return Err(error.into()),
            },
        };
        let link = Link::parse(&invitation.link).context("the server's own link")?;
        Ok((link, invitation.participant))
    }
}

/// Refuses to have a client end while its calls wait, where the clock closes their gates before that:
/// nothing would be left to come back to.
fn check_gates_wait(identity: &ClientIdentity, defer_after_seconds: u64) -> anyhow::Result<()> {
    let api = ApiClient::with_timeout(identity.link.clone(), ANSWER_TIMEOUT);
    let session = &identity.session;
    let open_seconds = u64::from(api.session(session)?.config.gate_timeout_seconds);
    if open_seconds != 0 && open_seconds <= defer_after_seconds {
        bail!(
            "the gates of `{session}` close after {open_seconds} seconds, when the client would still wait; a shorter --defer-after, or `pvp session set --session {session} gate_timeout_seconds=0`, keeps its calls at their gates"
        );
    }
    Ok(())
}

/// Takes the identity of an agent's link, unless another client has it. `None` if the link has no
/// token, on a server without login, and nobody is named.
pub(super) fn lock_identity(
    link: &Link,
    named: Option<&ParticipantId>,
) -> anyhow::Result<Option<IdentityLock>> {
    let participant = match (link.token(), named) {
        (Some(_), _) => ApiClient::new(link.clone()).whoami()?.participant,
        (None, Some(named)) => named.clone(),
        (None, None) => return Ok(None),
    };
    let (_, lock) = take_identity(link, &participant)?;
    Ok(Some(lock))
}

fn take_identity(
    link: &Link,
    participant: &ParticipantId,
) -> anyhow::Result<(ClientFiles, IdentityLock)> {
    let server = Digest::of(&[link.base_url().as_bytes()]).to_string();
    let directory = bridges_directory()?.join(format!("{participant}-{}", &server[..16]));
    let files = ClientFiles::at(&directory);
    for _ in 0..LOCK_TRIES {
        if let Some(lock) = files.lock().context("taking the agent's identity")? {
            return Ok((files, lock));
        }
        std::thread::sleep(LOCK_PAUSE);
    }
    bail!(
        "another client is {participant} already; each client needs a link of its own: `pvp invite --name NAME --role driver --kind agent`"
    )
}

fn no_session(workspace: &Path) -> String {
    format!(
        "there is no session for {}; make one with `pvp up` there",
        workspace.display()
    )
}

fn bridges_directory() -> anyhow::Result<PathBuf> {
    let state = state_directory().context("finding a place for what is kept about clients")?;
    Ok(state.join("bridges"))
}

fn saved_person_link() -> Option<Link> {
    let found = links::find_saved_link(&[ParticipantKind::Human]).ok()?;
    found.map(|(link, _)| link)
}

/// Whether a server of this user runs and answers. Whoever else has taken its address is sent no
/// token.
fn is_up(server: &LocalServer) -> bool {
    let Ok(link) = Link::parse(&server.local_address.link("")) else {
        return false;
    };
    if !is_locked(&server.lock_file()) {
        return false;
    }
    let asked = ApiClient::with_timeout(link, ANSWER_TIMEOUT).whoami();
    !matches!(
        asked,
        Err(ApiError::Unreachable { .. } | ApiError::Untrusted { .. })
    )
}

/// The person whose link is saved for this directory, if it leads to the same server.
fn person_at(agent_link: &Link) -> Option<PersonAtClient> {
    let link = saved_person_link()?;
    if link.base_url() != agent_link.base_url() {
        return None;
    }
    let me: WhoAmI = ApiClient::with_timeout(link.clone(), ANSWER_TIMEOUT)
        .whoami()
        .ok()?;
    (me.kind == ParticipantKind::Human).then(|| PersonAtClient {
        participant: me.participant,
        link: link.reveal(),
    })
}

fn create_join_code(server: &LocalServer, session: &SessionId) -> anyhow::Result<CreatedJoinCode> {
    let request = JoinCodeRequest {
        roles: [Role::Approver].into(),
        session: Some(session.clone()),
        code_seconds: None,
        expires_seconds: None,
    };
    let now = pvp_clock::now();
    let created = join::create_join_code(request, &Inviter::Operator, &server.address, now);
    let (row, created) = created.map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
    let limit = join::outstanding_limit(&Inviter::Operator);
    let tokens = server.tokens()?;
    match tokens.insert_join_code(&row, limit, join::forget_before(now))? {
        true => Ok(created),
        false => bail!("{}", join::too_many_codes(limit)),
    }
}

impl Supervision {
    /// Joins the session for the client and stays for it.
    pub(super) async fn keep(&self) -> anyhow::Result<Keeper> {
        let record_check = super::record_memory().map_or(RecordCheck::Off, RecordCheck::Enforce);
        let keeper = Keeper::start(
            self.files.clone(),
            &self.settings,
            self.agent_link.clone(),
            record_check,
        );
        Ok(keeper.await?)
    }

    /// What is announced about the client.
    pub(super) fn metadata(&self) -> JsonObject {
        let mut metadata = JsonObject::new();
        metadata.insert("client".to_owned(), self.settings.client.clone().into());
        if let Some(version) = &self.settings.version {
            metadata.insert("client_version".to_owned(), version.clone().into());
        }
        metadata
    }

    /// Says where the client is supervised and how others join, before it takes the terminal.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        self.print_notices();
        let is_terminal = std::io::stdout().is_terminal();
        match (&self.join_code, self.reach) {
            (Some(code), ServerReach::OtherMachines) if is_terminal => {
                share::print_join_code(code, false)
            }
            _ => {
                self.print_join_command();
                Ok(())
            }
        }
    }

    /// The same, for a client that has the standard output.
    pub(super) fn print_to_stderr(&self) {
        self.print_notices();
        self.print_join_command();
    }

    fn print_join_command(&self) {
        let Some(code) = &self.join_code else { return };
        let command = share::join_command(code);
        print_warning(&match self.reach {
            ServerReach::OtherMachines => format!("another person joins with: {command}"),
            ServerReach::ThisMachine => format!(
                "others on this machine join with: {command}; a server that `pvp run --share` starts lets other machines in"
            ),
        });
    }

    fn print_notices(&self) {
        let settings = &self.settings;
        print_warning(&format!(
            "{} is {} in session `{}` on {}; decide with `pvp tui`, `pvp gates` or `pvp approve`",
            settings.client,
            settings.participant,
            settings.session,
            self.agent_link.base_url(),
        ));
        for notice in &self.notices {
            print_warning(notice);
        }
        if settings.person.is_none() {
            print_warning(
                "no link of yours is saved for this directory, so the prompts that you type are not recorded as yours, and you cannot answer in the client; `pvp login` saves one",
            );
        }
    }
}

/// Where problems of a client's bridge are written while the client has the terminal.
pub(super) fn open_log(files: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options.open(files.join("log"))
}
