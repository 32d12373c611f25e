//! HTTPS without a proxy: certificates from files and of the server's own, and everything else as it
//! is without TLS.

use std::time::Duration;

use pvp_client::{
    ApiClient, ApiError, ConnectOptions, Connection, ConnectionEvent, ConnectionEvents, Link,
};
use pvp_protocol::ServerMessage;
use pvp_protocol::payload::ContextAdd;
use rcgen::KeyPair;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::session::wait_until;
use crate::support::tls::{
    TestAuthority, certificate_in, client_that_trusts, exchange, served_certificate,
};
use crate::support::{TEST_TIMEOUT, TestServer, run_pvp};

const SESSION: &str = "owl";

/// A link for somebody, as `pvp invite` prints it.
fn invite(server: &TestServer, name: &str, role: &str) -> Link {
    Link::parse(&server.invite_link(name, role)).unwrap()
}

async fn whoami(link: &Link) -> Result<String, ApiError> {
    let link = link.clone();
    let asking = tokio::task::spawn_blocking(move || ApiClient::new(link).whoami());
    asking.await.unwrap().map(|me| me.name)
}

/// What a client needs that trusts the certificate of a server alone.
fn own_root(server: &TestServer) -> rustls::ClientConfig {
    let pem = std::fs::read_to_string(server.data.join("tls-certificate.pem")).unwrap();
    client_that_trusts(&pem)
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n")
}

#[tokio::test]
async fn a_self_signed_server_is_known_by_the_key_in_its_links() {
    let server = TestServer::start(&["--tls-self-signed"]).await;
    let link = invite(&server, "ann", "approver");
    assert_eq!(link.base_url(), format!("https://{}", server.address));
    let key = link.fingerprint().expect("links name the key");
    assert_eq!(whoami(&link).await.unwrap(), "ann");

    // Not without the fingerprint, because nobody has signed the certificate.
    let token = link.token().unwrap();
    let bare = Link::parse(&format!("{}/#token={token}", link.base_url())).unwrap();
    let refused = whoami(&bare).await.unwrap_err();
    assert!(matches!(refused, ApiError::Untrusted { .. }), "{refused:?}");

    // And another server that answers at the address gets nothing.
    let other = TestServer::start(&["--tls-self-signed"]).await;
    let elsewhere = format!("https://{}/#token={token}&fp={key}", other.address);
    let elsewhere = Link::parse(&elsewhere).unwrap();
    let refused = whoami(&elsewhere).await.unwrap_err();
    assert!(matches!(refused, ApiError::Untrusted { .. }), "{refused:?}");
    assert!(refused.to_string().contains("another key"), "{refused}");
    let opened = Connection::open(elsewhere, options()).await;
    assert!(opened.is_err());

    // The certificate is for the address, for whoever checks that.
    let request = get("/health", &format!("Host: {}\r\n", server.address));
    let answer = exchange(&server.address, "127.0.0.1", own_root(&server), &request).await;
    assert!(answer.contains("\"ok\""), "{answer}");
    assert!(!answer.contains("strict-transport-security"), "{answer}");
}

fn options() -> ConnectOptions {
    let link = format!("http://h/?session={SESSION}");
    ConnectOptions {
        session: Link::parse(&link).unwrap().session().cloned(),
        ..ConnectOptions::default()
    }
}

async fn open(link: &Link) -> (Connection, ConnectionEvents) {
    let opening = Connection::open(link.clone(), options());
    let opened = tokio::time::timeout(TEST_TIMEOUT, opening).await;
    opened.unwrap().unwrap()
}

async fn create_session(admin: &Link) {
    let api = ApiClient::new(admin.clone());
    let request = json!({ "session": SESSION });
    let request = serde_json::from_value(request).unwrap();
    let creating = tokio::task::spawn_blocking(move || api.create_session(&request));
    creating.await.unwrap().unwrap();
}

/// Reads context entries from the connection until one has this key; returns the keys.
async fn read_until(events: &mut ConnectionEvents, last: &str) -> Vec<String> {
    let mut keys = Vec::new();
    while keys.last().is_none_or(|key| key != last) {
        let event = tokio::time::timeout(TEST_TIMEOUT, events.next()).await;
        let event = event.unwrap().expect("the connection goes on");
        if let ConnectionEvent::Message { envelope, .. } = event
            && let Some(ServerMessage::ContextAdd(added)) = envelope.map(|it| it.message)
        {
            // The server adds some of its own.
            keys.extend(Some(added.key).filter(|key| key.starts_with('k')));
        }
    }
    keys
}

#[tokio::test]
async fn a_session_goes_on_through_tls_when_the_server_is_killed() {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--tls-self-signed"];
    let mut server = TestServer::start_in(data.path(), &flags).await;
    let ann = invite(&server, "ann", "driver");
    let bob = invite(&server, "bob", "observer");
    create_session(&ann).await;
    let (sender, mut senders_events) = open(&ann).await;
    let reading = tokio::spawn(async move { while senders_events.next().await.is_some() {} });
    let (_viewer, mut viewed) = open(&bob).await;
    // Each is larger than what TLS takes at a time.
    let add = async |number: usize| {
        let added: ContextAdd = serde_json::from_value(json!({
            "key": format!("k{number}"), "content_type": "text",
            "content": "x".repeat(40_000), "source": "ann",
        }))
        .unwrap();
        sender.send(added).await.unwrap().ack().await.unwrap();
    };
    for number in 0..20 {
        add(number).await;
    }
    let seen = read_until(&mut viewed, "k19").await;
    assert_eq!(seen.len(), 20);
    let address = server.address.clone();
    server.kill_9().await;
    let server = TestServer::start_on(data.path(), &address, &flags).await;
    for number in 20..25 {
        add(number).await;
    }
    let seen = read_until(&mut viewed, "k24").await;
    assert_eq!(seen, ["k20", "k21", "k22", "k23", "k24"]);
    drop(sender);
    reading.await.unwrap();
    drop(server);
}

#[tokio::test]
async fn another_certificate_is_used_without_a_restart_and_a_bad_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new();
    let files = authority.write_pair(directory.path(), &["localhost"]);
    let log_path = directory.path().join("log");
    let log = std::fs::File::create(&log_path).unwrap();
    let (data, flags) = (tempfile::tempdir().unwrap(), files.flags());
    let server = TestServer::start_with(data.path(), "127.0.0.1:0", &flags, &[], Some(log)).await;
    let served = async || {
        let config = authority.client();
        let served = served_certificate(&server.address, "localhost", config).await;
        served.unwrap()
    };
    let becomes = async |pem: &str| {
        let wanted = certificate_in(pem);
        let waiting = async {
            while served().await != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap();
    };
    let first = std::fs::read_to_string(&files.chain).unwrap();
    assert_eq!(served().await, certificate_in(&first));

    // Told to, with another key.
    let key = KeyPair::generate().unwrap();
    let second = authority.sign(&["localhost"], &key);
    files.write(&second, &key.serialize_pem());
    server.signal("HUP");
    becomes(&second).await;

    // A certificate without its key changes nothing, and is reported.
    let third_key = KeyPair::generate().unwrap();
    let third = authority.sign(&["localhost"], &third_key);
    std::fs::write(&files.chain, &third).unwrap();
    server.signal("HUP");
    let reported = async {
        let is_reported = || {
            let log = std::fs::read_to_string(&log_path).unwrap();
            log.contains("kept the old certificate") && log.contains("not that of the certificate")
        };
        while !is_reported() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, reported).await.unwrap();
    assert_eq!(served().await, certificate_in(&second));

    // Once the key is there too, it is found without being told.
    std::fs::write(&files.key, third_key.serialize_pem()).unwrap();
    becomes(&third).await;
}

#[test]
fn a_server_with_bad_files_does_not_start_and_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let authority = TestAuthority::new();
    let files = authority.write_pair(directory.path(), &["localhost"]);
    let (chain, key) = (
        std::fs::read_to_string(&files.chain).unwrap(),
        std::fs::read_to_string(&files.key).unwrap(),
    );
    let other = KeyPair::generate().unwrap().serialize_pem();
    let damaged = chain.replacen("MII", "AAA", 1);
    let data = directory.path().join("data");
    for (chain, key, problem) in [
        (
            chain.as_str(),
            other.as_str(),
            "not that of the certificate",
        ),
        (key.as_str(), key.as_str(), "there is no certificate"),
        (chain.as_str(), chain.as_str(), "there is no private key"),
        ("", "", "there is no private key"),
        (damaged.as_str(), key.as_str(), "damaged"),
    ] {
        files.write(chain, key);
        let start = [
            "server",
            "--listen",
            "127.0.0.1:0",
            "--data",
            data.to_str().unwrap(),
        ];
        let (good, _, said) = run_pvp(&[&start[..], &files.flags()].concat());
        assert!(!good && said.contains(problem), "{problem}: {said}");
        let is_secret = |line: &str| line.len() > 40 && said.contains(line);
        assert!(!key.lines().any(is_secret), "{said}");
    }
    std::fs::remove_file(&files.chain).unwrap();
    let start = [
        "server",
        "--listen",
        "127.0.0.1:0",
        "--data",
        data.to_str().unwrap(),
    ];
    let (good, _, said) = run_pvp(&[&start[..], &files.flags()].concat());
    assert!(
        !good && said.contains("reading the certificate in"),
        "{said}"
    );
}

/// Opens connections that never finish the handshake.
async fn connect_without_handshake(server: &TestServer, count: usize) -> Vec<TcpStream> {
    let mut slow = Vec::new();
    for number in 0..count {
        let mut tcp = TcpStream::connect(&server.address).await.unwrap();
        // Half of them send the beginning of a record and then nothing.
        if number % 2 == 0 {
            let _ = tcp.write_all(&[0x16, 3, 1, 2, 0, 1]).await;
        }
        slow.push(tcp);
    }
    slow
}

async fn wait_closed(mut tcp: TcpStream) {
    let mut byte = [0];
    let closed = tokio::time::timeout(TEST_TIMEOUT, tcp.read(&mut byte)).await;
    assert!(matches!(closed.unwrap(), Ok(0) | Err(_)));
}

#[tokio::test]
async fn whoever_does_not_finish_the_handshake_in_time_is_sent_away() {
    let (data, log) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new());
    let log = log.unwrap();
    let environment = [("PVP_JOIN_SECONDS", "2"), ("PVP_LOG", "pvp_server=debug")];
    let (flags, file) = (["--tls-self-signed"], log.reopen().unwrap());
    let server =
        TestServer::start_with(data.path(), "127.0.0.1:0", &flags, &environment, Some(file)).await;
    // Fewer than one address may have, so that none has to make room for another.
    let slow = connect_without_handshake(&server, 8).await;
    for tcp in slow {
        wait_closed(tcp).await;
    }
    // A connection is closed before it is logged.
    wait_until("each of them is logged", || {
        let log = std::fs::read_to_string(log.path()).unwrap();
        log.matches("a TLS handshake took too long seconds=2")
            .count()
            == 8
    })
    .await;
}

#[tokio::test]
async fn handshakes_that_nobody_finishes_hold_up_nobody() {
    // They have so much time that each one that ends makes room for another.
    let environment = [
        ("PVP_JOIN_SECONDS", "300"),
        ("PVP_CONNECTIONS_PER_ADDRESS", "40"),
    ];
    let server = TestServer::start_with_env(&["--tls-self-signed"], &environment).await;
    let link = invite(&server, "ann", "approver");
    let mut slow = connect_without_handshake(&server, 100).await;
    // More of them than one address may have, and still whoever logs in is served.
    assert_eq!(whoami(&link).await.unwrap(), "ann");
    // The oldest are gone.
    for tcp in slow.drain(..60) {
        wait_closed(tcp).await;
    }
    assert_eq!(whoami(&link).await.unwrap(), "ann");
}

#[tokio::test]
async fn a_request_without_tls_is_told_where_to_go() {
    let server = TestServer::start(&["--tls-self-signed"]).await;
    let mut tcp = TcpStream::connect(&server.address).await.unwrap();
    let request = get("/?token=pvp_secret", "Host: evil.example\r\n");
    tcp.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 307 "), "{answer}");
    let location = format!("Location: https://{}/\r\n", server.address);
    assert!(answer.contains(&location), "{answer}");
    assert!(
        !answer.contains("evil") && !answer.contains("secret"),
        "{answer}"
    );
}

#[tokio::test]
async fn pages_of_other_origins_are_refused_through_tls_too() {
    let server = TestServer::start(&["--tls-self-signed"]).await;
    let token = server.admin().token;
    let status = async |host: &str, origin: &str| {
        let headers =
            format!("Host: {host}\r\nOrigin: {origin}\r\nAuthorization: Bearer {token}\r\n");
        let request = get("/api/me", &headers);
        let answer = exchange(&server.address, "127.0.0.1", own_root(&server), &request).await;
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let (here, home) = (&server.address, format!("https://{}", server.address));
    assert_eq!(status(here, &home).await, "200");
    for foreign in [
        format!("http://{here}"),
        "https://evil.example".to_owned(),
        "https://127.0.0.1".to_owned(),
        "null".to_owned(),
    ] {
        assert_eq!(status(here, &foreign).await, "403", "{foreign}");
    }
    assert_eq!(status("evil.example", &home).await, "403");
}
