//! `pvp login`, `pvp logout`, `pvp whoami`: which link is used where.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use crate::support::TestServer;
use crate::support::cli::CliEnv;

fn file_mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

const NO_SERVER_KNOWN: &str = "pvp: no server is known here; start one with `pvp up`, join one with `pvp join` or `pvp login`, give --link-file, or set PVP_LINK\n";

#[tokio::test]
async fn a_link_is_remembered_for_this_directory_and_those_below_until_it_is_forgotten() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["approver", "driver"], &["--session", "s"]);
    let (cli, base) = (CliEnv::new(), format!("http://{}", server.address));
    let link = server.link(&ann, Some("s"));
    let file = cli.link_file(&cli.workdir());
    let me = format!(
        "{} (ann; driver, approver) on {base} session s",
        ann.participant
    );
    assert_eq!(
        cli.log_in(&link).await,
        format!("you are {me}\nsaved in {}\n", file.display())
    );
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{link}\n"));
    assert_eq!(
        (file_mode(&file), file_mode(file.parent().unwrap())),
        (0o600, 0o700)
    );
    assert_eq!(std::fs::read_dir(cli.workdir()).unwrap().count(), 0);

    let below = cli.workdir().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    let whose = format!("{me}\nlink saved in {}\n", file.display());
    assert_eq!(cli.run_ok(&["whoami"]).await, whose);
    let output = cli.run_in(&below, &["whoami"]).await;
    assert_eq!(output.expect_ok(&[]), whose);
    assert_eq!(
        cli.run_json(&["whoami", "--json"]).await,
        json!({
            "me": {
                "participant": ann.participant, "name": "ann", "kind": "human",
                "roles": ["driver", "approver"], "session": "s",
            },
            "server": base,
            "source": format!("saved in {}", file.display()),
        })
    );

    let output = cli.run_in(&below, &["logout"]).await.expect_refused(&[]);
    let nothing = cli.link_file(&below);
    assert_eq!(
        output,
        format!("pvp: no link is saved in {}\n", nothing.display())
    );
    assert_eq!(
        cli.run_ok(&["logout"]).await,
        format!("forgot {}\n", file.display())
    );
    assert!(!file.exists());
    assert_eq!(cli.run_refused(&["whoami"]).await, NO_SERVER_KNOWN);
    // Other directories do not know it.
    assert_eq!(
        CliEnv::new().run_refused(&["whoami"]).await,
        NO_SERVER_KNOWN
    );
}

#[tokio::test]
async fn the_flag_wins_then_the_variable_then_the_nearest_file_then_the_users_link() {
    let server = TestServer::start(&[]).await;
    let invite = |name| server.invite(name, &["observer"], &[]);
    let [far, near, nearer, variable, said] =
        ["far", "near", "nearer", "variable", "said"].map(invite);
    let cli = CliEnv::new();
    let everywhere = cli.config_home().join("pvp/link");
    let everywhere_login = ["login", "--everywhere"];
    let link = server.link(&far, None);
    let out = cli.run_with_link(&link, &everywhere_login).await;
    let out = out.expect_ok(&everywhere_login);
    assert!(
        out.ends_with(&format!("saved in {}\n", everywhere.display())),
        "{out}"
    );
    assert_eq!(file_mode(&everywhere), 0o600);
    assert_eq!(file_mode(everywhere.parent().unwrap()), 0o700);
    let below = cli.workdir().join("below");
    std::fs::create_dir(&below).unwrap();
    let user = ["whoami", "--json"];
    let whose = |out: &str| {
        let out: serde_json::Value = serde_json::from_str(out).unwrap();
        out["me"]["participant"].as_str().unwrap().to_owned()
    };

    assert_eq!(whose(&cli.run_ok(&user).await), far.participant);
    cli.log_in(&server.link(&near, None)).await;
    assert_eq!(whose(&cli.run_ok(&user).await), near.participant);
    let link = below.join("link");
    std::fs::write(&link, server.link(&nearer, None)).unwrap();
    let login = ["login", "--link-file", "link"];
    cli.run_in(&below, &login).await.expect_ok(&login);
    assert!(
        link.exists(),
        "only what an earlier version left is removed"
    );
    assert_eq!(whose(&cli.run_ok(&user).await), near.participant);
    let out = cli.run_in(&below, &user).await.expect_ok(&user);
    assert_eq!(whose(&out), nearer.participant);
    let link = server.link(&variable, None);
    let environment = [("PVP_LINK", link.as_str())];
    let out = cli.run_with_env(&user, &environment).await.expect_ok(&user);
    assert_eq!(whose(&out), variable.participant);
    let link = server.link(&said, None);
    let user = ["whoami", "--json", "--link", &link];
    let out = cli.run_with_env(&user, &environment).await;
    assert!(out.err.starts_with("pvp: a link on the command line"));
    let out = out.out;
    assert_eq!(whose(&out), said.participant);
    let out: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(out["source"], "given");

    // Logging out of one leaves the others.
    cli.run_ok(&["logout", "--everywhere"]).await;
    assert!(!everywhere.exists());
    let again = cli.run_refused(&["logout", "--everywhere"]).await;
    assert_eq!(
        again,
        format!("pvp: no link is saved in {}\n", everywhere.display())
    );
    assert_eq!(
        whose(&cli.run_ok(&["whoami", "--json"]).await),
        near.participant
    );
}

#[tokio::test]
async fn without_a_directory_for_settings_the_home_is_used() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["observer"], &[]);
    let (cli, link) = (CliEnv::new(), server.link(&ann, None));
    let mut login = cli.command(&["login", "--everywhere"]);
    login.env("PVP_LINK", &link);
    let output = login.env("XDG_CONFIG_HOME", "").output().await.unwrap();
    assert!(output.status.success());
    let file = cli.home().join(".config/pvp/link");
    assert_eq!(std::fs::read_to_string(file).unwrap(), format!("{link}\n"));
}

#[tokio::test]
async fn a_link_that_does_not_work_is_not_remembered() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["observer"], &[]);
    let good = server.link(&ann, None);
    let cli = CliEnv::logged_in(&good).await;
    let base = format!("http://{}", server.address);
    for (link, output) in [
        (
            "x",
            "pvp: PVP_LINK: a link begins with http:// or https://, such as http://127.0.0.1:3000/#token=…\n",
        ),
        (
            &base,
            "pvp: the link has no token; use `pvp join` for a code, or ask for an invitation\n",
        ),
        (
            &format!("{base}/?token=a%20b"),
            "pvp: PVP_LINK: the link's token contains characters that a token cannot have\n",
        ),
        (
            &format!("{base}/?token=pvp_no"),
            "pvp: this is not a PVP token; ask for an invitation\n",
        ),
        (
            &format!("{good}&session=../s"),
            "pvp: PVP_LINK: the link's session: an id has '.' at position 0; use A-Z a-z 0-9 _ . : - and begin with a letter or digit\n",
        ),
    ] {
        let login = cli.run_with_link(link, &["login"]).await;
        assert_eq!(login.expect_refused(&["login"]), output, "{link}");
        let kept = std::fs::read_to_string(cli.link_file(&cli.workdir())).unwrap();
        assert_eq!(kept, format!("{good}\n"));
    }
    let output = CliEnv::new().run_refused(&["login"]).await;
    assert_eq!(output, "pvp: there is no link on standard input\n");
}

#[tokio::test]
async fn an_invalid_link_file_is_named_and_no_other_is_used() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["observer"], &[]);
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    let below = cli.workdir().join("below");
    let file = cli.link_file(&below);
    std::fs::create_dir_all(&below).unwrap();
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let where_it_is = file.display();
    for text in ["", "hello\n", "\0"] {
        std::fs::write(&file, text).unwrap();
        for command in [&["whoami"][..], &["gates"], &["tail"]] {
            let output = cli.run_in(&below, command).await.expect_refused(command);
            assert_eq!(
                output,
                format!(
                    "pvp: {where_it_is} does not hold a link: a link begins with http:// or https://, such as http://127.0.0.1:3000/#token=…\n"
                )
            );
        }
    }
    std::fs::write(&file, b"\xff\xfe").unwrap();
    let output = cli.run_in(&below, &["whoami"]).await.expect_refused(&[]);
    assert!(
        output.starts_with(&format!("pvp: reading {where_it_is}: ")),
        "{output}"
    );
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    let output = cli.run_in(&below, &["whoami"]).await.expect_refused(&[]);
    assert!(
        output.starts_with(&format!("pvp: reading {where_it_is}: ")),
        "{output}"
    );
    // Logging in there cannot replace a directory, and the error names it.
    let mut login = cli.command(&["login"]);
    login.env("PVP_LINK", server.link(&ann, None));
    let output = login.current_dir(&below).output().await.unwrap();
    let output = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.starts_with(&format!("pvp: writing {where_it_is}: ")),
        "{output}"
    );
    std::fs::remove_dir(&file).unwrap();
    // A `.pvp` that is a file is ignored.
    std::fs::write(below.join(".pvp"), "").unwrap();
    let out = cli.run_in(&below, &["whoami"]).await.expect_ok(&[]);
    assert!(out.starts_with(&ann.participant), "{out}");
}

#[tokio::test]
async fn whoami_shows_when_the_token_expires() {
    let server = TestServer::start(&[]).await;
    let ann = server.invite("ann", &["observer"], &["--expires", "2h"]);
    let cli = CliEnv::logged_in(&server.link(&ann, None)).await;
    let expires = cli.run_json(&["whoami", "--json"]).await["me"]["expires"].clone();
    let out = cli.run_ok(&["whoami"]).await;
    let line = format!("expires {}", expires.as_str().unwrap());
    assert_eq!(out.lines().last(), Some(line.as_str()));
}

#[tokio::test]
async fn the_token_of_a_server_on_this_machine_reaches_no_proxy() {
    let server = TestServer::start(&[]).await;
    let dee = server.invite("dee", &["observer"], &[]);
    let cli = CliEnv::logged_in(&server.link(&dee, None)).await;
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let variables = ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let environment = variables.map(|variable| (variable, address.as_str()));
    tokio::select! {
        output = cli.run_with_env(&["whoami"], &environment) => {
            assert_eq!((output.code, output.err.as_str()), (Some(0), ""), "{output:?}");
        }
        _ = proxy.accept() => panic!("the proxy was asked"),
    }
}
