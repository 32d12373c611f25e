//! Starting and stopping the server.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use pvp_protocol::{ParticipantId, ParticipantKind, Role};
use tokio::net::TcpListener;

use crate::clock;
use crate::config::Config;
use crate::house::House;
use crate::http;
use crate::invite::{self, Invite};
use crate::origin::OwnNames;
use crate::store::Store;

/// How long connections may take to close when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// A server that listens.
pub struct Server {
    house: Arc<House>,
    listener: TcpListener,
    address: SocketAddr,
    admin_link: Option<String>,
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
        let house = House::new(store, config)?;
        let admin_link = tokio::task::spawn_blocking({
            let house = house.clone();
            move || first_admin(&house)
        })
        .await??;
        Ok(Self {
            house,
            listener,
            address,
            admin_link,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The link that makes its holder an admin; made at the first start only.
    pub fn admin_link(&self) -> Option<&str> {
        self.admin_link.as_deref()
    }

    /// Serves until `stop` completes, then tells everyone, writes what is left and closes.
    pub async fn run(self, stop: impl Future<Output = ()> + Send + 'static) -> anyhow::Result<()> {
        let names = OwnNames::new(self.address, self.house.config.public_url.as_deref());
        let router = http::router(self.house.clone(), names);
        let sweep = tokio::spawn(self.house.clone().sweep());
        let house = self.house.clone();
        let serving = axum::serve(self.listener, router).with_graceful_shutdown(async move {
            stop.await;
            house.begin_to_stop();
        });
        let mut stopping = self.house.stopping();
        tokio::select! {
            served = serving.into_future() => served.context("serving")?,
            // Requests that are still being answered get no more time than the connections.
            () = async {
                let _ = stopping.wait_for(|stopping| *stopping).await;
                tokio::time::sleep(DRAIN).await;
            } => {}
        }
        sweep.await.context("the watch over deadlines failed")?;
        self.house.shut_down().await;
        if tokio::time::timeout(DRAIN, self.house.all_disconnected())
            .await
            .is_err()
        {
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

/// The first start makes an admin; later ones do not.
fn first_admin(house: &House) -> anyhow::Result<Option<String>> {
    if house.store.tokens().count()? > 0 {
        return Ok(None);
    }
    let invite = Invite {
        name: "admin".to_owned(),
        roles: [Role::Admin].into(),
        kind: ParticipantKind::Human,
        capabilities: Default::default(),
        session: None,
        expires_seconds: None,
        participant: Some(ParticipantId::parse("admin").context("a plain word")?),
    };
    let invitation = invite::make(
        house.store.tokens(),
        invite,
        &house.base_url(),
        clock::now(),
    )
    .map_err(|refusal| anyhow::anyhow!("{refusal}"))?;
    Ok(Some(invitation.link))
}
