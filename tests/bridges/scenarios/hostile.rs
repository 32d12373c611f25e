//! A repository whose own settings would rule over the client that works in it.

use std::path::Path;

use super::decisions::commands;
use crate::clients::{Client, HostileFile, LaunchPlace, ProjectSettings, StartedBy};
use crate::model::ScriptedModel;
use crate::process::ClientProcess;
use crate::stage::{Setting, Stage, marks, write_hostile};
use crate::support::TestServer;
use crate::support::cli::CliEnv;
use crate::support::session::wait_until;

pub async fn hostile_repository(client: &'static Client) {
    let supervised = async {
        match client.project_settings {
            ProjectSettings::LeftOut => settings_are_left_out(client).await,
            ProjectSettings::Refused => each_file_is_refused(client).await,
        }
    };
    let really = async {
        // What its files do is the same on every route.
        if let StartedBy::Run = client.started_by {
            files_do_what_they_say(client).await;
        }
    };
    tokio::join!(supervised, really);
}

async fn settings_are_left_out(client: &'static Client) {
    let setting = Setting {
        hostile: true,
        ..Setting::default()
    };
    let script = commands(client, &["touch made", "touch never"]);
    let mut stage = Stage::start(client, setting, |_| script).await;
    let call = stage.next_gate().await;
    assert_eq!(call.line, "touch made");
    assert!(!stage.exists("made"));
    stage.approve(&call).await;
    let result = stage.result(&call).await;
    assert_eq!(result["result"]["exitCode"], 0, "{result}");
    let call = stage.next_gate().await;
    assert_eq!(call.line, "touch never");
    stage.reject(&call, "one is enough").await;
    stage.client_ends().await;
    let found = ["made", "rewritten", "never"].map(|name| stage.exists(name));
    assert_eq!(found, [true, false, false]);
    assert_eq!(marks_in(&marks(&stage.process.cli)), [""; 0]);
    let offered = stage.model.tools_offered();
    let foreign: Vec<_> = offered
        .iter()
        .filter(|tool| tool.contains("evil"))
        .collect();
    assert_eq!(foreign, [""; 0]);
    let printed = stage.process.output();
    for file in (client.hostile_files)(Path::new("")) {
        let named = printed.lines().find(|line| line.contains(file.path));
        let named = named.unwrap_or_else(|| panic!("{}: {printed}", file.path));
        assert!(named.contains("it is left out"), "{named}");
    }
}

async fn each_file_is_refused(client: &'static Client) {
    let server = TestServer::start(&[]).await;
    server.create_session("owl", serde_json::json!({})).await;
    let user = server.invite(client.name, &["driver"], &["--kind", "agent"]);
    let link = server.link(&user, Some("owl"));
    for file in (client.hostile_files)(Path::new("")) {
        let cli = CliEnv::new();
        let marks = marks(&cli);
        let name = file.path;
        write_hostile(&cli, same_file(client, &marks, &file));
        let model = ScriptedModel::start(commands(client, &["touch made"])).await;
        let place = LaunchPlace::of(&cli, &model);
        let mut process = ClientProcess::start(client, cli, &place, &link);
        let code = process.ended().await;
        let said = process.output();
        assert_eq!(code, Some(1), "{name}: {said}");
        let directory = name.split('/').next().unwrap();
        assert!(said.contains(directory), "{name}: {said}");
        let reasons = ["without asking anybody", "switch the supervision off"];
        assert!(
            reasons.iter().any(|reason| said.contains(reason)),
            "{name}: {said}"
        );
        assert_eq!(marks_in(&marks), [""; 0], "{name}");
        assert!(!place.workdir.join("made").exists(), "{name}");
        assert_eq!(model.requests().len(), 0, "{name}");
    }
}

/// The file among those of a place with these marks.
fn same_file(client: &Client, marks: &Path, wanted: &HostileFile) -> Option<HostileFile> {
    let mut files = (client.hostile_files)(marks).into_iter();
    files.find(|file| (file.path, file.mark) == (wanted.path, wanted.mark))
}

/// Without `pvp run`, what the repository brings does run; otherwise nothing would be shown by the
/// marks that are missing.
async fn files_do_what_they_say(client: &'static Client) {
    let cli = CliEnv::new();
    let marks = marks(&cli);
    let files: Vec<_> = (client.hostile_files)(&marks)
        .into_iter()
        .filter(|file| file.mark.is_some())
        .collect();
    let mut expected: Vec<_> = files.iter().filter_map(|file| file.mark).collect();
    expected.sort();
    write_hostile(&cli, files);
    let model = ScriptedModel::start(commands(client, &["touch made"])).await;
    let place = LaunchPlace::of(&cli, &model);
    let process = ClientProcess::start_unsupervised(client, cli, &place);
    wait_until(&format!("{expected:?} of {}", client.title), || {
        marks_in(&marks) == expected
    })
    .await;
    drop(process);
}

/// The names of the marks that are there, in order.
fn marks_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}
