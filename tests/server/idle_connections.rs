//! The server closes connections that send nothing, or too little.

use crate::support::{TEST_TIMEOUT, TestServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Sends this and reads until the server closes the connection; returns what it answered.
async fn send_and_read_until_closed(server: &TestServer, said: &str) -> String {
    let mut stream = TcpStream::connect(&server.address).await.unwrap();
    stream.write_all(said.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer);
    tokio::time::timeout(TEST_TIMEOUT, reading)
        .await
        .expect("the server closes it")
        .unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_connection_that_makes_no_request_is_closed() {
    // Long enough for a busy machine to send the first bytes.
    let server = TestServer::start_with_env(&[], &[("PVP_JOIN_SECONDS", "5")]).await;
    let host = format!("Host: {}\r\n", server.address);
    let upgrade = format!(
        "GET /ws HTTP/1.1\r\n{host}Connection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    );
    // Nothing, the start of an HTTP/2 preface, and a header that never ends.
    let (nothing, beginning, half, answer) = tokio::join!(
        send_and_read_until_closed(&server, ""),
        send_and_read_until_closed(&server, "PRI"),
        send_and_read_until_closed(&server, "GET / HTTP/1.1\r\nHost: x"),
        send_and_read_until_closed(&server, &upgrade),
    );
    assert_eq!([nothing, beginning, half], ["", "", ""]);
    // A WebSocket that never joins gets a reason.
    assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
    assert!(answer.contains("not joined within 5 seconds"), "{answer}");
}
