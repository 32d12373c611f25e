//! `pvp policy`

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use pvp_policy::{Policy, RuleInfo, RuleKind, RuleOrigin, Workspace};
use pvp_protocol::{Action, Command};
use serde_json::json;

#[derive(Args)]
pub(crate) struct PolicyArguments {
    #[command(subcommand)]
    command: PolicyCommand,
    /// Rules of your own on top of the built-in ones
    #[arg(long, value_name = "FILE", env = "PVP_POLICY", global = true)]
    policy: Option<PathBuf>,
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum PolicyCommand {
    /// All rules, or one of them with its examples
    Show {
        /// A rule's id
        rule: Option<String>,
    },
    /// Check that every example of every rule holds
    Test,
    /// The verdict on a command, and every rule that matched on the way
    Explain {
        command: String,
        #[arg(long, value_name = "DIR")]
        workspace: Option<String>,
    },
}

pub(crate) fn run(arguments: PolicyArguments) -> anyhow::Result<ExitCode> {
    let policy = super::check::load(arguments.policy.as_ref())?;
    match arguments.command {
        PolicyCommand::Show { rule: None } => list(&policy, arguments.json)?,
        PolicyCommand::Show { rule: Some(id) } => {
            let rule = policy
                .rule(&id)
                .with_context(|| format!("there is no rule `{id}`; see `pvp policy show`"))?;
            if arguments.json {
                super::say(as_json(&rule))?
            } else {
                describe(&rule)?
            }
        }
        PolicyCommand::Test => return test(&policy, arguments.json),
        PolicyCommand::Explain { command, workspace } => {
            explain(&policy, command, workspace, arguments.json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(policy: &Policy, json: bool) -> anyhow::Result<()> {
    for rule in policy.rules() {
        if json {
            super::say(as_json(&rule))?;
        } else {
            super::say(format!(
                "{:<11} {:<34} {}",
                rule.category.as_str(),
                rule.id,
                rule.reason
            ))?;
        }
    }
    if !json {
        super::say(format!("policy {}", policy.hash()))?;
    }
    Ok(())
}

fn describe(rule: &RuleInfo<'_>) -> anyhow::Result<()> {
    super::say(format!("{}  {}", rule.id, rule.category))?;
    super::say(format!("reason   {}", rule.reason))?;
    if !rule.command.is_empty() {
        super::say(format!("command  {}", rule.command))?;
    }
    if let Some(pattern) = rule.pattern {
        super::say(format!("pattern  {pattern}"))?;
    }
    for example in rule.matches {
        super::say(format!("matches  {example}"))?;
    }
    for example in rule.not {
        super::say(format!("not      {example}"))?;
    }
    Ok(())
}

fn as_json(rule: &RuleInfo<'_>) -> serde_json::Value {
    let kind = match rule.kind {
        RuleKind::Command => "command",
        RuleKind::Raw => "raw",
        RuleKind::Read => "read",
    };
    let origin = match rule.origin {
        RuleOrigin::BuiltIn => "built-in",
        RuleOrigin::User => "user",
    };
    json!({
        "id": rule.id, "kind": kind, "origin": origin, "command": rule.command,
        "pattern": rule.pattern, "category": rule.category, "risk": rule.risk,
        "reason": rule.reason, "matches": rule.matches, "not": rule.not,
    })
}

fn test(policy: &Policy, json: bool) -> anyhow::Result<ExitCode> {
    let failures = policy.failing_examples();
    let rules = policy.rules().count();
    if json {
        let problems: Vec<_> = failures.iter().map(ToString::to_string).collect();
        super::say(json!({ "rules": rules, "failures": problems }))?;
    } else {
        for failure in &failures {
            super::say(failure)?;
        }
        super::say(format!(
            "{rules} rules, {} examples that do not hold",
            failures.len()
        ))?;
    }
    Ok(if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn explain(
    policy: &Policy,
    line: String,
    workspace: Option<String>,
    json: bool,
) -> anyhow::Result<()> {
    let action = Action::new(Command::Shell { line });
    let explanation = policy.explain(
        &action,
        &Workspace {
            directory: workspace,
        },
    );
    if json {
        return super::say(json!({
            "assessment": explanation.assessment,
            "matched": explanation.matched_rules,
            "steps": explanation.steps,
        }));
    }
    super::check::describe(&explanation.assessment)?;
    for id in &explanation.matched_rules {
        let reason = policy.rule(id).map_or("", |rule| rule.reason);
        super::say(format!("matched {id}  {reason}"))?;
    }
    super::say(format!("steps   {}", explanation.steps))
}
