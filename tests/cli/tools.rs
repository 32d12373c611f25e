//! `pvp doctor`, `pvp completions`, `pvp man`

use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::support::cli::CliEnv;

#[tokio::test]
async fn doctor_checks_everything_and_leaves_no_files_behind() {
    let cli = CliEnv::new();
    let checks = cli.run_json(&["doctor", "--json"]).await;
    let checks = checks.as_array().unwrap();
    let names: Vec<_> = checks
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "landlock",
            "seccomp",
            "trials",
            "account",
            "data",
            "signing key",
            "links",
            "cgroups",
            "limits",
            "open files",
            "bash",
            "disk"
        ]
    );
    let text = cli.run_ok(&["doctor"]).await;
    for check in checks {
        let mark = match check["health"].as_str().unwrap() {
            "good" => "ok  ",
            "weak" => "weak",
            health => panic!("{health}: this machine has bash"),
        };
        let found = check["found"].as_str().unwrap();
        let line = format!("{mark}  {:<12} {found}\n", check["name"].as_str().unwrap());
        assert!(text.contains(&line), "{line} is not in\n{text}");
        let means = text.contains(check["means"].as_str().unwrap());
        assert_eq!(means, mark == "weak", "{text}");
    }
    assert_eq!(std::fs::read_dir(cli.workdir()).unwrap().count(), 0);
    let output = cli.run_refused(&["doctor", "who"]).await;
    assert!(output.contains("`who` is none of claude"), "{output}");
}

#[tokio::test]
async fn doctor_warns_of_credentials_that_others_can_read() {
    let cli = CliEnv::new();
    let check = async |name: &str| {
        let output = cli.run(&["doctor", "--json"]).await;
        let checks: serde_json::Value = serde_json::from_str(&output.out).unwrap();
        let mut checks = checks.as_array().unwrap().iter();
        let check = checks.find(|check| check["name"] == name).unwrap();
        let text = |key: &str| check[key].as_str().unwrap().to_owned();
        (text("health"), text("found"), output.code)
    };
    for name in ["data", "signing key", "links"] {
        assert_eq!(check(name).await.0, "good", "{name}");
    }
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let account = if is_root { "weak" } else { "good" };
    assert_eq!(check("account").await.0, account);

    let up = [
        "up",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "chosen",
    ];
    let mut server = cli.spawn(&up);
    server.next_json().await;
    let warning = server.next_stderr_line().await;
    let data = cli.workdir().join("chosen").display().to_string();
    assert!(warning.contains(&data), "{warning}");
    let (health, found, code) = check("data").await;
    assert_eq!((health.as_str(), code), ("weak", Some(0)));
    assert!(found.contains(&data), "{found}");
    let (health, found, _) = check("signing key").await;
    assert_eq!(health, "note");
    assert!(found.contains(&data), "{found}");

    let link = cli.link_file(&cli.workdir());
    std::fs::set_permissions(&link, PermissionsExt::from_mode(0o644)).unwrap();
    let (health, found, code) = check("links").await;
    assert_eq!((health.as_str(), code), ("bad", Some(1)));
    assert!(found.contains(&link.display().to_string()), "{found}");
    std::fs::set_permissions(&link, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(check("links").await.0, "good");
    let former = cli.workdir().join(".pvp/link");
    std::fs::create_dir(former.parent().unwrap()).unwrap();
    std::fs::write(&former, "").unwrap();
    let (health, found, _) = check("links").await;
    assert_eq!(health, "bad");
    assert!(found.contains(&former.display().to_string()), "{found}");
}

#[tokio::test]
async fn every_shell_gets_completions() {
    let cli = CliEnv::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = cli.run_ok(&["completions", shell]).await;
        for word in ["approve", "history", "everywhere"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
        std::fs::write(cli.workdir().join(shell), script).unwrap();
    }
    let checked = cli
        .program("bash")
        .args(["-n", "bash"])
        .output()
        .await
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
    // It completes what it should.
    let script = "source ./bash; COMP_WORDS=(pvp appr); COMP_CWORD=1; _pvp pvp appr pvp; echo \"${COMPREPLY[@]}\"";
    let completed = cli
        .program("bash")
        .args(["-c", script])
        .output()
        .await
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&completed.stdout), "approve\n");
    let output = cli.run_refused(&["completions", "tcsh"]).await;
    assert!(
        output.contains("tcsh") && output.contains("bash"),
        "{output}"
    );
}

#[tokio::test]
async fn every_command_has_a_manual_page() {
    let cli = CliEnv::new();
    cli.run_ok(&["man", "--out", "pages"]).await;
    let pages = std::fs::read_dir(cli.workdir().join("pages")).unwrap();
    let pages: BTreeSet<_> = pages
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    let mut expected = BTreeSet::from(["pvp.1".to_owned()]);
    let mut below = vec![Vec::new()];
    while let Some(command) = below.pop() {
        let help = [&command[..], &["--help".to_owned()]].concat();
        let help: Vec<_> = help.iter().map(String::as_str).collect();
        let help = cli.run_ok(&help).await;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in listed.take_while(|line| !line.is_empty()) {
            let Some(name) = line
                .strip_prefix("  ")
                .filter(|line| !line.starts_with(' '))
            else {
                continue;
            };
            let name = name.split(' ').next().unwrap();
            if name != "help" {
                let command = [&command[..], &[name.to_owned()]].concat();
                expected.insert(format!("pvp-{}.1", command.join("-")));
                below.push(command);
            }
        }
    }
    assert!(expected.len() > 25, "{expected:?}");
    assert_eq!(pages, expected);
    for page in &pages {
        let text = std::fs::read_to_string(cli.workdir().join("pages").join(page)).unwrap();
        let name = page.strip_suffix(".1").unwrap();
        assert!(text.contains(&format!(".TH {name} 1")), "{page}: {text}");
    }
    let first = cli.run_ok(&["man"]).await;
    assert!(first.contains(".TH pvp 1"), "{first}");
    std::fs::write(cli.workdir().join("file"), "").unwrap();
    let output = cli.run_refused(&["man", "--out", "file"]).await;
    assert!(output.starts_with("pvp: making file: "), "{output}");
}
