//! `pvp policy`: shows, tests and explains the policy rules.

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
    /// A file of rules to add to the built-in ones
    #[arg(long, value_name = "FILE", env = "PVP_POLICY", global = true)]
    policy: Option<PathBuf>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum PolicyCommand {
    /// List all rules, or show one with its examples
    Show {
        /// The id of a rule
        rule: Option<String>,
    },
    /// Check the examples of every rule
    Test,
    /// Classify a command, and list every rule that matched
    Explain {
        /// The command line, quoted
        command: String,
        /// The agent's workspace; reads outside of it need approval
        #[arg(long, value_name = "DIR")]
        workspace: Option<String>,
    },
}

pub(crate) fn run(arguments: PolicyArguments) -> anyhow::Result<ExitCode> {
    let policy = super::check::load_policy(arguments.policy.as_ref())?;
    match arguments.command {
        PolicyCommand::Show { rule: None } => print_rules(&policy, arguments.json)?,
        PolicyCommand::Show { rule: Some(id) } => {
            let rule = policy.rule(&id).with_context(|| {
                format!("there is no rule `{id}`; list the rules with `pvp policy show`")
            })?;
            if arguments.json {
                super::print_json(rule_json(&rule))?
            } else {
                print_rule(&rule)?
            }
        }
        PolicyCommand::Test => return test_examples(&policy, arguments.json),
        PolicyCommand::Explain { command, workspace } => {
            print_explanation(&policy, command, workspace, arguments.json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_rules(policy: &Policy, json: bool) -> anyhow::Result<()> {
    for rule in policy.rules() {
        if json {
            super::print_json(rule_json(&rule))?;
        } else {
            super::print_line(format!(
                "{:<11} {:<34} {}",
                rule.category.as_str(),
                rule.id,
                rule.reason
            ))?;
        }
    }
    if !json {
        super::print_line(format!("policy {}", policy.hash()))?;
    }
    Ok(())
}

fn print_rule(rule: &RuleInfo<'_>) -> anyhow::Result<()> {
    super::print_line(format!("{}  {}", rule.id, rule.category))?;
    super::print_line(format!("reason   {}", rule.reason))?;
    if !rule.command.is_empty() {
        super::print_line(format!("command  {}", rule.command))?;
    }
    if let Some(pattern) = rule.pattern {
        super::print_line(format!("pattern  {pattern}"))?;
    }
    for example in rule.matches {
        super::print_line(format!("matches  {example}"))?;
    }
    for example in rule.not {
        super::print_line(format!("not      {example}"))?;
    }
    Ok(())
}

fn rule_json(rule: &RuleInfo<'_>) -> serde_json::Value {
    let kind = match rule.kind {
        RuleKind::Command => "command",
        RuleKind::Raw => "raw",
        RuleKind::Read => "read",
        RuleKind::Tool => "tool",
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

fn test_examples(policy: &Policy, json: bool) -> anyhow::Result<ExitCode> {
    let failures = policy.failing_examples();
    let rules = policy.rules().count();
    if json {
        let problems: Vec<_> = failures.iter().map(ToString::to_string).collect();
        super::print_json(json!({ "rules": rules, "failures": problems }))?;
    } else {
        for failure in &failures {
            super::print_line(failure)?;
        }
        super::print_line(format!(
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

fn print_explanation(
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
            ..Workspace::default()
        },
    );
    if json {
        return super::print_json(json!({
            "assessment": explanation.assessment,
            "matched": explanation.matched_rules,
            "steps": explanation.steps,
        }));
    }
    super::check::print_assessment(&explanation.assessment)?;
    for id in &explanation.matched_rules {
        let reason = policy.rule(id).map_or("", |rule| rule.reason);
        super::print_line(format!("matched {id}  {reason}"))?;
    }
    super::print_line(format!("steps   {}", explanation.steps))
}
