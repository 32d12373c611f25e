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
    /// Connections are dropped, and none can be made.
    Cut,
}

/// Passes everything on to a server, until it is told otherwise.
pub struct Proxy {
    pub address: SocketAddr,
    weather: watch::Sender<Weather>,
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
        tokio::spawn(listen(address, listener, server.to_owned(), seen));
        Self { address, weather }
    }

    /// Loses what the server says from here on.
    pub fn deafen(&self) {
        self.weather.send_replace(Weather::Deaf);
    }

    /// Drops every connection, and takes none until it is mended.
    pub fn cut(&self) {
        self.weather.send_replace(Weather::Cut);
    }

    pub fn mend(&self) {
        self.weather.send_replace(Weather::Fine);
    }
}

async fn listen(
    address: SocketAddr,
    first: TcpListener,
    server: String,
    mut weather: watch::Receiver<Weather>,
) {
    let mut listener = Some(first);
    let news = weather.clone();
    loop {
        match &listener {
            Some(taking) => tokio::select! {
                client = taking.accept() => {
                    tokio::spawn(pass(client.unwrap().0, server.clone(), news.clone()));
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

async fn pass(client: TcpStream, server: String, mut weather: watch::Receiver<Weather>) {
    // A server that is gone is, to the client, a connection that ends.
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let answers = weather.clone();
    tokio::select! {
        () = copy(from_client, to_server, None) => {}
        () = copy(from_server, to_client, Some(answers)) => {}
        _ = weather.wait_for(|now| *now == Weather::Cut) => {}
    }
}

/// Copies one direction; with `answers`, what comes while the network is deaf is lost.
async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    answers: Option<watch::Receiver<Weather>>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(read @ 1..) = from.read(&mut buffer).await else {
            return;
        };
        let lost = |weather: &watch::Receiver<Weather>| *weather.borrow() == Weather::Deaf;
        if answers.as_ref().is_some_and(lost) {
            continue;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
