//! One table of refusals, each tried on a WebSocket and over HTTP: the same message from the same
//! caller gets the same error code and the same text.

use serde_json::{Value, json};

use crate::fixture::{SESSION, context_payload};
use crate::http_client::join_payload;
use crate::refusal_case::{
    CallerState, HttpWay, INVALID_MESSAGE, RefusalCase, SocketWay, UNAUTHORIZED,
    assert_all_refused, envelope, mismatch, post, revoke, with,
};
use crate::support::{TestClient, TestServer, TestUser};

fn without_token(user: &TestUser) -> TestUser {
    TestUser {
        token: String::new(),
        ..user.clone()
    }
}

/// The users of a server with login.
struct TableUsers {
    /// Driver, approver and admin.
    ann: TestUser,
    /// Approver; not joined.
    bob: TestUser,
    /// Observer.
    eve: TestUser,
    /// An agent.
    bot: TestUser,
    /// Driver of another session.
    bound: TestUser,
}

impl TableUsers {
    async fn invite(server: &TestServer) -> Self {
        let users = Self {
            ann: server.invite("ann", &["driver", "approver", "admin"], &[]),
            bob: server.invite("bob", &["approver"], &[]),
            eve: server.invite("eve", &["observer"], &[]),
            bot: server.invite("bot", &["driver"], &["--kind", "agent"]),
            bound: server.invite("kim", &["driver"], &["--session", "other"]),
        };
        for user in [&users.ann, &users.eve, &users.bot] {
            server.join(SESSION, user).await;
        }
        users
    }
}

#[tokio::test]
async fn a_participants_message_is_refused_alike_on_socket_and_http() {
    let small = [("PVP_MESSAGE_BYTES", "16384"), ("PVP_JSON_DEPTH", "16")];
    let server = TestServer::start_with_env(&[], &small).await;
    server.create_session(SESSION, json!({})).await;
    server.create_session("other", json!({})).await;
    let users = TableUsers::invite(&server).await;
    let (ann, bob, eve, bot) = (&users.ann, &users.bob, &users.eve, &users.bot);
    let mut agent = server.join(SESSION, bot).await;
    let proposal = agent.propose("touch a").await;
    let joined = |user| (user, CallerState::Joined);
    let note = || envelope(&ann.participant, "context.add", context_payload("k"));
    let vote = |user: &TestUser| {
        let payload = json!({ "gate": proposal, "approver": user.participant });
        envelope(&user.participant, "gate.approve", payload)
    };
    let deep = format!("{}{}", "[".repeat(17), "]".repeat(17));
    let deep = note().to_string().replace("\"c\"", &deep);
    let twice =
        note()
            .to_string()
            .replacen('{', &format!("{{\"sender\":\"{}\",", bob.participant), 1);
    let big = with(
        note(),
        json!({ "payload": { "key": "k", "content_type": "text", "content": "x".repeat(16384) } }),
    );
    #[rustfmt::skip]
    let cases = [
        RefusalCase::new("sender is somebody else", joined(ann), with(note(), json!({ "sender": bob.participant })))
            .refused(403, UNAUTHORIZED, mismatch(&ann.participant, "sender", &bob.participant)),
        RefusalCase::new("sender is nobody", joined(ann), with(note(), json!({ "sender": "nobody-at-all" })))
            .refused(403, UNAUTHORIZED, mismatch(&ann.participant, "sender", "nobody-at-all")),
        RefusalCase::new("sender is the server", joined(ann), with(note(), json!({ "sender": "system" })))
            .refused(403, UNAUTHORIZED, "`system` is reserved for the server"),
        RefusalCase::new("two senders", joined(ann), twice)
            .refused(400, INVALID_MESSAGE, "not a PVP message: duplicate field `sender`"),
        RefusalCase::new("another session", joined(ann), with(note(), json!({ "session": "other" })))
            .refused(400, INVALID_MESSAGE, format!("this is session `{SESSION}`; `session` may not say `other`")),
        RefusalCase::new("another version", joined(ann), with(note(), json!({ "v": 2 })))
            .refused(400, INVALID_MESSAGE, "`v` is 2; this server speaks version 1"),
        RefusalCase::new("no type", joined(ann), with(note(), json!({ "type": null })))
            .refused(400, INVALID_MESSAGE, "not a PVP message: invalid type: null, expected a string"),
        RefusalCase::new("unknown type", joined(ann), with(note(), json!({ "type": "nonsense" })))
            .refused(400, INVALID_MESSAGE, "clients cannot send `nonsense`"),
        RefusalCase::new("a type of the server", joined(ann), with(note(), json!({ "type": "tool.execute" })))
            .refused(400, INVALID_MESSAGE, "clients cannot send `tool.execute`"),
        RefusalCase::new("a field is missing", joined(ann), with(note(), json!({ "payload": { "key": "k" } })))
            .refused(400, INVALID_MESSAGE, "`context.add`: missing field `content_type`"),
        RefusalCase::new("an invalid id", joined(ann), with(note(), json!({ "id": "../x" })))
            .refused(400, INVALID_MESSAGE, "not a PVP message: an id has '.' at position 0; use A-Z a-z 0-9 _ . : - and begin with a letter or digit"),
        RefusalCase::new("half a message", joined(ann), r#"{"v":1,"id":"half""#)
            .refused(400, INVALID_MESSAGE, "not a PVP message: EOF while parsing an object"),
        RefusalCase::new("a list", joined(ann), format!("[{}]", note()))
            .refused(400, INVALID_MESSAGE, "a message is one JSON object"),
        RefusalCase::new("a word", joined(ann), "hello")
            .refused(400, INVALID_MESSAGE, "a message is one JSON object"),
        RefusalCase::new("nothing", joined(ann), "")
            .refused(400, INVALID_MESSAGE, "a message is one JSON object"),
        RefusalCase::new("nested too deep", joined(ann), deep)
            .refused(400, INVALID_MESSAGE, "JSON is nested deeper than 16 levels"),
        RefusalCase::new("too big", joined(ann), big)
            .refused(413, INVALID_MESSAGE, "message is larger than 16384 bytes")
            .on_socket(SocketWay::Closed(1009)),
        RefusalCase::new("a fork", joined(ann), with(note(), json!({ "fork": "f" })))
            .refused(409, "INVALID_STATE", "forks and merges are not available on this server"),
        RefusalCase::new("a vote of an observer", joined(eve), vote(eve))
            .refused(403, UNAUTHORIZED, "you need the capability `approve`; ask an admin for a role that has it"),
        RefusalCase::new("a vote of an agent", joined(bot), vote(bot))
            .refused(403, UNAUTHORIZED, "agents do not vote; a person has to decide"),
        RefusalCase::new("a vote in another name", joined(ann), with(vote(bob), json!({ "sender": ann.participant })))
            .refused(403, UNAUTHORIZED, mismatch(&ann.participant, "approver", &bob.participant)),
        RefusalCase::new("context of an observer", joined(eve), with(note(), json!({ "sender": eve.participant })))
            .refused(403, UNAUTHORIZED, "you need the capability `add_context`; ask an admin for a role that has it"),
        RefusalCase::new("output of nothing", joined(bot), envelope(&bot.participant, "tool.output", json!({ "tool_proposal": "none", "stream": "stdout", "text": "x", "complete": false })))
            .refused(404, "INVALID_STATE", "there is no proposal `none`"),
        RefusalCase::new("a command of the wrong kind of participant", joined(ann), envelope(&ann.participant, "tool.propose", TestClient::proposal(&agent, "ls")))
            .refused(403, UNAUTHORIZED, "only agents may send this"),
        RefusalCase::new("creating the session again", joined(ann), envelope(&ann.participant, "session.create", json!({ "config": {} })))
            .refused(409, "INVALID_STATE", format!("session `{SESSION}` exists already; join it, or create one with another id")),
        RefusalCase::new("creating the session again by the route", joined(ann), envelope(&ann.participant, "session.create", json!({ "config": {} })))
            .refused(409, "INVALID_STATE", format!("session `{SESSION}` exists already; join it, or create one with another id"))
            .over_http(HttpWay::Route("/api/sessions", json!({ "session": SESSION }), 409)),
        RefusalCase::new("output through a message", joined(ann), envelope(&ann.participant, "output.read", json!({ "ref": proposal })))
            .refused(400, INVALID_MESSAGE, "read output with GET /api/sessions/{session}/outputs/{ref}")
            .on_socket(SocketWay::Never("a socket has no other way to read output than a message")),
        RefusalCase::new("joining again", joined(ann), envelope(&ann.participant, "session.join", join_payload(ann)))
            .refused(409, "INVALID_STATE", "you have joined this session already")
            .over_http(HttpWay::Never("a request has no connection that has joined; joining twice is allowed")),
    ];
    assert_all_refused(&server, &cases).await;
}

#[tokio::test]
async fn a_join_is_refused_alike_on_socket_and_http() {
    let server = TestServer::start(&[]).await;
    server.create_session(SESSION, json!({})).await;
    server.create_session("other", json!({})).await;
    let users = TableUsers::invite(&server).await;
    let (ann, bob, eve, bound) = (&users.ann, &users.bob, &users.eve, &users.bound);
    let stranger = |user| (user, CallerState::NotJoined);
    let join_as = |sender: &TestUser, participant: &TestUser, changes: Value| {
        let mut payload = join_payload(participant);
        payload["participant"] = with(payload["participant"].take(), changes);
        envelope(&sender.participant, "session.join", payload)
    };
    let join = |user: &TestUser, changes: Value| join_as(user, user, changes);
    let versions = |versions: Value| {
        let mut message = join(bob, json!({}));
        message["payload"]["supported_versions"] = versions;
        message
    };
    let bring = |user: &TestUser, token: &str| {
        let mut message = join(user, json!({}));
        message["payload"]["token"] = json!(token);
        message
    };
    let create = |user: &TestUser| {
        with(
            envelope(&user.participant, "session.create", json!({ "config": {} })),
            json!({ "session": "new" }),
        )
    };
    let unknown = TestUser {
        token: bob.token.replace("pvp_", "pvp_0"),
        ..bob.clone()
    };
    let garbled = TestUser {
        token: "hello".to_owned(),
        ..bob.clone()
    };
    let anonymous = without_token(bob);
    let expired = server.invite("len", &["approver"], &["--expires", "1s"]);
    let revoked = server.invite("max", &["approver"], &[]);
    revoke(&server, &revoked).await;
    while post(&server, &expired, "/api/sessions/none/messages", "{}")
        .await
        .status
        != 401
    {}
    let not_a_token = "this is not a PVP token; ask for an invitation";
    let may_not_create = "creating a session requires a token with the role driver or admin that is not bound to a session";
    let log_in = "there is no token; send one as `Authorization: Bearer` or `?token=`";
    #[rustfmt::skip]
    let cases = [
        RefusalCase::new("participant.id is somebody else", stranger(bob), join_as(bob, ann, json!({})))
            .refused(403, UNAUTHORIZED, mismatch(&bob.participant, "participant.id", &ann.participant)),
        RefusalCase::new("sender is somebody else", stranger(bob), join_as(ann, bob, json!({})))
            .refused(403, UNAUTHORIZED, mismatch(&bob.participant, "sender", &ann.participant)),
        RefusalCase::new("both are somebody else", stranger(bob), join(ann, json!({})))
            .refused(403, UNAUTHORIZED, mismatch(&bob.participant, "sender", &ann.participant)),
        RefusalCase::new("sender is the server", stranger(bob), with(join(bob, json!({})), json!({ "sender": "system" })))
            .refused(403, UNAUTHORIZED, "`system` is reserved for the server"),
        RefusalCase::new("another version", stranger(bob), versions(json!([2])))
            .refused(400, INVALID_MESSAGE, "`supported_versions` must include 1"),
        RefusalCase::new("no version", stranger(bob), versions(json!([])))
            .refused(400, INVALID_MESSAGE, "`supported_versions` must include 1"),
        RefusalCase::new("versions are missing", stranger(bob), versions(Value::Null))
            .refused(400, INVALID_MESSAGE, "`session.join`: `supported_versions`: invalid type: null, expected a sequence"),
        RefusalCase::new("a role beyond the token", stranger(bob), join(bob, json!({ "roles": ["approver", "admin"] })))
            .refused(403, UNAUTHORIZED, "your token does not allow admin"),
        RefusalCase::new("a capability beyond the token", stranger(bob), join(bob, json!({ "capabilities": ["end_session"] })))
            .refused(403, UNAUTHORIZED, "you need the capability `end_session`; ask an admin for a role that has it"),
        RefusalCase::new("another kind", stranger(bob), join(bob, json!({ "type": "agent" })))
            .refused(403, UNAUTHORIZED, "you are known here as `human`"),
        RefusalCase::new("a token of another session", stranger(bound), join(bound, json!({})))
            .refused(403, UNAUTHORIZED, "this token is for another session"),
        RefusalCase::new("no such session", stranger(bob), with(join(bob, json!({})), json!({ "session": "none" })))
            .refused(404, "SESSION_NOT_FOUND", "there is no session `none`"),
        RefusalCase::new("somebody else's token in the message", stranger(bob), bring(bob, &eve.token))
            .refused(403, UNAUTHORIZED, mismatch(&bob.participant, "token", &eve.participant)),
        RefusalCase::new("an unknown token in the message", stranger(bob), bring(bob, &unknown.token))
            .refused(403, UNAUTHORIZED, not_a_token),
        RefusalCase::new("a revoked token in the message", stranger(bob), bring(bob, &revoked.token))
            .refused(403, UNAUTHORIZED, "the token was revoked; ask for a new invitation"),
        RefusalCase::new("no token", stranger(&anonymous), join(bob, json!({})))
            .refused(401, UNAUTHORIZED, log_in),
        RefusalCase::new("an unknown token", stranger(&unknown), join(bob, json!({})))
            .refused(401, UNAUTHORIZED, not_a_token),
        RefusalCase::new("not a token", stranger(&garbled), join(bob, json!({})))
            .refused(401, UNAUTHORIZED, not_a_token),
        RefusalCase::new("an expired token", stranger(&expired), join(&expired, json!({})))
            .refused(401, UNAUTHORIZED, "the token has expired; ask for a new invitation"),
        RefusalCase::new("a revoked token", stranger(&revoked), join(&revoked, json!({})))
            .refused(401, UNAUTHORIZED, "the token was revoked; ask for a new invitation"),
        RefusalCase::new("creating without the role", stranger(bob), create(bob))
            .refused(403, UNAUTHORIZED, may_not_create)
            .over_http(HttpWay::Route("/api/sessions", json!({ "session": "new" }), 403)),
        RefusalCase::new("creating by a message without the role", stranger(bob), create(bob))
            .refused(403, UNAUTHORIZED, may_not_create),
        RefusalCase::new("creating by a message without a token", stranger(&anonymous), create(bob))
            .refused(401, UNAUTHORIZED, log_in),
        RefusalCase::new("creating with a token of a session", stranger(bound), create(bound))
            .refused(403, UNAUTHORIZED, may_not_create)
            .over_http(HttpWay::Route("/api/sessions", json!({ "session": "new" }), 403)),
        RefusalCase::new("creating without a token", stranger(&anonymous), create(bob))
            .refused(401, UNAUTHORIZED, log_in)
            .over_http(HttpWay::Route("/api/sessions", json!({ "session": "new" }), 401)),
        RefusalCase::new("a message before joining", stranger(bob), envelope(&bob.participant, "context.add", context_payload("k")))
            .refused(403, UNAUTHORIZED, "join the session first: send `session.join`")
            .over_http(HttpWay::Never("a request joins the holder of a token, because it has no connection to do so before")),
    ];
    assert_all_refused(&server, &cases).await;
}

fn claimed_user(id: &str, roles: &[&str], agent: bool) -> TestUser {
    TestUser {
        token: String::new(),
        participant: id.to_owned(),
        roles: roles.iter().map(|&role| role.to_owned()).collect(),
        agent,
    }
}

#[tokio::test]
async fn an_open_server_refuses_alike_on_socket_and_http() {
    let server = TestServer::start(&["--open"]).await;
    let (ann, eve) = (
        claimed_user("ann", &["driver"], false),
        claimed_user("eve", &["observer"], false),
    );
    let bob = claimed_user("bob", &["approver"], false);
    let mut present = TestClient::connect(&server.address, None, "ann").await;
    present.join(SESSION, &ann, json!({})).await;
    server_join(&server, &eve).await;
    let holder = server.invite("kim", &["observer"], &[]);
    let stranger = |user| (user, CallerState::NotJoined);
    let joined = |user| (user, CallerState::Joined);
    let join = |sender: &str, user: &TestUser| envelope(sender, "session.join", join_payload(user));
    let bring = |user: &TestUser, token: &str| {
        let mut message = join(&user.participant, user);
        message["payload"]["token"] = json!(token);
        message
    };
    let mut nameless = envelope("bob", "context.add", context_payload("k"));
    nameless.as_object_mut().unwrap().remove("sender");
    let mut renamed = join("ann", &ann);
    renamed["payload"]["participant"]["name"] = json!("Mallory");
    #[rustfmt::skip]
    let cases = [
        RefusalCase::new("not joined", stranger(&bob), envelope("bob", "context.add", context_payload("k")))
            .refused(403, UNAUTHORIZED, "join the session first: send `session.join`"),
        RefusalCase::new("no sender", stranger(&bob), nameless)
            .refused(400, INVALID_MESSAGE, "not a PVP message: missing field `sender`"),
        RefusalCase::new("the server joins", stranger(&bob), join("system", &claimed_user("system", &["admin"], false)))
            .refused(403, UNAUTHORIZED, "`system` is reserved for the server"),
        RefusalCase::new("the server is joined", stranger(&bob), join("bob", &claimed_user("system", &["admin"], false)))
            .refused(403, UNAUTHORIZED, mismatch("bob", "participant.id", "system")),
        RefusalCase::new("somebody else is joined", stranger(&bob), join("bob", &eve))
            .refused(403, UNAUTHORIZED, mismatch("bob", "participant.id", "eve")),
        RefusalCase::new("an id with another name", stranger(&ann), renamed)
            .refused(403, UNAUTHORIZED, "the id `ann` belongs to somebody else in this session"),
        RefusalCase::new("an id with another kind", stranger(&ann), join("ann", &claimed_user("ann", &["driver"], true)))
            .refused(403, UNAUTHORIZED, "the id `ann` belongs to somebody else in this session"),
        RefusalCase::new("an unknown token", stranger(&bob), bring(&bob, "pvp_1_2"))
            .refused(403, UNAUTHORIZED, "this is not a PVP token; ask for an invitation"),
        RefusalCase::new("a token of somebody else", stranger(&bob), bring(&bob, &holder.token))
            .refused(403, UNAUTHORIZED, mismatch(&holder.participant, "sender", "bob")),
        RefusalCase::new("a role beyond the token", stranger(&bob), bring(&TestUser { roles: vec!["admin".to_owned()], ..holder.clone() }, &holder.token))
            .refused(403, UNAUTHORIZED, "your token does not allow admin"),
        RefusalCase::new("an observer adds context", joined(&eve), envelope("eve", "context.add", context_payload("k")))
            .refused(403, UNAUTHORIZED, "you need the capability `add_context`; ask an admin for a role that has it"),
        RefusalCase::new("a vote in another name", joined(&eve), envelope("eve", "gate.approve", json!({ "gate": "g", "approver": "ann" })))
            .refused(403, UNAUTHORIZED, "you need the capability `approve`; ask an admin for a role that has it"),
        RefusalCase::new("another sender after joining", joined(&eve), envelope("ann", "context.add", context_payload("k")))
            .refused(403, UNAUTHORIZED, mismatch("eve", "sender", "ann"))
            .over_http(HttpWay::Never("without a token, a request is from whomever it names; there is no connection that could remember it")),
        RefusalCase::new("creating without a token", stranger(&bob), envelope("bob", "session.create", json!({ "config": {} })))
            .refused(401, UNAUTHORIZED, "this requires a token; ask for an invitation")
            .on_socket(SocketWay::Never("published clients create sessions without login"))
            .over_http(HttpWay::Route("/api/sessions", json!({}), 401)),
    ];
    assert_all_refused(&server, &cases).await;
}

/// Joins a session on an open server and stays a participant without a connection.
async fn server_join(server: &TestServer, user: &TestUser) {
    let mut client = TestClient::connect(&server.address, None, &user.participant).await;
    client.join(SESSION, user, json!({})).await;
    client.sync().await;
}
