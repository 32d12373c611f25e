//! A network that can be cut: a small TCP proxy in front of a server.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

/// How the network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Fine,
    /// What the server says is lost; what it is told arrives.
    Deaf,
    /// What the server is told is lost; what it says arrives.
    Mute,
    /// Connections are dropped, and none can be made.
    Cut,
}

/// Passes everything on to a server, until it is told otherwise.
pub struct Proxy {
    pub address: SocketAddr,
    weather: watch::Sender<Weather>,
    lost: watch::Receiver<u64>,
    open: watch::Receiver<usize>,
}

impl Proxy {
    /// A listener for a server that is yet to be started, which has to know this address.
    pub async fn bind() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").await.unwrap()
    }

    /// Passes on what comes to `listener`.
    pub fn start(listener: TcpListener, server: &str) -> Self {
        let address = listener.local_addr().unwrap();
        let (weather, seen) = watch::channel(Weather::Fine);
        let (losing, lost) = watch::channel(0);
        let (opening, open) = watch::channel(0);
        let route = Route {
            server: server.to_owned(),
            weather: seen,
            lost: losing,
            open: opening,
        };
        tokio::spawn(listen(address, listener, route));
        Self {
            address,
            weather,
            lost,
            open,
        }
    }

    /// Loses what the server says from here on.
    pub fn deafen(&self) {
        self.weather.send_replace(Weather::Deaf);
    }

    /// Loses what the server is told from here on.
    pub fn mute(&self) {
        self.weather.send_replace(Weather::Mute);
    }

    /// Drops every connection, and takes none until it is mended.
    pub async fn cut(&self) {
        self.weather.send_replace(Weather::Cut);
        let mut open = self.open.clone();
        open.wait_for(|open| *open == 0).await.unwrap();
    }

    /// Waits until something was lost.
    pub async fn swallowed(&self) {
        let mut lost = self.lost.clone();
        lost.wait_for(|bytes| *bytes > 0).await.unwrap();
    }

    pub fn mend(&self) {
        self.weather.send_replace(Weather::Fine);
    }
}

/// Where connections lead, and how the way there is.
#[derive(Clone)]
struct Route {
    server: String,
    weather: watch::Receiver<Weather>,
    /// Bytes that got lost on the way there.
    lost: watch::Sender<u64>,
    /// Connections at the moment.
    open: watch::Sender<usize>,
}

async fn listen(address: SocketAddr, first: TcpListener, route: Route) {
    let mut weather = route.weather.clone();
    let mut listener = Some(first);
    loop {
        match &listener {
            Some(taking) => tokio::select! {
                client = taking.accept() => {
                    let (client, route) = (client.unwrap().0, route.clone());
                    route.open.send_modify(|open| *open += 1);
                    tokio::spawn(async move {
                        pass(client, &route).await;
                        route.open.send_modify(|open| *open -= 1);
                    });
                }
                seen = weather.wait_for(|now| *now == Weather::Cut) => {
                    if seen.is_err() {
                        return;
                    }
                    listener = None;
                }
            },
            None => {
                if weather.wait_for(|now| *now != Weather::Cut).await.is_err() {
                    return;
                }
                let socket = TcpSocket::new_v4().unwrap();
                socket.set_reuseaddr(true).unwrap();
                socket.bind(address).unwrap();
                listener = Some(socket.listen(64).unwrap());
            }
        }
    }
}

async fn pass(client: TcpStream, route: &Route) {
    // A server that is gone is, to the client, a connection that ends.
    let Ok(server) = TcpStream::connect(&route.server).await else {
        return;
    };
    let mut weather = route.weather.clone();
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        // Nothing passes over a connection that was made too late.
        biased;
        _ = weather.wait_for(|now| *now == Weather::Cut) => {}
        () = copy(from_client, to_server, route, Weather::Mute) => {}
        () = copy(from_server, to_client, route, Weather::Deaf) => {}
    }
}

/// Copies one direction; what comes in bad weather is lost.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, route: &Route, bad: Weather) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        if *route.weather.borrow() == bad {
            if bad == Weather::Mute {
                route.lost.send_modify(|lost| *lost += read as u64);
            }
        } else if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
