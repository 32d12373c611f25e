//! Starts, runs and stops the server.

use std::collections::BTreeSet;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use pvp_policy::Policy;
use pvp_protocol::api::{CreatedJoinCode, Invitation, InviteRequest, JoinCodeRequest};
use pvp_protocol::{ParticipantId, ParticipantKind, Role, SessionConfig, SessionId, Timestamp};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::addresses;
use crate::anchoring;
use crate::config::ServerConfig;
use crate::connection_stream::ConnectionStream;
use crate::directory::{ConnectionSlot, SessionDirectory};
use crate::http;
use crate::invite::{Inviter, ServerAddress};
use crate::network_stream::NetworkStream;
use crate::notifier;
use crate::origin::{self, AllowedHosts};
use crate::session_workspace::SessionWorkspaces;
use crate::store::{KeyFiles, SqliteStore, Store};
use crate::tls::Tls;
use crate::token::{self, TokenClaims};

/// If the last entry is further in the future, the machine's clock was wrong then or is wrong now, and
/// nobody knows which.
const MAX_CLOCK_CORRECTION: Duration = Duration::from_secs(86_400);

/// How often the machine's clock is compared with the server's.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Differences that are not worth a word, in milliseconds.
const CLOCK_TOLERANCE_MS: u64 = 2000;

/// How long connections may take to close when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait before accepting again after an error.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The most bytes of a request's head, and of an answer that its reader is slow to take, that a
/// connection holds besides what the answer itself is made of.
const MAX_BUFFER_BYTES: usize = 256 * 1024;

/// A server that is bound to its address.
pub struct Server {
    /// The sessions, and what they share.
    directory: Arc<SessionDirectory>,
    /// Where connections come in.
    listener: TcpListener,
    /// The address that it listens on.
    address: SocketAddr,
    /// Where published git hooks ask; `None` on a server with login, or if the port is taken.
    bridge: Option<TcpListener>,
    /// The addresses under which others reach it, if it listens on every interface.
    reachable: Vec<IpAddr>,
    /// `None` for plain HTTP.
    tls: Option<Arc<Tls>>,
}

impl Server {
    /// Opens the store and binds the address.
    pub async fn start(mut config: ServerConfig) -> anyhow::Result<Self> {
        let listener = bind(config.listen).await?;
        let address = listener
            .local_addr()
            .context("asking for the bound address")?;
        config.listen = address;
        let reachable = match address.ip().is_unspecified() {
            true => addresses::reachable_addresses(address),
            false => Vec::new(),
        };
        SessionWorkspaces::check(&config)?;
        let data = config.data.as_deref();
        let data = data.context("no data directory; set `data`")?;
        let keys = KeyFiles::new(data, config.key_file.as_deref());
        let store = SqliteStore::open_with_keys(keys).await?;
        let tls = open_tls(&config, &reachable).await?;
        if config.public_url.is_none() {
            config.public_url = public_url(&config, tls.as_deref(), &reachable);
        }
        continue_clock(&store).await?;
        let policy = load_policy(config.policy.as_deref()).await?;
        let bridge = match config.bridge_address() {
            Some(address) => bind_bridge(address).await,
            None => None,
        };
        let pinned_key = tls.as_ref().and_then(|tls| tls.pinned_key());
        let directory = SessionDirectory::new(Arc::new(store), config, policy).await?;
        directory.set_pinned_key(pinned_key);
        directory.notifications.open(&directory.config).await?;
        Ok(Self {
            directory,
            listener,
            address,
            bridge,
            reachable,
            tls,
        })
    }

    /// A handle that reloads the policy file and the certificate.
    pub fn file_reloader(&self) -> FileReloader {
        FileReloader {
            directory: self.directory.clone(),
            tls: self.tls.clone(),
        }
    }

    /// The fingerprint of a self-signed certificate, as a browser shows it; `None` if there is none.
    pub fn certificate_fingerprint(&self) -> Option<String> {
        self.tls.as_ref()?.certificate_fingerprint()
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where published git hooks find the decision tracking; `None` if nowhere.
    pub fn bridge_address(&self) -> Option<SocketAddr> {
        self.bridge.as_ref()?.local_addr().ok()
    }

    /// A link that makes its holder an admin; `None` if a token exists already.
    pub async fn first_admin_link(&self) -> anyhow::Result<Option<String>> {
        if self.directory.store.count_tokens().await? > 0 {
            return Ok(None);
        }
        let invitation = self.invite(InviteRequest {
            name: "admin".to_owned(),
            roles: [Role::Admin].into(),
            kind: ParticipantKind::Human,
            capabilities: Default::default(),
            session: None,
            expires_seconds: None,
            participant: Some(ParticipantId::parse("admin").context("a plain word")?),
        });
        let invitation = invitation.await?;
        Ok(Some(invitation.link))
    }

    /// The URL that invitation links start with.
    pub fn url(&self) -> String {
        self.server_address().url
    }

    /// What invitation links start with.
    pub fn server_address(&self) -> ServerAddress {
        self.directory.server_address()
    }

    /// How this machine reaches the server, whatever network it is on. A certificate that somebody
    /// else has signed is for a name, so that such a server is reached by that alone.
    pub fn local_address(&self) -> ServerAddress {
        let public = self.server_address();
        let config = &self.directory.config;
        if config.speaks_tls() && public.fingerprint.is_none() {
            return public;
        }
        let ip = match self.address.ip().is_unspecified() {
            true => loopback_of(self.address),
            false => self.address.ip(),
        };
        let local = SocketAddr::new(ip, self.address.port());
        ServerAddress {
            url: format!("{}://{local}", config.scheme()),
            ..public
        }
    }

    /// The addresses under which others may reach a server that listens on every interface, the best
    /// first.
    pub fn reachable_addresses(&self) -> &[IpAddr] {
        &self.reachable
    }

    /// Creates a code that somebody exchanges for a token, once.
    pub async fn create_join_code(
        &self,
        request: JoinCodeRequest,
    ) -> anyhow::Result<CreatedJoinCode> {
        self.directory
            .create_join_code(request, &Inviter::Operator)
            .await
            .map_err(|refusal| anyhow::anyhow!("{refusal}"))
    }

    /// Whether a session of this id is stored.
    pub async fn has_session(&self, session: &SessionId) -> anyhow::Result<bool> {
        let head = self.directory.store.head(session).await?;
        Ok(head.is_some())
    }

    /// The configuration of a session; `None` if there is none of this id.
    pub async fn session_config(
        &self,
        session: &SessionId,
    ) -> anyhow::Result<Option<SessionConfig>> {
        if !self.has_session(session).await? {
            return Ok(None);
        }
        let config = self
            .directory
            .query(session, |session| session.config().clone());
        let config = config.await;
        Ok(Some(
            config.context("the log of the session cannot be read")?,
        ))
    }

    /// Creates a token and its link.
    pub async fn invite(&self, invite: InviteRequest) -> anyhow::Result<Invitation> {
        self.directory
            .invite(invite, &Inviter::Operator)
            .await
            .map_err(|refusal| anyhow::anyhow!("{refusal}"))
    }

    /// What a token says about its holder, and when it expires; `None` if it is not valid on this
    /// server.
    pub async fn token_claims(&self, token: &str) -> Option<(TokenClaims, Option<Timestamp>)> {
        let store = self.directory.store.as_ref();
        let live_tokens = &self.directory.live_tokens;
        let login = token::verify(store, live_tokens, token, pvp_clock::now());
        let login = login.await.ok()?;
        Some((login.claims, login.expires_at))
    }

    fn router(&self) -> Router {
        let config = &self.directory.config;
        let scheme = config.scheme();
        let allowed_hosts = AllowedHosts::new(scheme, config.listen, config.public_url.as_deref());
        http::router(self.directory.clone(), allowed_hosts)
    }

    /// Serves until `stop` completes, then ends the connections, writes what is left and closes the
    /// store.
    pub async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let sweep = tokio::spawn(self.directory.clone().wake_due_sessions());
        let retention = tokio::spawn(self.directory.clone().delete_old_sessions());
        let anchoring = tokio::spawn(anchoring::publish_anchors(self.directory.clone()));
        let token_uses = tokio::spawn(self.directory.clone().write_token_uses());
        let notifier = tokio::spawn(notifier::run(self.directory.clone()));
        let directory = self.directory.clone();
        tokio::spawn(async move { directory.workspaces.remove_leftovers().await });
        tokio::select! {
            () = accept_loop(&self.directory, &self.listener, self.router(), self.tls.as_ref()) => {}
            () = keep_certificate_renewed(self.tls.as_deref()) => {}
            () = serve_bridge(&self.directory, self.bridge.as_ref()) => {}
            () = self.directory.clone().end_expired_tokens() => {}
            () = watch_clock() => {}
            () = stop => {}
        }
        drop((self.listener, self.bridge));
        self.directory.begin_shutdown();
        sweep.await.context("the watch over deadlines failed")?;
        retention
            .await
            .context("the watch over old sessions failed")?;
        notifier.await.context("notifying people failed")?;
        self.directory.shut_down().await;
        token_uses
            .await
            .context("writing when tokens were last used failed")?;
        anchoring.await.context("publishing anchors failed")?;
        if timeout(DRAIN_TIMEOUT, self.directory.wait_all_disconnected())
            .await
            .is_err()
        {
            tracing::warn!("some connections did not close in time");
        }
        self.directory
            .store
            .close(pvp_clock::now())
            .await
            .context("closing the store")
    }
}

/// The certificate for HTTPS; `None` for plain HTTP.
async fn open_tls(config: &ServerConfig, reachable: &[IpAddr]) -> anyhow::Result<Option<Arc<Tls>>> {
    let Some(source) = config.tls_source()? else {
        return Ok(None);
    };
    let own = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    let listen = Some(config.listen.ip()).filter(|ip| !ip.is_unspecified());
    let addresses = own
        .into_iter()
        .chain(listen)
        .chain(reachable.iter().copied());
    let mut names: BTreeSet<_> = addresses.map(|ip| ip.to_string()).collect();
    names.insert("localhost".to_owned());
    names.extend(config.public_url.as_deref().and_then(origin::host_of));
    let tls = Tls::open(source, config.data_directory(), names).await?;
    Ok(Some(Arc::new(tls)))
}

/// What links begin with if nobody said so: the name of the certificate, or an address that others
/// can open, which 0.0.0.0 is not; `None` if they open the one that it listens on.
fn public_url(config: &ServerConfig, tls: Option<&Tls>, reachable: &[IpAddr]) -> Option<String> {
    let (listen, scheme) = (config.listen, config.scheme());
    if let Some(name) = config.acme.clone().or_else(|| tls?.certified_name()) {
        return Some(match (listen.port(), &config.acme) {
            // An authority reaches it at port 443, whatever port that leads to.
            (443, _) | (_, Some(_)) => format!("https://{name}"),
            (port, None) => format!("https://{name}:{port}"),
        });
    }
    if !listen.ip().is_unspecified() {
        return None;
    }
    let best = reachable.first().copied();
    let best = best.unwrap_or_else(|| loopback_of(listen));
    Some(format!(
        "{scheme}://{}",
        SocketAddr::new(best, listen.port())
    ))
}

/// Renews the certificate. Never ends.
async fn keep_certificate_renewed(tls: Option<&Tls>) {
    match tls {
        Some(tls) => tls.keep_renewed().await,
        None => std::future::pending().await,
    }
}

/// Binds the port that published git hooks ask. The server does without if another program has it,
/// most likely another server.
async fn bind_bridge(address: SocketAddr) -> Option<TcpListener> {
    match TcpListener::bind(address).await {
        Ok(listener) => {
            tracing::info!(%address, "git hooks find the decision tracking here");
            Some(listener)
        }
        Err(error) => {
            tracing::warn!(
                %address, %error,
                "git hooks cannot ask this server; choose another port with --bridge-port, and set PVP_GIT_PORT to it where you commit"
            );
            None
        }
    }
}

/// Answers published git hooks. Never ends.
async fn serve_bridge(directory: &Arc<SessionDirectory>, listener: Option<&TcpListener>) {
    let bound = listener.and_then(|listener| Some((listener, listener.local_addr().ok()?)));
    let Some((listener, address)) = bound else {
        return std::future::pending().await;
    };
    let allowed_hosts = AllowedHosts::new("http", address, None);
    let router = http::bridge_router(directory.clone(), allowed_hosts);
    accept_loop(directory, listener, router, None).await;
}

/// Binds an address. If its port is in use, the error names one that is not.
async fn bind(listen: SocketAddr) -> anyhow::Result<TcpListener> {
    let error = match TcpListener::bind(listen).await {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    if error.kind() != std::io::ErrorKind::AddrInUse {
        return Err(error).with_context(|| format!("cannot listen on {listen}"));
    }
    let advice = match addresses::next_free(listen) {
        Some(free) => format!("stop it, or use another port: --listen {free}"),
        None => "stop it, or choose another port with --listen".to_owned(),
    };
    anyhow::bail!(
        "cannot listen on {listen}: another program uses port {}, perhaps another pvp server; {advice}",
        listen.port()
    )
}

fn loopback_of(address: SocketAddr) -> IpAddr {
    match address.is_ipv4() {
        true => Ipv4Addr::LOCALHOST.into(),
        false => Ipv6Addr::LOCALHOST.into(),
    }
}

/// Lets the clock go on from the last entry, if the machine's clock was set back since: deadlines
/// would wait until it has caught up.
async fn continue_clock(store: &dyn Store) -> anyhow::Result<()> {
    let Some(last) = store.last_written_at().await? else {
        return Ok(());
    };
    let ahead = Duration::from_millis(last.millis_since(pvp_clock::now()));
    if ahead > MAX_CLOCK_CORRECTION {
        tracing::warn!(
            hours = ahead.as_secs() / 3600,
            "the last entry is in the future; the log's clock stands still until then"
        );
    } else {
        pvp_clock::not_before(last);
    }
    Ok(())
}

/// Says when the machine's clock was set. Never ends.
async fn watch_clock() {
    let mut reported = pvp_clock::difference_from_wall();
    let mut interval = tokio::time::interval(CLOCK_CHECK_INTERVAL);
    loop {
        interval.tick().await;
        let difference = pvp_clock::difference_from_wall();
        if difference.abs_diff(reported) > CLOCK_TOLERANCE_MS {
            tracing::warn!(
                seconds = difference / 1000,
                "the machine's clock was changed; the server keeps its own time until it is restarted"
            );
            reported = difference;
        }
    }
}

/// Reloads the policy file and the certificate without a restart.
pub struct FileReloader {
    directory: Arc<SessionDirectory>,
    tls: Option<Arc<Tls>>,
}

impl FileReloader {
    /// Reads the files again. A bad file changes nothing, and the error is logged.
    pub async fn reload(&self) {
        if let Some(tls) = &self.tls {
            tls.reload().await;
        }
        match load_policy(self.directory.config.policy.as_deref()).await {
            Ok(policy) => {
                tracing::info!(policy = policy.hash(), "reloaded the policy");
                self.directory.set_policy(policy);
            }
            Err(error) => tracing::error!("kept the old policy: {error:#}"),
        }
    }
}

/// Loads the built-in rules and the user's file on top of them, and compiles their patterns before
/// the first command arrives.
async fn load_policy(file: Option<&Path>) -> anyhow::Result<Policy> {
    let policy = match file {
        None => Policy::built_in(),
        Some(path) => {
            let text = tokio::fs::read_to_string(path)
                .await
                .with_context(|| format!("reading the policy in {}", path.display()))?;
            Policy::with_user_file(&text, &path.display().to_string())?
        }
    };
    policy.compile_patterns();
    Ok(policy)
}

/// Accepts connections forever. A connection that does not send a request soon is closed.
async fn accept_loop(
    directory: &Arc<SessionDirectory>,
    listener: &TcpListener,
    router: Router,
    tls: Option<&Arc<Tls>>,
) {
    let service = TowerToHyperService::new(router);
    let https_url: Arc<str> = directory.server_address().url.into();
    let header_timeout = Duration::from_secs(directory.config.join_seconds);
    let stall_timeout = Duration::from_secs(directory.config.stall_seconds);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(MAX_BUFFER_BYTES);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Most likely the process is out of file descriptors, and some will be freed.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let Some(slot) = directory.accept_connection(peer.ip()) else {
            tracing::warn!("too many connections; closed a new one");
            continue;
        };
        let shutdown = directory.shutdown_signal();
        let (builder, service) = (builder.clone(), service.clone());
        let (tls, url) = (tls.cloned(), https_url.clone());
        tokio::spawn(async move {
            let served = async {
                let Some(stream) = open_stream(tls.as_deref(), stream, header_timeout, &url).await
                else {
                    return;
                };
                let stream = ConnectionStream::new(stream, stall_timeout, slot.clone());
                serve_connection(&builder, stream, service, slot.clone(), shutdown).await;
            };
            tokio::select! {
                () = slot.evicted() => tracing::debug!("closed a connection that had not logged in, to make room"),
                () = served => {}
            }
        });
    }
}

/// The stream that requests are read from. TLS is agreed on within the time that a request may take:
/// until then whoever connects is a stranger, of whom there are only so many.
async fn open_stream(
    tls: Option<&Tls>,
    tcp: TcpStream,
    within: Duration,
    https_url: &str,
) -> Option<NetworkStream> {
    match tls {
        Some(tls) => tls.accept(tcp, within, https_url).await,
        None => Some(NetworkStream::Tcp(tcp)),
    }
}

/// Serves the requests of one connection, which an upgrade to WebSocket ends.
async fn serve_connection(
    builder: &http1::Builder,
    stream: ConnectionStream,
    service: TowerToHyperService<Router>,
    slot: Arc<ConnectionSlot>,
    mut shutdown: watch::Receiver<bool>,
) {
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(slot.clone());
        service.call(request)
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection.with_upgrades());
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = async { drop(shutdown.wait_for(|stopping| *stopping).await) } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection failed");
    }
}
