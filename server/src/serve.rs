//! Starting and stopping the server.

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

use crate::clock;
use crate::config::Config;
use crate::house::House;
use crate::http;
use crate::invite;
use crate::origin::OwnNames;
use crate::store::Store;
use crate::token;

/// How long connections may take to close when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// How long to wait when a connection could not be taken.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// A server that listens.
pub struct Server {
    house: Arc<House>,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Opens the store and binds the address.
    pub async fn start(mut config: Config) -> anyhow::Result<Self> {
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
        let house = House::new(store, config, policy)?;
        Ok(Self {
            house,
            listener,
            address,
        })
    }

    /// What reads the policy file again, when asked to.
    pub fn reloader(&self) -> Reloader {
        Reloader(self.house.clone())
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A link that makes its holder an admin, if nobody has a token yet. Blocks for a moment.
    pub fn first_admin_link(&self) -> anyhow::Result<Option<String>> {
        if self.house.store.tokens().count()? > 0 {
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

    /// The address that its links begin with.
    pub fn url(&self) -> String {
        self.house.base_url()
    }

    /// Makes a token and its link. Blocks on the disk for a moment.
    pub fn invite(&self, invite: InviteRequest) -> anyhow::Result<Invitation> {
        let base = self.house.base_url();
        invite::make(self.house.store.tokens(), invite, &base, clock::now())
            .map_err(|refusal| anyhow::anyhow!("{refusal}"))
    }

    /// Whether this token opens anything here. Blocks on the disk for a moment.
    pub fn knows(&self, token: &str) -> bool {
        token::check(self.house.store.tokens(), token, clock::now()).is_ok()
    }

    /// Serves until `stop` completes, then tells everyone, writes what is left and closes.
    pub async fn run(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let sweep = tokio::spawn(self.house.clone().sweep());
        tokio::select! {
            () = accept(&self.house, &self.listener) => {}
            () = stop => {}
        }
        drop(self.listener);
        self.house.begin_to_stop();
        sweep.await.context("the watch over deadlines failed")?;
        self.house.shut_down().await;
        if timeout(DRAIN, self.house.all_disconnected()).await.is_err() {
            tracing::warn!("some connections did not close in time");
        }
        self.house
            .store
            .clone()
            .close(clock::now())
            .await
            .context("closing the store")
    }
}

/// Reads the policy file again without a restart.
pub struct Reloader(Arc<House>);

impl Reloader {
    /// Sorts by the file as it is; a bad file changes nothing and is named in the log.
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

/// The built-in rules, with the owner's file on top; ready before the first command comes.
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

/// Takes connections for ever. A connection must make a request soon, or it is closed.
async fn accept(house: &Arc<House>, listener: &TcpListener) {
    let names = OwnNames::new(house.config.listen, house.config.public_url.as_deref());
    let service = TowerToHyperService::new(http::router(house.clone(), names));
    let patience = Duration::from_secs(house.config.join_seconds);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(patience);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: some will come free.
                tracing::warn!(%error, "could not take a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        let Some(place) = house.place() else {
            tracing::warn!("too many connections; closed a new one");
            continue;
        };
        let mut stopping = house.stopping();
        let (builder, service) = (builder.clone(), service.clone());
        tokio::spawn(async move {
            // The timeout for headers begins with their first byte.
            if !matches!(timeout(patience, stream.peek(&mut [0])).await, Ok(Ok(1))) {
                return;
            }
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            let mut connection = pin!(connection.with_upgrades());
            let ended = tokio::select! {
                ended = connection.as_mut() => ended,
                () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended badly");
            }
            drop(place);
        });
    }
}
