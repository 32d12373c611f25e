//! `pvp create`, `pvp sessions`, `pvp invite`

use serde_json::{Value, json};

use crate::kit::desk::Desk;
use crate::kit::{Server, pvp};

/// The desk of the admin.
async fn admin(server: &Server) -> Desk {
    Desk::with(&server.link(&server.admin(), None)).await
}

#[tokio::test]
async fn sessions_are_made_and_listed_until_they_end() {
    let server = Server::start(&[]).await;
    let desk = admin(&server).await;
    assert_eq!(desk.good(&["sessions"]).await, "no sessions\n");
    assert_eq!(
        desk.json(&["sessions", "--json"]).await,
        json!({ "sessions": [], "more": false })
    );
    let config = r#"{"default_gate_quorum":{"type":"any","count":2}}"#;
    let create = ["create", "owl", "--name", "Blue owl", "--config", config];
    assert_eq!(desk.good(&create).await, "made owl\n");
    let created = &server.entries("owl")[0]["payload"];
    assert_eq!(created["name"], "Blue owl");
    assert_eq!(
        created["config"]["default_gate_quorum"],
        json!({ "type": "any", "count": 2 })
    );
    let made = desk.json(&["create", "--json"]).await;
    let fresh = made["session"].as_str().unwrap();
    assert_eq!(made, json!({ "session": fresh, "seq": 1 }));

    let list = desk.json(&["sessions", "--json"]).await;
    let names = |list: &Value| -> Vec<String> {
        let sessions = list["sessions"].as_array().unwrap().iter();
        let name = |one: &Value| one["session"].as_str().unwrap().to_owned();
        sessions.map(name).collect()
    };
    assert_eq!(names(&list), [fresh, "owl"]);
    let owl = &list["sessions"][1];
    let line = format!(
        "owl                       open             2 messages  {}  Blue owl",
        owl["updated_at"].as_str().unwrap()
    );
    assert_eq!(desk.good(&["sessions"]).await.lines().last(), Some(&*line));
    let one = desk.good(&["sessions", "-n", "1"]).await;
    assert!(one.starts_with(fresh), "{one}");
    assert!(
        one.ends_with("\n… and older ones; ask for more with -n\n"),
        "{one}"
    );

    let end = r#"{"reason":"done","final_state":"completed"}"#;
    let end = [
        "send",
        "--session",
        "owl",
        "--type",
        "session.end",
        "--payload",
        end,
    ];
    desk.good(&end).await;
    assert_eq!(names(&desk.json(&["sessions", "--json"]).await), [fresh]);
    let all = desk.json(&["sessions", "--json", "--all"]).await;
    assert_eq!(names(&all), [fresh, "owl"]);
    let all = desk.good(&["sessions", "-a"]).await;
    assert!(all.lines().last().unwrap().contains("  ended "), "{all}");
}

#[tokio::test]
async fn a_session_that_cannot_be_made_is_refused_and_nothing_is_made() {
    let server = Server::start(&[]).await;
    let desk = admin(&server).await;
    desk.good(&["create", "owl"]).await;
    let before = server.entries("owl");
    for (arguments, said) in [
        (
            &["create", "owl"][..],
            "pvp: session `owl` exists already; join it, or create one with another id\n",
        ),
        (
            &["create", "cat", "--config", "{"],
            "pvp: --config: EOF while parsing an object at line 1 column 1\n",
        ),
        (&["create", "cat", "--config", "[]"], "pvp: --config: "),
        (
            &["create", "cat", "--config", r#"{"max_participants":"x"}"#],
            "pvp: --config: ",
        ),
        (
            &[
                "create",
                "cat",
                "--config",
                r#"{"default_gate_quorum":{"type":"any","count":0}}"#,
            ],
            "pvp: ",
        ),
        (
            &["create", ".."],
            "error: invalid value '..' for '[ID]': an id has '.' at position 0",
        ),
    ] {
        let complaint = desk.refused(arguments).await;
        assert!(complaint.starts_with(said), "{arguments:?}: {complaint}");
    }
    let list = desk.json(&["sessions", "--json", "--all"]).await;
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(server.entries("owl"), before);

    // An observer makes none, and neither does who is invited to one session.
    let eve = server.invite("eve", &["observer"], &[]);
    let bob = server.invite("bob", &["driver"], &["--session", "owl"]);
    for who in [eve, bob] {
        let desk = Desk::with(&server.link(&who, None)).await;
        let complaint = desk.refused(&["create", "cat"]).await;
        assert!(complaint.starts_with("pvp: "), "{complaint}");
    }
    let list = desk.json(&["sessions", "--json", "--all"]).await;
    assert_eq!(list["sessions"].as_array().unwrap().len(), 1);
}

/// Who is invited, as they find themselves.
async fn me(link: &str) -> Value {
    let desk = Desk::with(link).await;
    desk.json(&["whoami", "--json"]).await["me"].clone()
}

#[tokio::test]
async fn an_invitation_opens_what_it_says() {
    let server = Server::start(&[]).await;
    let desk = admin(&server).await;
    desk.good(&["create", "owl"]).await;
    desk.good(&["create", "cat"]).await;
    let said = desk
        .json(&[
            "invite", "--json", "--name", "Ann", "--role", "approver", "--role", "driver",
        ])
        .await;
    let participant = said["participant"].clone();
    assert_eq!(
        said,
        json!({
            "token": said["token"], "participant": participant, "roles": ["driver", "approver"],
            "expires": null,
            "link": format!("http://{}/?token={}", server.address, said["token"].as_str().unwrap()),
        })
    );
    assert_eq!(
        me(said["link"].as_str().unwrap()).await,
        json!({ "participant": participant, "name": "Ann", "kind": "human", "roles": ["driver", "approver"] })
    );

    let text = desk
        .good(&[
            "invite",
            "--name",
            "bot",
            "--kind",
            "agent",
            "--role",
            "driver",
            "--session",
            "cat",
            "--expires",
            "2h",
        ])
        .await;
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let names: Vec<_> = words.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["participant", "roles", "expires", "link"]);
    assert!(words[3][1].ends_with("&session=cat"), "{text}");
    assert_eq!(
        me(words[3][1]).await,
        json!({ "participant": words[0][1], "name": "bot", "kind": "agent", "roles": ["driver"], "session": "cat", "expires": words[2][1] })
    );

    // Another device of someone who is known.
    let name = participant.as_str().unwrap();
    let again = [
        "invite",
        "--json",
        "--name",
        "Ann",
        "--role",
        "approver",
        "--participant",
        name,
    ];
    assert_eq!(desk.json(&again).await["participant"], participant);
}

#[tokio::test]
async fn an_invitation_is_for_the_session_of_the_link_unless_it_is_for_everywhere() {
    let server = Server::start(&[]).await;
    server.create("owl", json!({})).await;
    let desk = Desk::with(&server.link(&server.admin(), Some("owl"))).await;
    let invite = ["invite", "--json", "--name", "Ann", "--role", "approver"];
    let bound = desk.json(&invite).await;
    assert_eq!(me(bound["link"].as_str().unwrap()).await["session"], "owl");
    let free = desk.json(&[&invite[..], &["--everywhere"]].concat()).await;
    assert_eq!(
        me(free["link"].as_str().unwrap()).await["session"],
        Value::Null
    );
    let both = [&invite[..], &["--everywhere", "--session", "owl"]].concat();
    let said = desk.refused(&both).await;
    assert!(
        said.contains("--everywhere") && said.contains("--session"),
        "{said}"
    );
}

#[tokio::test]
async fn an_invitation_through_the_data_directory_needs_no_link() {
    let server = Server::start(&[]).await;
    server.create("owl", json!({})).await;
    let (desk, data) = (Desk::new(), server.data.to_str().unwrap());
    let url = format!("http://{}/", server.address);
    let invite = [
        "invite", "--json", "--data", data, "--url", &url, "--name", "Ann", "--role", "approver",
    ];
    let free = desk.json(&invite).await;
    assert_eq!(me(free["link"].as_str().unwrap()).await["name"], "Ann");
    let bound = desk
        .json(&[&invite[..], &["--session", "owl"]].concat())
        .await;
    assert_eq!(me(bound["link"].as_str().unwrap()).await["session"], "owl");
    let said = desk
        .refused(&[&invite[..], &["--link", "http://h/?token=t"]].concat())
        .await;
    assert!(said.contains("--data") && said.contains("--link"), "{said}");
    // A remembered link or a variable is not in its way.
    let link = server.link(&server.admin(), None);
    desk.good(&["login", &link]).await;
    desk.json(&invite).await;
}

#[tokio::test]
async fn only_who_manages_people_invites_and_a_refused_invitation_makes_no_token() {
    let server = Server::start(&[]).await;
    let ann = server.invite("ann", &["approver", "driver"], &[]);
    let data = server.data.to_str().unwrap();
    let tokens = || pvp(&["tokens", "list", "--data", data]).1;
    let before = tokens();
    let desk = Desk::with(&server.link(&ann, None)).await;
    let invite = |name| ["invite", "--name", name, "--role", "admin"];
    let said = desk.refused(&invite("Eve")).await;
    assert!(said.starts_with("pvp: "), "{said}");
    let desk = admin(&server).await;
    for name in ["", "a\u{1b}[2J", &"x".repeat(200)] {
        let said = desk.refused(&invite(name)).await;
        assert_eq!(
            said,
            "pvp: `name` has 1 to 128 characters and no control characters\n"
        );
    }
    assert_eq!(tokens(), before);
}
