//! Starts, runs and stops the server.

use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use pvp_policy::Policy;
use pvp_protocol::api::{Invitation, InviteRequest};
use pvp_protocol::{ParticipantId, ParticipantKind, Role};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::config::ServerConfig;
use crate::directory::SessionDirectory;
use crate::http;
use crate::invite;
use crate::origin::AllowedHosts;
use crate::store::Store;
use crate::token;

/// How long connections may take to close when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait before accepting again after an error.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A server that is bound to its address.
pub struct Server {
    directory: Arc<SessionDirectory>,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Opens the store and binds the address.
    pub async fn start(mut config: ServerConfig) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(config.listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.listen))?;
        let address = listener
            .local_addr()
            .context("asking for the bound address")?;
        config.listen = address;
        let data = config.data.clone();
        let store = tokio::task::spawn_blocking(move || Store::open(&data)).await??;
        let policy = load_policy(config.policy.as_deref())?;
        let directory = SessionDirectory::new(store, config, policy)?;
        Ok(Self {
            directory,
            listener,
            address,
        })
    }

    /// A handle that reloads the policy file.
    pub fn policy_reloader(&self) -> PolicyReloader {
        PolicyReloader(self.directory.clone())
    }

    /// The address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A link that makes its holder an admin; `None` if a token exists already. Blocks on the disk
    /// briefly.
    pub fn first_admin_link(&self) -> anyhow::Result<Option<String>> {
        if self.directory.store.tokens().count()? > 0 {
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
        })?;
        Ok(Some(invitation.link))
    }

    /// The URL that invitation links start with.
    pub fn url(&self) -> String {
        self.directory.base_url()
    }

    /// Creates a token and its link. Blocks on the disk.
    pub fn invite(&self, invite: InviteRequest) -> anyhow::Result<Invitation> {
        let base = self.directory.base_url();
        invite::create_invitation(
            self.directory.store.tokens(),
            invite,
            &base,
            pvp_clock::now(),
        )
        .map_err(|refusal| anyhow::anyhow!("{refusal}"))
    }

    /// Whether this token is valid on this server. Blocks on the disk.
    pub fn accepts_token(&self, token: &str) -> bool {
        token::verify(self.directory.store.tokens(), token, pvp_clock::now()).is_ok()
    }

    /// Serves until `stop` completes, then ends the connections, writes what is left and closes the
    /// store.
    pub async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let sweep = tokio::spawn(self.directory.clone().wake_due_sessions());
        tokio::select! {
            () = accept_loop(&self.directory, &self.listener) => {}
            () = stop => {}
        }
        drop(self.listener);
        self.directory.begin_shutdown();
        sweep.await.context("the watch over deadlines failed")?;
        self.directory.shut_down().await;
        if timeout(DRAIN_TIMEOUT, self.directory.wait_all_disconnected())
            .await
            .is_err()
        {
            tracing::warn!("some connections did not close in time");
        }
        self.directory
            .store
            .clone()
            .close(pvp_clock::now())
            .await
            .context("closing the store")
    }
}

/// Reloads the policy file without a restart.
pub struct PolicyReloader(Arc<SessionDirectory>);

impl PolicyReloader {
    /// Reads the policy file again. A bad file changes nothing, and the error is logged.
    pub fn reload(&self) {
        match load_policy(self.0.config.policy.as_deref()) {
            Ok(policy) => {
                tracing::info!(policy = policy.hash(), "read the policy again");
                self.0.set_policy(policy);
            }
            Err(error) => tracing::error!("kept the old policy: {error:#}"),
        }
    }
}

/// Loads the built-in rules and the user's file on top of them, and compiles their patterns before
/// the first command arrives.
fn load_policy(file: Option<&Path>) -> anyhow::Result<Policy> {
    let policy = match file {
        None => Policy::built_in(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("reading the policy in {}", path.display()))?;
            Policy::with_user_file(&text, &path.display().to_string())?
        }
    };
    policy.compile_patterns();
    Ok(policy)
}

/// Accepts connections forever. A connection that does not send a request soon is closed.
async fn accept_loop(directory: &Arc<SessionDirectory>, listener: &TcpListener) {
    let allowed_hosts = AllowedHosts::new(
        directory.config.listen,
        directory.config.public_url.as_deref(),
    );
    let service = TowerToHyperService::new(http::router(directory.clone(), allowed_hosts));
    let header_timeout = Duration::from_secs(directory.config.join_seconds);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Most likely the process is out of file descriptors, and some will be freed.
                tracing::warn!(%error, "could not take a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        let Some(slot) = directory.acquire_connection_slot() else {
            tracing::warn!("too many connections; closed a new one");
            continue;
        };
        let mut shutdown = directory.shutdown_signal();
        let (builder, service) = (builder.clone(), service.clone());
        tokio::spawn(async move {
            // hyper's header timeout starts with the first byte, so wait for that byte here.
            if !matches!(
                timeout(header_timeout, stream.peek(&mut [0])).await,
                Ok(Ok(1))
            ) {
                return;
            }
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
                tracing::debug!(%error, "a connection ended badly");
            }
            drop(slot);
        });
    }
}
