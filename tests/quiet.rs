//! Connections that say nothing, or too little, do not stay.

#![allow(
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

mod kit;

use kit::{PATIENCE, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends this and waits until the server has closed the connection; what it answered.
async fn left_alone(server: &Server, said: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    stream.write_all(said.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("the server closes it")
        .unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_connection_that_makes_no_request_is_closed() {
    let data = tempfile::tempdir().unwrap();
    let config = data.path().join("pvp.toml");
    std::fs::write(&config, "join_seconds = 1\n").unwrap();
    let server = Server::start(&["--config", config.to_str().unwrap()]).await;
    let host = format!("Host: {}\r\n", server.address);
    assert_eq!(left_alone(&server, "").await, "");
    // The beginning of what HTTP/2 would say, and a header that never ends.
    assert_eq!(left_alone(&server, "PRI").await, "");
    assert_eq!(left_alone(&server, "GET / HTTP/1.1\r\nHost: x").await, "");
    // A WebSocket that never joins is told why.
    let upgrade = format!(
        "GET /ws HTTP/1.1\r\n{host}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    let answer = left_alone(&server, &upgrade).await;
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    assert!(answer.contains("not joined within 1 seconds"), "{answer}");
}
