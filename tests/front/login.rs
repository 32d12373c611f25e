//! `pvp login`, `pvp logout`, `pvp whoami`: which link is used where.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::kit::Server;
use crate::kit::desk::Desk;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

const UNKNOWN: &str = "pvp: no server is known here; give --link, set PVP_LINK, or remember one with `pvp login LINK`\n";

#[tokio::test]
async fn a_link_is_remembered_for_this_directory_and_those_below_until_it_is_forgotten() {
    let server = Server::start(&[]).await;
    let ann = server.invite("ann", &["approver", "driver"], &["--session", "s"]);
    let (desk, base) = (Desk::new(), format!("http://{}", server.address));
    let link = server.link(&ann, Some("s"));
    let file = desk.here().join(".pvp/link");
    let me = format!(
        "{} (ann; driver, approver) on {base} session s",
        ann.participant
    );
    assert_eq!(
        desk.good(&["login", &link]).await,
        format!("you are {me}\nremembered in {}\n", file.display())
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{link}\n"));
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let ignored = std::fs::read_to_string(desk.here().join(".pvp/.gitignore"));
    assert_eq!(ignored.unwrap(), "*\n");

    let below = desk.here().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    let whose = format!("{me}\nlink remembered in {}\n", file.display());
    assert_eq!(desk.good(&["whoami"]).await, whose);
    let said = desk.run_below(&below, &["whoami"]).await;
    assert_eq!(said.good(&[]), whose);
    assert_eq!(
        desk.json(&["whoami", "--json"]).await,
        json!({
            "me": {
                "participant": ann.participant, "name": "ann", "kind": "human",
                "roles": ["driver", "approver"], "session": "s",
            },
            "server": base,
            "source": format!("remembered in {}", file.display()),
        })
    );

    let said = desk.run_below(&below, &["logout"]).await.refused(&[]);
    let nothing = below.join(".pvp/link");
    assert_eq!(
        said,
        format!("pvp: nothing is remembered in {}\n", nothing.display())
    );
    assert_eq!(
        desk.good(&["logout"]).await,
        format!("forgot {}\n", file.display())
    );
    assert!(!file.exists());
    assert_eq!(desk.refused(&["whoami"]).await, UNKNOWN);
    // Elsewhere it was never known.
    assert_eq!(Desk::new().refused(&["whoami"]).await, UNKNOWN);
}

#[tokio::test]
async fn a_said_link_wins_then_the_variable_then_the_nearest_then_the_one_for_everywhere() {
    let server = Server::start(&[]).await;
    let invite = |name| server.invite(name, &["observer"], &[]);
    let [far, near, nearer, variable, said] =
        ["far", "near", "nearer", "variable", "said"].map(invite);
    let desk = Desk::new();
    let everywhere = desk.config().join("pvp/link");
    let out = desk
        .good(&["login", "--everywhere", &server.link(&far, None)])
        .await;
    assert!(
        out.ends_with(&format!("remembered in {}\n", everywhere.display())),
        "{out}"
    );
    assert_eq!(mode(&everywhere), 0o600);
    assert_eq!(mode(everywhere.parent().unwrap()), 0o700);
    assert!(!desk.config().join("pvp/.gitignore").exists());
    let below = desk.here().join("below");
    std::fs::create_dir(&below).unwrap();
    let who = ["whoami", "--json"];
    let whose = |out: &str| {
        let out: serde_json::Value = serde_json::from_str(out).unwrap();
        out["me"]["participant"].as_str().unwrap().to_owned()
    };

    assert_eq!(whose(&desk.good(&who).await), far.participant);
    desk.good(&["login", &server.link(&near, None)]).await;
    assert_eq!(whose(&desk.good(&who).await), near.participant);
    let login = ["login", &server.link(&nearer, None)];
    desk.run_below(&below, &login).await.good(&login);
    assert_eq!(whose(&desk.good(&who).await), near.participant);
    let out = desk.run_below(&below, &who).await.good(&who);
    assert_eq!(whose(&out), nearer.participant);
    let link = server.link(&variable, None);
    let environment = [("PVP_LINK", link.as_str())];
    let out = desk.run_env(&who, &environment).await.good(&who);
    assert_eq!(whose(&out), variable.participant);
    let link = server.link(&said, None);
    let who = ["whoami", "--json", "--link", &link];
    let out = desk.run_env(&who, &environment).await.good(&who);
    assert_eq!(whose(&out), said.participant);
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["source"], "given");

    // Forgetting one leaves the others.
    desk.good(&["logout", "--everywhere"]).await;
    assert!(!everywhere.exists());
    let again = desk.refused(&["logout", "--everywhere"]).await;
    assert_eq!(
        again,
        format!("pvp: nothing is remembered in {}\n", everywhere.display())
    );
    assert_eq!(
        whose(&desk.good(&["whoami", "--json"]).await),
        near.participant
    );
}

#[tokio::test]
async fn without_a_directory_for_settings_the_home_is_used() {
    let server = Server::start(&[]).await;
    let ann = server.invite("ann", &["observer"], &[]);
    let (desk, link) = (Desk::new(), server.link(&ann, None));
    let mut login = desk.command(&["login", "--everywhere", &link]);
    let output = login.env("XDG_CONFIG_HOME", "").output().await.unwrap();
    assert!(output.status.success());
    let file = desk.home().join(".config/pvp/link");
    assert_eq!(std::fs::read_to_string(file).unwrap(), format!("{link}\n"));
}

#[tokio::test]
async fn a_link_that_does_not_work_is_not_remembered() {
    let server = Server::start(&[]).await;
    let ann = server.invite("ann", &["observer"], &[]);
    let good = server.link(&ann, None);
    let desk = Desk::with(&good).await;
    let base = format!("http://{}", server.address);
    for (link, said) in [
        (
            "x",
            "pvp: a link begins with http:// or https://, such as http://127.0.0.1:3000/?token=…\n",
        ),
        (&base, "pvp: the link has no token; ask for an invitation\n"),
        (
            &format!("{base}/?token=a%20b"),
            "pvp: the link's token has characters that no token has\n",
        ),
        (
            &format!("{base}/?token=pvp_no"),
            "pvp: this is not a PVP token; ask for an invitation\n",
        ),
        (
            &format!("{good}&session=../s"),
            "pvp: the link's session: an id has '.' at position 0; use A-Z a-z 0-9 _ . : - and begin with a letter or digit\n",
        ),
    ] {
        assert_eq!(desk.refused(&["login", link]).await, said, "{link}");
        let kept = std::fs::read_to_string(desk.here().join(".pvp/link")).unwrap();
        assert_eq!(kept, format!("{good}\n"));
    }
    let said = Desk::new().refused(&["login"]).await;
    assert!(said.contains("<LINK>"), "{said}");
}

#[tokio::test]
async fn a_remembered_file_that_holds_no_link_is_named_and_nothing_further_away_is_used() {
    let server = Server::start(&[]).await;
    let ann = server.invite("ann", &["observer"], &[]);
    let desk = Desk::with(&server.link(&ann, None)).await;
    let below = desk.here().join("below");
    let file = below.join(".pvp/link");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let where_it_is = file.display();
    for text in ["", "hello\n", "\0"] {
        std::fs::write(&file, text).unwrap();
        for command in [&["whoami"][..], &["gates"], &["tail"]] {
            let said = desk.run_below(&below, command).await.refused(command);
            assert_eq!(
                said,
                format!(
                    "pvp: {where_it_is} does not hold a link: a link begins with http:// or https://, such as http://127.0.0.1:3000/?token=…\n"
                )
            );
        }
    }
    std::fs::write(&file, b"\xff\xfe").unwrap();
    let said = desk.run_below(&below, &["whoami"]).await.refused(&[]);
    assert!(
        said.starts_with(&format!("pvp: reading {where_it_is}: ")),
        "{said}"
    );
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let said = desk.run_below(&below, &["whoami"]).await.refused(&[]);
    assert!(
        said.starts_with(&format!("pvp: reading {where_it_is}: ")),
        "{said}"
    );
    // Logging in there cannot replace a directory, and says where.
    let login = ["login", &server.link(&ann, None)];
    let said = desk.run_below(&below, &login).await.refused(&login);
    assert!(
        said.starts_with(&format!("pvp: writing {where_it_is}: ")),
        "{said}"
    );
    // A `.pvp` that is a file is as if there were none.
    std::fs::remove_dir_all(below.join(".pvp")).unwrap();
    std::fs::write(below.join(".pvp"), "").unwrap();
    let out = desk.run_below(&below, &["whoami"]).await.good(&[]);
    assert!(out.starts_with(&ann.participant), "{out}");
}

#[tokio::test]
async fn who_one_is_says_until_when() {
    let server = Server::start(&[]).await;
    let ann = server.invite("ann", &["observer"], &["--expires", "2h"]);
    let desk = Desk::with(&server.link(&ann, None)).await;
    let expires = desk.json(&["whoami", "--json"]).await["me"]["expires"].clone();
    let out = desk.good(&["whoami"]).await;
    let line = format!("expires {}", expires.as_str().unwrap());
    assert_eq!(out.lines().last(), Some(line.as_str()));
}
