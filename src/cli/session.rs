//! `pvp session`: prints the settings of a session and changes them.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use pvp_client::{ApiClient, ApiError};
use pvp_protocol::payload::SessionConfigUpdate;
use pvp_protocol::{ConfigChanges, ErrorCode, ExtraFields, SessionConfig, SessionId};
use serde_json::Value;

use super::links::LinkArguments;
use super::session_settings::{SettingsArguments, parse_pairs, read_optional};
use super::{print_json, print_line};

#[derive(Args)]
pub(crate) struct SessionArguments {
    #[command(subcommand)]
    command: SettingsCommand,
}

#[derive(Subcommand)]
enum SettingsCommand {
    /// Print the settings that are in force, in the form of a settings file
    Show {
        #[command(flatten)]
        link: LinkArguments,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Change settings; takes the role admin
    Set {
        #[command(flatten)]
        link: LinkArguments,
        #[command(flatten)]
        settings: SettingsArguments,
        /// Several settings: a TOML file, or JSON such as '{"gate_timeout_seconds": 600}'
        #[arg(long, value_name = "FILE|JSON")]
        config: Option<String>,
        /// Settings by name, such as gate_timeout_seconds=600 or solo=true
        #[arg(value_name = "NAME=VALUE")]
        pairs: Vec<String>,
        /// Why, for the record
        #[arg(long, default_value = "changed with pvp session set")]
        reason: String,
        /// Print the settings after the change as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(arguments: &SessionArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        SettingsCommand::Show { link, json } => {
            let (api, session) = link.api_and_session()?;
            print_settings(&session, &api.session(&session)?.config, *json)?;
        }
        SettingsCommand::Set {
            link,
            settings,
            config,
            pairs,
            reason,
            json,
        } => {
            let (api, session) = link.api_and_session()?;
            let mut named = read_optional(config.as_deref()).context("--config")?;
            named.extend(parse_pairs(pairs)?);
            let changes = settings.changes(named, &api.session(&session)?.config)?;
            update(&api, &session, changes, reason)?;
            print_settings(&session, &api.session(&session)?.config, *json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn update(
    api: &ApiClient,
    session: &SessionId,
    changes: ConfigChanges,
    reason: &str,
) -> anyhow::Result<()> {
    if changes == ConfigChanges::default() {
        bail!("there is nothing to change; give NAME=VALUE, --approvals, --approvers or --solo");
    }
    let update = SessionConfigUpdate {
        changes,
        reason: reason.to_owned(),
        extra: ExtraFields::new(),
    };
    match api.send_message(session, update) {
        Ok(_) => Ok(()),
        Err(ApiError::Refused(report)) if report.code == ErrorCode::Unauthorized => bail!(
            "only an admin may change the settings of {session}; use an admin's link with --link-file ({})",
            report.message
        ),
        Err(error) => Err(error.into()),
    }
}

fn print_settings(session: &SessionId, config: &SessionConfig, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(serde_json::to_string(config)?);
    }
    print_line(format!("# session {session}"))?;
    for line in setting_lines(config)? {
        print_line(line)?;
    }
    Ok(())
}

/// The settings as lines of TOML, each quorum also in words.
fn setting_lines(config: &SessionConfig) -> anyhow::Result<Vec<String>> {
    let Value::Object(settings) = serde_json::to_value(config)? else {
        bail!("a configuration is an object");
    };
    let mut lines = Vec::new();
    for name in SessionConfig::FIELDS {
        let Some(value) = settings.get(*name) else {
            continue;
        };
        let value: toml::Value = serde_json::from_value(value.clone())?;
        let comment = match *name {
            "default_gate_quorum" => format!("  # {}", config.default_gate_quorum),
            "quorum_by_category" => quorum_comment(config),
            _ => String::new(),
        };
        lines.push(format!("{name} = {value}{comment}"));
    }
    Ok(lines)
}

fn quorum_comment(config: &SessionConfig) -> String {
    let quorums = &config.quorum_by_category;
    let by_category = [
        ("write", &quorums.write),
        ("destructive", &quorums.destructive),
    ];
    let by_category = by_category
        .into_iter()
        .filter_map(|(category, rule)| Some(format!("{category}: {}", rule.as_ref()?)));
    let tools = quorums.tools.iter();
    let tools = tools.map(|(tool, rule)| format!("{tool}: {rule}"));
    let words: Vec<_> = by_category.chain(tools).collect();
    match words.is_empty() {
        true => String::new(),
        false => format!("  # {}", words.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_a_settings_file_with_the_same_settings() {
        let mut config = SessionConfig {
            solo: true,
            read_roots: vec!["/srv/a b".to_owned()],
            ..SessionConfig::default()
        };
        config.quorum_by_category.destructive = Some(pvp_protocol::QuorumRule::Majority);
        let text = setting_lines(&config).unwrap().join("\n");
        let settings: pvp_protocol::JsonObject = toml::from_str(&text).unwrap();
        let changes = super::super::session_settings::parse_changes(settings).unwrap();
        assert_eq!(SessionConfig::default().with_changes(&changes), config);
        assert!(text.contains("# destructive: more than half of those who may approve"));
    }
}
