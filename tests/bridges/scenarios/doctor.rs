//! What `pvp doctor` finds of the installed client.

use serde_json::Value;

use crate::clients::Client;
use crate::process::ProcessesOf;
use crate::support::cli::CliEnv;

/// What is broken, by the name that `pvp doctor` has for it, and what a client promises that passes.
pub const BROKEN: [(&str, &str); 5] = [
    (
        "crashes",
        "`pvp doctor`: runs nothing when what asks crashes",
    ),
    (
        "is_killed",
        "`pvp doctor`: runs nothing when what asks is killed",
    ),
    (
        "prints_garbage",
        "`pvp doctor`: runs nothing when what asks prints garbage",
    ),
    ("hangs", "`pvp doctor`: runs nothing while what asks hangs"),
    (
        "is_missing",
        "`pvp doctor`: runs nothing when what asks is missing",
    ),
];

pub async fn doctor(client: &'static Client) {
    let cli = CliEnv::new();
    let left = ProcessesOf::home(&cli);
    let program = client.program();
    let arguments = ["doctor", program.to_str().unwrap(), "--json"];
    let output = cli.command(&arguments).output().await.unwrap();
    drop(left);
    let said = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert_eq!(report["client"], client.name);
    assert!(
        report["version"]
            .as_str()
            .unwrap()
            .contains(&client.version()),
        "{report}"
    );
    let checks = report["checks"].as_array().unwrap();
    for (hook, _) in BROKEN.iter().chain(&[("denies", "")]) {
        let of_hook = |check: &&Value| check["hook"] == *hook && check["kind"] == "command";
        assert_eq!(checks.iter().filter(of_hook).count(), 1, "{hook}: {report}");
    }
    for check in checks {
        let is_open = client
            .fails_open
            .iter()
            .any(|it| check["kind"] == it.kind && check["hook"] == it.hook);
        let runs = is_open || check["hook"] == "allows";
        let health = if is_open { "weak" } else { "good" };
        assert_eq!(
            (&check["health"], &check["ran"]),
            (&health.into(), &runs.into()),
            "{check}"
        );
    }
}
