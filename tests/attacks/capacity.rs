//! Wanted: a server that serves nobody else, by strangers, idlers and the greedy.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::audit::assert_intact;
use crate::support::cli::CliEnv;
use crate::support::{
    TEST_TIMEOUT, TestClient, TestServer, TestUser, http_get, http_request, run_pvp,
};

const MIB: u64 = 1024 * 1024;

/// Opens a connection from this address of the loopback, with a small receive buffer.
async fn connect_from(server: &TestServer, address: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    socket
        .bind(format!("{address}:0").parse().unwrap())
        .unwrap();
    let connecting = socket.connect(server.address.parse().unwrap());
    let connected = tokio::time::timeout(TEST_TIMEOUT, connecting).await;
    connected.expect("it connects in time").unwrap()
}

/// Sends the head of a request, and does not read the answer.
async fn send_get(
    server: &TestServer,
    stream: &mut TcpStream,
    path: &str,
    user: Option<&TestUser>,
) {
    let mut head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n", server.address);
    if let Some(user) = user {
        head += &format!("Authorization: Bearer {}\r\n", user.token);
    }
    stream
        .write_all(format!("{head}\r\n").as_bytes())
        .await
        .unwrap();
}

/// Waits until the server has ended this connection.
async fn wait_ended(stream: &mut TcpStream) -> usize {
    let mut received = 0;
    let mut buffer = vec![0; 64 * 1024];
    let reading = async {
        while let Ok(bytes @ 1..) = stream.read(&mut buffer).await {
            received += bytes;
        }
    };
    let ended = tokio::time::timeout(TEST_TIMEOUT, reading).await;
    ended.expect("the server ends the connection");
    received
}

/// How many connections the server says it has, besides the one that asks.
async fn connection_count(server: &TestServer) -> u64 {
    let (status, text) = http_get(&server.address, "/metrics", &[]).await;
    assert_eq!(status, 200, "{text}");
    let line = text
        .lines()
        .find(|line| line.starts_with("pvp_connections "));
    let count: u64 = line.unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    count - 1
}

/// Waits until the server has at most so many connections.
async fn wait_for_connections(server: &TestServer, most: u64) {
    let begun = std::time::Instant::now();
    while connection_count(server).await > most {
        assert!(begun.elapsed() < TEST_TIMEOUT, "they are kept");
        tokio::task::yield_now().await;
    }
}

/// Asserts that somebody with a token can come, act, and be heard.
async fn assert_works(server: &TestServer, session: &str, user: &TestUser) -> TestClient {
    let mut client = server.join(session, user).await;
    client.sync().await;
    client
}

/// A session whose log has about so many bytes, in messages of 512 KiB.
async fn fill_session(server: &TestServer, session: &str, bytes: usize) -> TestUser {
    server.create_session(session, json!({})).await;
    let ann = server.invite("ann", &["driver"], &[]);
    let mut client = server.join(session, &ann).await;
    let content = "x".repeat(512 * 1024);
    for round in 0..bytes / content.len() {
        let kind = if round == 0 {
            "context.add"
        } else {
            "context.update"
        };
        let payload = match round {
            0 => json!({ "key": "k", "content_type": "text", "content": content }),
            _ => json!({ "key": "k", "new_content": content, "reason": "r" }),
        };
        client.send_and_ack(kind, payload).await;
    }
    ann
}

#[tokio::test]
async fn strangers_who_ask_and_do_not_read_get_neither_memory_nor_places() {
    let server = TestServer::start_with_env(&[], &[("PVP_STALL_SECONDS", "1")]).await;
    server.create_session("calm", json!({})).await;
    let ann = server.invite("ann", &["driver"], &[]);
    let before = server.peak_memory();
    let mut idlers = Vec::new();
    for _ in 0..100 {
        let mut idler = connect_from(&server, "127.0.0.1").await;
        // More answers than the buffers of both systems hold.
        for _ in 0..40 {
            send_get(&server, &mut idler, "/openapi.json", None).await;
        }
        idlers.push(idler);
    }
    assert_works(&server, "calm", &ann).await;
    wait_for_connections(&server, 0).await;
    let grown = server.peak_memory().saturating_sub(before);
    assert!(grown < 64 * MIB, "{grown} bytes more");
    for mut idler in idlers {
        wait_ended(&mut idler).await;
    }
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_does_not_keep_its_place() {
    let server = TestServer::start_with_env(&[], &[("PVP_STALL_SECONDS", "1")]).await;
    let ann = server.invite("ann", &["driver"], &[]);
    let mut stream = connect_from(&server, "127.0.0.1").await;
    let head = format!(
        "POST /api/sessions HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n",
        server.address, ann.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (mut input, mut output) = stream.split();
    let drip = async {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(20));
        loop {
            pace.tick().await;
            if output.write_all(b" ").await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let mut answer = Vec::new();
    let answered = async {
        tokio::select! {
            read = input.read_to_end(&mut answer) => drop(read),
            () = drip => {}
        }
    };
    let answered = tokio::time::timeout(TEST_TIMEOUT / 3, answered).await;
    answered.expect("the server gives up on it");
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(
        answer.contains("4096 bytes are due every 1 seconds"),
        "{answer}"
    );
    wait_for_connections(&server, 0).await;
}

#[tokio::test]
async fn a_head_that_comes_byte_by_byte_does_not_keep_its_place() {
    let server = TestServer::start_with_env(&[], &[("PVP_JOIN_SECONDS", "1")]).await;
    let mut stream = connect_from(&server, "127.0.0.1").await;
    let (mut input, mut output) = stream.split();
    let drip = async {
        let mut pace = tokio::time::interval(std::time::Duration::from_millis(20));
        for byte in "GET / HTTP/1.1\r\nX: "
            .bytes()
            .chain(std::iter::repeat(b'x'))
        {
            pace.tick().await;
            if output.write_all(&[byte]).await.is_err() {
                break;
            }
        }
    };
    let mut answer = Vec::new();
    let both = async { tokio::join!(drip, input.read_to_end(&mut answer)).0 };
    let ended = tokio::time::timeout(TEST_TIMEOUT / 3, both).await;
    ended.expect("the server gives up on it");
    wait_for_connections(&server, 0).await;
    let idle = connect_from(&server, "127.0.0.1").await;
    wait_for_connections(&server, 0).await;
    drop(idle);
}

#[tokio::test]
async fn strangers_cannot_take_the_places_of_those_who_can_log_in() {
    let few = [("PVP_CONNECTIONS", "20"), ("PVP_RESERVED_PERCENT", "60")];
    let server = TestServer::start_with_env(&[], &few).await;
    server.create_session("calm", json!({})).await;
    let ann = server.invite("ann", &["driver"], &[]);
    let mut first = server.join("calm", &ann).await;
    let mut strangers = Vec::new();
    for _ in 0..60 {
        strangers.push(connect_from(&server, "127.0.0.1").await);
    }
    // Who has joined stays, and 11 more find a place, whatever comes meanwhile.
    let mut joined = Vec::new();
    for _ in 0..11 {
        joined.push(assert_works(&server, "calm", &ann).await);
        strangers.push(connect_from(&server, "127.0.0.1").await);
        strangers.push(connect_from(&server, "127.0.0.1").await);
    }
    for client in joined.iter_mut().chain([&mut first]) {
        client.sync().await;
    }
    // A stranger is served too: only the oldest of them had to go.
    assert_eq!(http_get(&server.address, "/health", &[]).await.0, 200);
    wait_for_connections(&server, 20).await;
    for stranger in strangers.iter_mut().take(50) {
        wait_ended(stranger).await;
    }
}

#[tokio::test]
async fn one_address_does_not_take_the_places_of_another() {
    let few = [("PVP_CONNECTIONS_PER_ADDRESS", "4")];
    let server = TestServer::start_with_env(&[], &few).await;
    let mut neighbour = connect_from(&server, "127.0.0.3").await;
    let mut greedy = Vec::new();
    for _ in 0..12 {
        greedy.push(connect_from(&server, "127.0.0.2").await);
    }
    for stream in &mut greedy[..8] {
        wait_ended(stream).await;
    }
    // A connection counts until the server has noticed that it is over, also the one that asks.
    wait_for_connections(&server, 5).await;
    assert!(connection_count(&server).await >= 5);
    send_get(&server, &mut neighbour, "/health", None).await;
    let mut answer = [0; 12];
    neighbour.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn one_token_does_not_hold_many_answers_that_nobody_reads() {
    let few = [("PVP_REQUESTS_PER_TOKEN", "3"), ("PVP_STALL_SECONDS", "3")];
    let server = TestServer::start_with_env(&[], &few).await;
    let ann = fill_session(&server, "long", 12 * MIB as usize).await;
    let eve = server.invite("eve", &["observer"], &[]);
    let mut unread = Vec::new();
    for _ in 0..3 {
        let mut stream = connect_from(&server, "127.0.0.1").await;
        send_get(
            &server,
            &mut stream,
            "/sessions/long/transcript",
            Some(&eve),
        )
        .await;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        unread.push(stream);
    }
    let bearer = |user: &TestUser| format!("Bearer {}", user.token);
    let (status, body) = http_get(
        &server.address,
        "/api/me",
        &[("Authorization", &bearer(&eve))],
    )
    .await;
    assert_eq!(status, 429, "{body}");
    assert!(body.contains("too many requests with one token"), "{body}");
    // Others are not affected, and once the unread ones are given up there is room again.
    let (status, _) = http_get(
        &server.address,
        "/api/me",
        &[("Authorization", &bearer(&ann))],
    )
    .await;
    assert_eq!(status, 200);
    wait_for_connections(&server, 0).await;
    let (status, body) = http_get(
        &server.address,
        "/api/me",
        &[("Authorization", &bearer(&eve))],
    )
    .await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn transcripts_that_nobody_reads_cost_little_memory() {
    let server = TestServer::start(&[]).await;
    let ann = fill_session(&server, "long", 16 * MIB as usize).await;
    let before = server.peak_memory();
    let mut unread = Vec::new();
    for number in 0..20 {
        let mut stream = connect_from(&server, "127.0.0.1").await;
        let path = format!("/sessions/long/transcript?after={}", number % 2);
        send_get(&server, &mut stream, &path, Some(&ann)).await;
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(&status, b"HTTP/1.1 200");
        unread.push(stream);
    }
    // Who reads gets all of it.
    let messages = server.transcript("long", &ann).await;
    assert!(messages.len() > 30, "{}", messages.len());
    let grown = server.peak_memory().saturating_sub(before);
    assert!(grown < 96 * MIB, "{grown} bytes more");
}

#[tokio::test]
async fn only_so_many_transcripts_are_sent_at_a_time() {
    let server = TestServer::start_with_env(&[], &[("PVP_TRANSCRIPTS", "2")]).await;
    let ann = fill_session(&server, "long", 12 * MIB as usize).await;
    let path = "/sessions/long/transcript";
    let bearer = format!("Bearer {}", ann.token);
    let mut unread = Vec::new();
    for _ in 0..2 {
        let mut stream = connect_from(&server, "127.0.0.1").await;
        send_get(&server, &mut stream, path, Some(&ann)).await;
        stream.read_exact(&mut [0; 12]).await.unwrap();
        unread.push(stream);
    }
    let (status, body) = http_get(&server.address, path, &[("Authorization", &bearer)]).await;
    assert_eq!(status, 429, "{body}");
    assert!(body.contains("too many transcripts at a time"), "{body}");
    drop(unread);
    let begun = std::time::Instant::now();
    while http_get(&server.address, path, &[("Authorization", &bearer)])
        .await
        .0
        != 200
    {
        assert!(
            begun.elapsed() < TEST_TIMEOUT,
            "the place is not given back"
        );
    }
}

#[tokio::test]
async fn documents_for_strangers_are_made_once_and_compressed() {
    let server = TestServer::start(&[]).await;
    for path in ["/openapi.json", "/schema.json"] {
        let (status, plain) = http_get(&server.address, path, &[]).await;
        assert_eq!(status, 200);
        let url = format!("http://{}{path}", server.address);
        let output = std::process::Command::new("curl")
            .args([
                "-s",
                "--compressed",
                "-w",
                "%{stderr}%{size_download}",
                &url,
            ])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), plain, "{path}");
        let sent: usize = String::from_utf8(output.stderr).unwrap().parse().unwrap();
        assert!(sent < plain.len() / 3, "{path}: {sent} of {}", plain.len());
        let refused = [("Accept-Encoding", "gzip;q=0, br")];
        assert_eq!(http_get(&server.address, path, &refused).await.1, plain);
    }
}

/// Makes a session over HTTP; returns the status and the answer.
async fn make_session(server: &TestServer, user: &TestUser) -> (u16, Value) {
    let bearer = format!("Bearer {}", user.token);
    let headers = [("Authorization", bearer.as_str())];
    let (status, body) =
        http_request(&server.address, "POST", "/api/sessions", &headers, "{}").await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn one_driver_cannot_make_sessions_until_nobody_else_can() {
    let few = [("PVP_SESSIONS_PER_HOUR", "5"), ("PVP_SESSIONS", "50")];
    let server = TestServer::start_with_env(&[], &few).await;
    let (greedy, other) = (
        server.invite("greedy", &["driver"], &[]),
        server.invite("other", &["driver"], &[]),
    );
    for _ in 0..5 {
        assert_eq!(make_session(&server, &greedy).await.0, 201);
    }
    for _ in 0..10 {
        let (status, refusal) = make_session(&server, &greedy).await;
        assert_eq!(status, 429, "{refusal}");
        assert_eq!(
            refusal["message"],
            "your token has used up its quota: `sessions_per_hour` is 5; try again later"
        );
    }
    // The same on a socket.
    let mut socket = server.connect(&greedy).await;
    socket.session = "one-more".to_owned();
    let id = socket.send("session.create", json!({ "config": {} })).await;
    assert_eq!(socket.expect_refusal(&id).await["code"], "RATE_LIMITED");
    assert_eq!(make_session(&server, &other).await.0, 201);
    let listed = http_get(
        &server.address,
        "/api/sessions",
        &[("Authorization", &format!("Bearer {}", other.token))],
    )
    .await;
    let listed: Value = serde_json::from_str(&listed.1).unwrap();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 6);
}

#[tokio::test]
async fn open_sessions_of_one_token_are_limited_even_after_a_restart() {
    let few = [("PVP_OPEN_SESSIONS_PER_TOKEN", "3")];
    let data = tempfile::tempdir().unwrap();
    let start = || TestServer::start_with(data.path(), "127.0.0.1:0", &[], &few, None);
    let server = start().await;
    let admin_token = server.admin_token.clone();
    let greedy = server.invite("greedy", &["driver"], &[]);
    let mut made = Vec::new();
    for _ in 0..3 {
        made.push(make_session(&server, &greedy).await.1["session"].clone());
    }
    let sentence = "your token has used up its quota: `open_sessions_per_token` is 3; end a session that you have made";
    let (status, refusal) = make_session(&server, &greedy).await;
    assert_eq!((status, &refusal["message"]), (429, &json!(sentence)));
    server.stop().await;
    let server = start().await;
    let (status, refusal) = make_session(&server, &greedy).await;
    assert_eq!((status, &refusal["message"]), (429, &json!(sentence)));
    let other = server.invite("other", &["driver"], &[]);
    assert_eq!(make_session(&server, &other).await.0, 201);
    // Driving does not include ending, so that an admin does it.
    let admin = TestUser {
        token: admin_token.unwrap(),
        participant: "admin".to_owned(),
        roles: vec!["admin".to_owned()],
        agent: false,
    };
    let mut client = server.join(made[0].as_str().unwrap(), &admin).await;
    client
        .send_and_ack(
            "session.end",
            json!({ "reason": "r", "final_state": "completed" }),
        )
        .await;
    assert_eq!(make_session(&server, &greedy).await.0, 201);
}

#[tokio::test]
async fn a_context_key_cannot_be_updated_until_the_disk_is_full() {
    let few = [("PVP_CONTEXT_UPDATE_BYTES", "2097152")];
    let data = tempfile::tempdir().unwrap();
    let start = || TestServer::start_with(data.path(), "127.0.0.1:0", &[], &few, None);
    let mut server = start().await;
    let ann = fill_session(&server, "wide", MIB as usize).await;
    let content = "y".repeat(512 * 1024);
    let update = json!({ "key": "k", "new_content": content, "reason": "r" });
    let mut refused = None;
    for round in 0..10 {
        // The count survives a crash.
        if round == 1 {
            server.kill_9().await;
            server = start().await;
        }
        let mut client = server.join("wide", &ann).await;
        let id = client.send("context.update", update.clone()).await;
        let answer = client.answer(&id).await;
        if answer["type"] == "error" {
            refused = Some((round, answer["payload"].clone()));
            break;
        }
    }
    let (round, refusal) = refused.expect("it is refused at some time");
    assert!((1..=3).contains(&round), "{round}");
    assert_eq!(
        refusal["message"],
        "session `wide` has used up its quota: `context_update_bytes` is 2097152 bytes; end it and create another, or ask the operator of the server to raise the quota"
    );
    // Everything else goes on.
    let mut client = assert_works(&server, "wide", &ann).await;
    client
        .send_and_ack("context.remove", json!({ "key": "k", "reason": "r" }))
        .await;
    assert!(
        server
            .log("wide")
            .iter()
            .map(|line| line.to_string().len())
            .sum::<usize>()
            < 4 * MIB as usize
    );
}

#[tokio::test]
async fn one_session_does_not_fill_the_disk() {
    let few = [("PVP_SESSION_LOG_BYTES", "2097152")];
    let server = TestServer::start_with_env(&[], &few).await;
    let ann = fill_session(&server, "wide", MIB as usize).await;
    server.create_session("calm", json!({})).await;
    let mut client = server.join("wide", &ann).await;
    let content = "z".repeat(512 * 1024);
    let mut refused = None;
    for _ in 0..20 {
        let update = json!({ "key": "k", "new_content": content, "reason": "r" });
        let id = client.send("context.update", update).await;
        let answer = client.answer(&id).await;
        if answer["type"] == "error" {
            refused = Some(answer["payload"].clone());
            break;
        }
    }
    assert_eq!(
        refused.expect("it is refused at some time")["message"],
        "session `wide` has used up its quota: `session_log_bytes` is 2097152 bytes; end it and create another, or ask the operator of the server to raise the quota"
    );
    let written: usize = server
        .log("wide")
        .iter()
        .map(|line| line.to_string().len())
        .sum();
    assert!(written < 4 * MIB as usize, "{written}");
    // It can still be ended, and other sessions go on.
    assert_works(&server, "calm", &ann).await;
    end_session(&server, "wide").await;
}

/// Ends a session as the admin; returns where its log then ends.
async fn end_session(server: &TestServer, session: &str) -> u64 {
    let mut admin = server.join(session, &server.admin()).await;
    admin
        .send_and_ack(
            "session.end",
            json!({ "reason": "over", "final_state": "completed" }),
        )
        .await
}

/// Sends a request of a user for a session; returns the status and the body.
async fn about_session(
    server: &TestServer,
    method: &str,
    session: &str,
    user: &TestUser,
) -> (u16, String) {
    let bearer = format!("Bearer {}", user.token);
    let headers = [("Authorization", bearer.as_str())];
    let path = format!("/api/sessions/{session}");
    http_request(&server.address, method, &path, &headers, "").await
}

#[tokio::test]
async fn a_session_is_not_destroyed_by_others_than_admins_of_the_server() {
    let server = TestServer::start(&[]).await;
    server.create_session("kept", json!({})).await;
    let driver = server.invite("dee", &["driver", "approver"], &[]);
    let bound = server.invite("ben", &["admin"], &["--session", "kept"]);
    let admin = server.admin();
    let open = about_session(&server, "DELETE", "kept", &admin).await;
    assert_eq!(open.0, 409, "{}", open.1);
    assert!(open.1.contains("has not ended; end it first"), "{}", open.1);
    end_session(&server, "kept").await;
    let before = server.log("kept");
    for user in [&driver, &bound] {
        for (method, path) in [("DELETE", "kept"), ("GET", "kept/archive")] {
            let (status, body) = about_session(&server, method, path, user).await;
            assert_eq!(status, 403, "{body}");
        }
    }
    let nobody = http_request(&server.address, "DELETE", "/api/sessions/kept", &[], "").await;
    assert_eq!(nobody.0, 401);
    let other = about_session(&server, "DELETE", "kept?head=1", &admin).await;
    assert_eq!(other.0, 409, "{}", other.1);
    assert_eq!(server.log("kept"), before);
}

#[tokio::test]
async fn a_deleted_session_leaves_a_tombstone_and_its_id_is_not_used_again() {
    let data = tempfile::tempdir().unwrap();
    let mut server = TestServer::start_in(data.path(), &[]).await;
    let admin = server.admin();
    server.create_session("stays", json!({})).await;
    let ann = fill_session(&server, "goes", 2 * MIB as usize).await;
    let mut neighbour = server.join("stays", &ann).await;
    end_session(&server, "goes").await;
    let mut witness = server.join("goes", &ann).await;
    let cli = CliEnv::logged_in(&server.link(&admin, None)).await;
    let file = cli.workdir().join("goes.jsonl");
    let file = file.to_str().unwrap();
    cli.run_ok(&["sessions", "archive", "goes", "--to", file])
        .await;
    let archived = std::fs::read(file).unwrap();
    cli.run_refused(&["sessions", "archive", "goes", "--to", file])
        .await;
    assert_eq!(std::fs::read(file).unwrap(), archived);
    let other = ["sessions", "delete", "stays", "--archived", file];
    let problem = cli.run_refused(&other).await;
    assert!(problem.contains("is not an archive of stays"), "{problem}");
    cli.run_ok(&["sessions", "delete", "goes", "--archived", file])
        .await;
    // Whoever was connected is told, and comes to nothing by coming again.
    assert_eq!(witness.wait_closed().await, Some(1008));
    let mut again = server.connect(&ann).await;
    again.session = "goes".to_owned();
    let join = json!({ "participant": ann.announce(), "supported_versions": [1] });
    let id = again.send("session.join", join).await;
    let sentence = "session `goes` was deleted by an admin; create one with another id";
    let refusal = again.expect_refusal(&id).await;
    assert_eq!(
        (&refusal["code"], &refusal["message"]),
        (&json!("SESSION_NOT_FOUND"), &json!(sentence))
    );
    let mut maker = server.connect(&admin).await;
    maker.session = "goes".to_owned();
    for round in 0..2 {
        let id = maker.send("session.create", json!({ "config": {} })).await;
        assert_eq!(maker.expect_refusal(&id).await["message"], sentence);
        let (status, body) = about_session(&server, "GET", "goes", &ann).await;
        assert_eq!(status, 404, "{body}");
        assert!(body.contains("was deleted"), "{body}");
        // Others go on, also after a crash.
        neighbour.sync().await;
        if round == 0 {
            server.kill_9().await;
            server = TestServer::start_in(data.path(), &[]).await;
            server.admin_token = Some(admin.token.clone());
            neighbour = server.join("stays", &ann).await;
            maker = server.connect(&admin).await;
            maker.session = "goes".to_owned();
        }
    }
    let report = assert_intact(&server.data);
    let tombstone = &report["tombstones"][0];
    assert_eq!(tombstone["tombstone"]["session"], "goes");
    assert_eq!(tombstone["tombstone"]["by"], "admin");
    assert_eq!(tombstone["finding"], Value::Null);
    let archive = cli
        .run_json(&["audit", "verify", "--export", file, "--json"])
        .await;
    assert_eq!(
        archive["sessions"][0]["head"],
        tombstone["tombstone"]["head"]
    );
    assert_eq!(
        archive["sessions"][0]["entries"],
        tombstone["tombstone"]["entries"]
    );
    // Nothing of it is left, and a new session takes nothing over.
    server.create_session("new", json!({})).await;
    let taken_over = |entry: &&Value| entry["session"] != "new" || entry.to_string().len() > 4096;
    assert_eq!(server.entries("new").iter().find(taken_over), None);
    server.request_stop();
    server.wait_stopped().await;
    let database = std::fs::read(server.data.join("pvp.sqlite3")).unwrap();
    let trace = "x".repeat(4096);
    assert!(
        !database
            .windows(4096)
            .any(|window| window == trace.as_bytes())
    );
}

#[tokio::test]
async fn a_crash_in_the_middle_leaves_a_session_whole_or_deleted() {
    for round in 0..4_u32 {
        let data = tempfile::tempdir().unwrap();
        let mut server = TestServer::start_in(data.path(), &[]).await;
        let admin = server.admin();
        server.create_session("stays", json!({})).await;
        let ann = fill_session(&server, "goes", 12 * MIB as usize).await;
        let entries = end_session(&server, "goes").await;
        let mut stream = TcpStream::connect(&server.address).await.unwrap();
        let head = format!(
            "DELETE /api/sessions/goes HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            server.address, admin.token
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // The later rounds kill it later: when others may not see it any more, or when it answers.
        match round {
            0 => {}
            1 | 2 => while about_session(&server, "GET", "goes", &ann).await.0 == 200 {},
            _ => drop(stream.read_exact(&mut [0; 12]).await.unwrap()),
        }
        server.kill_9().await;
        drop(server);
        let mut server = TestServer::start_in(data.path(), &[]).await;
        server.admin_token = Some(admin.token.clone());
        let report = assert_intact(data.path());
        let (status, body) = about_session(&server, "GET", "goes", &ann).await;
        match status {
            200 => {
                assert_eq!(round, 0, "it was gone");
                assert_eq!(server.entries("goes").len() as u64, entries);
                assert_eq!(
                    about_session(&server, "DELETE", "goes", &admin).await.0,
                    200
                );
            }
            _ => {
                assert!(body.contains("was deleted"), "{body}");
                assert_eq!(report["tombstones"][0]["tombstone"]["entries"], entries);
            }
        }
        assert_works(&server, "stays", &ann).await;
        assert_eq!(server.entries("goes").len(), 0);
    }
}

#[tokio::test]
async fn sessions_that_ended_long_ago_are_archived_and_deleted() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let admin = server.admin();
    for session in ["old", "open", "fresh"] {
        server.create_session(session, json!({})).await;
    }
    end_session(&server, "old").await;
    end_session(&server, "fresh").await;
    server.stop().await;
    let old = server_log(data.path(), "old");
    let database = rusqlite::Connection::open(data.path().join("pvp.sqlite3")).unwrap();
    let age = "UPDATE sessions SET updated_at = updated_at - 3 * 86400000 WHERE id <> 'fresh'";
    database.execute(age, []).unwrap();
    drop(database);
    let archives = tempfile::tempdir().unwrap();
    let keep = [
        ("PVP_RETENTION_DAYS", "2"),
        ("PVP_ARCHIVE_DIRECTORY", archives.path().to_str().unwrap()),
    ];
    let server = TestServer::start_with(data.path(), "127.0.0.1:0", &[], &keep, None).await;
    let begun = std::time::Instant::now();
    while about_session(&server, "GET", "old", &admin).await.0 != 404 {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it is kept");
    }
    for session in ["open", "fresh"] {
        assert_eq!(about_session(&server, "GET", session, &admin).await.0, 200);
    }
    let mut names: Vec<_> = std::fs::read_dir(archives.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, [".gitignore", "old.jsonl"]);
    let archive = std::fs::read_to_string(archives.path().join("old.jsonl")).unwrap();
    assert_eq!(archive.lines().count(), old.len());
    let report = assert_intact(data.path());
    assert_eq!(
        report["tombstones"][0]["tombstone"]["by"],
        "server (retention)"
    );
}

/// Every line of a session's export.
fn server_log(data: &std::path::Path, session: &str) -> Vec<String> {
    let data = data.to_str().unwrap();
    let (good, out, problem) = run_pvp(&["audit", "export", "--data", data, "--session", session]);
    assert!(good, "{problem}");
    out.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_tombstone_cannot_be_forged_or_covered_up() {
    let data = tempfile::tempdir().unwrap();
    let server = TestServer::start_in(data.path(), &[]).await;
    let admin = server.admin();
    for session in ["goes", "stays"] {
        server.create_session(session, json!({})).await;
    }
    end_session(&server, "goes").await;
    assert_eq!(
        about_session(&server, "DELETE", "goes", &admin).await.0,
        200
    );
    server.stop().await;
    assert_intact(data.path());
    let path = data.path().to_str().unwrap().to_owned();
    let database = rusqlite::Connection::open(data.path().join("pvp.sqlite3")).unwrap();
    for (edit, undo, part) in [
        (
            "UPDATE tombstones SET deleted_by = 'ann'",
            "UPDATE tombstones SET deleted_by = 'admin'",
            "false signature",
        ),
        (
            "UPDATE tombstones SET entries = entries + 1",
            "UPDATE tombstones SET entries = entries - 1",
            "false signature",
        ),
        (
            "UPDATE tombstones SET session = 'stays'",
            "UPDATE tombstones SET session = 'goes'",
            "although it was deleted",
        ),
    ] {
        database.execute(edit, []).unwrap();
        let (good, out, problem) = run_pvp(&["audit", "verify", "--data", &path]);
        assert!(!good && out.contains(part), "{edit}: {out} {problem}");
        database.execute(undo, []).unwrap();
    }
    drop(database);
    // A rotation signs it again, and a full export carries it.
    let (good, _, problem) = run_pvp(&["server", "rotate-key", "--data", &path]);
    assert!(good, "{problem}");
    let report = assert_intact(data.path());
    assert_eq!(report["tombstones"][0]["tombstone"]["key"], report["key"]);
    let export = data.path().join("all.jsonl");
    let export = export.to_str().unwrap();
    assert!(run_pvp(&["audit", "export", "--data", &path, "--out", export]).0);
    let (good, out, problem) = run_pvp(&["audit", "verify", "--export", export]);
    assert!(good && out.contains("goes: deleted at "), "{out} {problem}");
    let text = std::fs::read_to_string(export).unwrap();
    std::fs::write(
        export,
        text.replace("\"by\":\"admin\"", "\"by\":\"someone\""),
    )
    .unwrap();
    let (good, out, _) = run_pvp(&["audit", "verify", "--export", export]);
    assert!(!good && out.contains("false signature"), "{out}");
}
