//! A network that can be cut: a small TCP proxy in front of a server.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The state of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkState {
    Up,
    /// Bytes from the server are lost; bytes to it arrive.
    DropReplies,
    /// Bytes to the server are lost; bytes from it arrive.
    DropRequests,
    /// Connections are dropped, and new ones fail.
    Down,
}

/// Forwards connections to a server, until the test breaks the network.
pub struct Proxy {
    pub address: SocketAddr,
    state: watch::Sender<NetworkState>,
    lost_bytes: watch::Receiver<u64>,
    open_connections: watch::Receiver<usize>,
}

impl Proxy {
    /// Binds the proxy's port before the server starts, because the server must know its public
    /// address.
    pub async fn bind() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").await.unwrap()
    }

    /// Forwards connections of `listener` to the server.
    pub fn start(listener: TcpListener, server: &str) -> Self {
        let address = listener.local_addr().unwrap();
        let (state, seen) = watch::channel(NetworkState::Up);
        let (losing, lost_bytes) = watch::channel(0);
        let (opening, open_connections) = watch::channel(0);
        let route = ProxyRoute {
            server: server.to_owned(),
            state: seen,
            lost_bytes: losing,
            open_connections: opening,
        };
        tokio::spawn(accept_loop(listener, route));
        Self {
            address,
            state,
            lost_bytes,
            open_connections,
        }
    }

    /// From now on, drops what the server sends.
    pub fn drop_replies(&self) {
        self.state.send_replace(NetworkState::DropReplies);
    }

    /// From now on, drops what is sent to the server.
    pub fn drop_requests(&self) {
        self.state.send_replace(NetworkState::DropRequests);
    }

    /// Drops every connection and refuses new ones until the network is restored.
    pub async fn cut(&self) {
        self.state.send_replace(NetworkState::Down);
        let mut open = self.open_connections.clone();
        open.wait_for(|open| *open == 0).await.unwrap();
    }

    /// Waits until some bytes were dropped.
    pub async fn wait_for_loss(&self) {
        let mut lost = self.lost_bytes.clone();
        lost.wait_for(|bytes| *bytes > 0).await.unwrap();
    }

    pub fn restore(&self) {
        self.state.send_replace(NetworkState::Up);
    }
}

/// Where connections lead, and the state of the network.
#[derive(Clone)]
struct ProxyRoute {
    server: String,
    state: watch::Receiver<NetworkState>,
    /// Bytes dropped so far.
    lost_bytes: watch::Sender<u64>,
    /// Open connections.
    open_connections: watch::Sender<usize>,
}

/// The port stays taken while the network is down, or another program could get it: what connects
/// then is closed at once.
async fn accept_loop(listener: TcpListener, route: ProxyRoute) {
    let mut state = route.state.clone();
    loop {
        tokio::select! {
            client = listener.accept() => {
                if *state.borrow() == NetworkState::Down {
                    continue;
                }
                let (client, route) = (client.unwrap().0, route.clone());
                route.open_connections.send_modify(|open| *open += 1);
                tokio::spawn(async move {
                    forward(client, &route).await;
                    route.open_connections.send_modify(|open| *open -= 1);
                });
            }
            changed = state.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

async fn forward(client: TcpStream, route: &ProxyRoute) {
    // If the server is gone, the client sees its connection close.
    let Ok(server) = TcpStream::connect(&route.server).await else {
        return;
    };
    let mut state = route.state.clone();
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        // A connection accepted after the cut forwards nothing.
        biased;
        _ = state.wait_for(|now| *now == NetworkState::Down) => {}
        () = copy_direction(from_client, to_server, route, NetworkState::DropRequests) => {}
        () = copy_direction(from_server, to_client, route, NetworkState::DropReplies) => {}
    }
}

/// Copies one direction, and drops bytes while the network loses them.
async fn copy_direction(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    route: &ProxyRoute,
    bad: NetworkState,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        if *route.state.borrow() == bad {
            if bad == NetworkState::DropRequests {
                route.lost_bytes.send_modify(|lost| *lost += read as u64);
            }
        } else if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
