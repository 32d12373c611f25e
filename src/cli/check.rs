//! `pvp check`: assesses commands without running them.

use std::io::BufRead;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pvp_policy::{Policy, Workspace};
use pvp_protocol::{Action, Assessment, Category, Command};

use super::one_line;

#[derive(Args)]
pub(crate) struct CheckArguments {
    /// The command line, quoted; with --argv, the program; with --tool, the arguments as JSON
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin")]
    command: Option<String>,
    /// With --argv: the arguments of the program
    #[arg(requires = "argv", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
    /// Classify a program with its arguments, which run without a shell
    #[arg(long)]
    argv: bool,
    /// Classify a call of this tool
    #[arg(long, value_name = "NAME", conflicts_with_all = ["argv", "stdin", "cwd"])]
    tool: Option<String>,
    /// Classify many commands: read one JSON string per line, and print one category per line
    #[arg(long, conflicts_with_all = ["json", "argv"])]
    stdin: bool,
    /// The directory where the command would run
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// The agent's workspace; reads outside of it need approval
    #[arg(long, value_name = "DIR")]
    workspace: Option<String>,
    /// A file of rules to add to the built-in ones
    #[arg(long, value_name = "FILE", env = "PVP_POLICY")]
    policy: Option<PathBuf>,
    /// Print the whole verdict as JSON
    #[arg(long)]
    json: bool,
}

/// Assesses one command, or many from standard input. For one command, the exit code is its
/// category.
pub(crate) fn run(arguments: CheckArguments) -> anyhow::Result<ExitCode> {
    let policy = load_policy(arguments.policy.as_ref())?;
    let workspace = Workspace {
        directory: arguments.workspace.clone(),
        ..Workspace::default()
    };
    if arguments.stdin {
        return check_stdin(&policy, &workspace, arguments.cwd.as_deref());
    }
    let command = arguments.command.context("give a command to check")?;
    let command = if let Some(name) = &arguments.tool {
        Command::tool_call(name, &command)?
    } else if arguments.argv {
        Command::Argv {
            command,
            args: arguments.words,
        }
    } else {
        Command::Shell { line: command }
    };
    let assessment = assess(&policy, &workspace, command, arguments.cwd.as_deref());
    if arguments.json {
        super::print_json(serde_json::to_string(&assessment)?)?;
    } else {
        print_assessment(&assessment)?;
    }
    Ok(exit_code(assessment.category))
}

/// Loads the built-in rules, plus the user's own file if one is given.
pub(super) fn load_policy(file: Option<&PathBuf>) -> anyhow::Result<Policy> {
    let Some(path) = file else {
        return Ok(Policy::built_in());
    };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("reading the rules in {}", path.display()))?;
    Ok(Policy::with_user_file(&text, &path.display().to_string())?)
}

fn assess(
    policy: &Policy,
    workspace: &Workspace,
    command: Command,
    cwd: Option<&str>,
) -> Assessment {
    let action = match command {
        Command::Tool { name, arguments } => Action::from_tool_call(&name, &arguments),
        command @ (Command::Shell { .. } | Command::Argv { .. } | Command::LoginShell { .. }) => {
            Action {
                cwd: cwd.map(str::to_owned),
                ..Action::new(command)
            }
        }
    };
    policy.assess(&action, workspace)
}

fn check_stdin(
    policy: &Policy,
    workspace: &Workspace,
    cwd: Option<&str>,
) -> anyhow::Result<ExitCode> {
    for (number, line) in std::io::stdin().lock().lines().enumerate() {
        let line = line.context("reading standard input")?;
        let Ok(command) = serde_json::from_str::<String>(&line) else {
            bail!(
                "line {} is not a JSON string; the lines after it were not read",
                number + 1
            );
        };
        let assessment = assess(policy, workspace, Command::Shell { line: command }, cwd);
        super::print_line(assessment.category)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints an assessment for a person.
pub(super) fn print_assessment(assessment: &Assessment) -> anyhow::Result<()> {
    let risk = format!("{:?}", assessment.risk).to_lowercase();
    super::print_line(format!("{}  (risk: {risk})", assessment.category_label()))?;
    super::print_line(format!("rule    {}", assessment.rule))?;
    super::print_line(format!("reason  {}", one_line(&assessment.reason)))?;
    for part in &assessment.parts {
        super::print_line(format!(
            "part    {:<14} {}  [{}] {}",
            part.category_label(),
            one_line(&part.text),
            part.rule,
            one_line(&part.reason)
        ))?;
    }
    for note in &assessment.notes {
        super::print_line(format!("note    {}", one_line(note)))?;
    }
    Ok(())
}

/// 0 for a read, so that `pvp check … && …` continues only if the command needs no approval.
fn exit_code(category: Category) -> ExitCode {
    ExitCode::from(match category {
        Category::Read => 0,
        Category::Write => 10,
        Category::Destructive => 20,
        Category::Blocked => 30,
    })
}
