//! `pvp rules`: lists the allow rules of a session, allows reading, revokes rules.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use pvp_client::{ApiClient, narrate, now};
use pvp_protocol::payload::{AllowRuleInfo, PolicyAllow, PolicyRevoke, SessionAck};
use pvp_protocol::{ExtraFields, MessageId, SessionId};

use super::invite::parse_duration;
use super::links::LinkArguments;
use super::{one_line, print_json, print_line};

/// How long a rule holds unless somebody says otherwise.
pub(super) const DEFAULT_SECONDS: u64 = 3600;

#[derive(Args)]
pub(crate) struct RulesArguments {
    #[command(flatten)]
    link: LinkArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(subcommand)]
    command: Option<RulesCommand>,
}

#[derive(Subcommand)]
enum RulesCommand {
    /// Let commands that begin with these words run without approval; never destructive ones
    Allow {
        /// The first words of the command, such as `npm run build`
        #[arg(
            required = true,
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "WORD"
        )]
        prefix: Vec<String>,
        /// How long the rule lasts, such as 30m or 2h; at most 7d
        #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
        seconds: u64,
        /// The directory that the rule applies to, or `*` for any [default: the agent's workspace]
        #[arg(long, value_name = "DIR")]
        directory: Option<String>,
        /// The reason, for the log
        #[arg(long)]
        reason: Option<String>,
    },
    /// Let reads in a directory outside the workspace run without approval
    AllowRead {
        /// The directory, as an absolute path
        directory: String,
        /// How long the rule lasts, such as 30m or 2h; at most 7d
        #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = parse_duration)]
        seconds: u64,
        /// The reason, for the log
        #[arg(long)]
        reason: Option<String>,
    },
    /// Revoke a rule
    Revoke {
        /// The id of the rule, as `pvp rules` prints it
        #[arg(value_parser = super::parse_message_id)]
        rule: MessageId,
        /// The reason, for the log
        #[arg(long)]
        reason: Option<String>,
    },
}

pub(crate) fn run(arguments: &RulesArguments) -> anyhow::Result<ExitCode> {
    let (api, session) = arguments.link.api_and_session()?;
    let ack = match &arguments.command {
        None => {
            list(&api, &session, arguments.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        Some(RulesCommand::Allow {
            prefix,
            seconds,
            directory,
            reason,
        }) => {
            let allow = PolicyAllow {
                prefix: prefix.clone(),
                read_root: None,
                directory: directory.clone(),
                expires_at: now().plus_seconds(*seconds),
                reason: reason.clone(),
                extra: ExtraFields::new(),
            };
            api.send_message(&session, allow)?
        }
        Some(RulesCommand::AllowRead {
            directory,
            seconds,
            reason,
        }) => allow_reading(&api, &session, directory, *seconds, reason.clone())?,
        Some(RulesCommand::Revoke { rule, reason }) => {
            let revoke = PolicyRevoke {
                rule: rule.clone(),
                reason: reason.clone(),
                extra: ExtraFields::new(),
            };
            api.send_message(&session, revoke)?
        }
    };
    match (&arguments.command, arguments.json) {
        (_, true) => print_json(serde_json::to_string(&ack)?)?,
        (Some(RulesCommand::Allow { prefix, .. }), false) => {
            let (words, rule) = (one_line(&prefix.join(" ")), &ack.id);
            print_line(format!(
                "allowed commands that begin with `{words}`  {rule}"
            ))?;
        }
        (Some(RulesCommand::AllowRead { directory, .. }), false) => {
            let rule = &ack.id;
            print_line(format!(
                "allowed reading below {} (rule {rule})",
                one_line(directory)
            ))?;
        }
        (Some(RulesCommand::Revoke { .. }) | None, false) => print_line("revoked")?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(api: &ApiClient, session: &SessionId, json: bool) -> anyhow::Result<()> {
    let mut rules = api.session(session)?.rules;
    let now = now();
    rules.retain(|rule| rule.expires_at > now);
    if json {
        return print_json(serde_json::to_string(&rules)?);
    }
    for rule in &rules {
        print_line(rule_line(rule, now))?;
    }
    if rules.is_empty() {
        print_line("no allow rules are in force")?;
    }
    Ok(())
}

fn rule_line(rule: &AllowRuleInfo, now: pvp_protocol::Timestamp) -> String {
    let allowed = narrate::allow_rule(
        &rule.prefix.join(" "),
        rule.read_root.as_deref(),
        rule.directory.as_deref(),
    );
    let left = narrate::duration(rule.expires_at.millis_since(now));
    let text = format!("{allowed}, expires in {left}, by {}", rule.by);
    format!("{}  {}", rule.rule, one_line(&text))
}

/// Allows reading below a directory for so many seconds.
pub(super) fn allow_reading(
    api: &ApiClient,
    session: &SessionId,
    directory: &str,
    seconds: u64,
    reason: Option<String>,
) -> anyhow::Result<SessionAck> {
    let allow = PolicyAllow {
        prefix: Vec::new(),
        read_root: Some(directory.to_owned()),
        directory: None,
        expires_at: now().plus_seconds(seconds),
        reason,
        extra: ExtraFields::new(),
    };
    Ok(api.send_message(session, allow)?)
}
