//! The long help of every command, as people have reviewed it.

use crate::reviewed_text::assert_reviewed;
use crate::support::cli::CliEnv;

/// The subcommands that a help page lists.
fn subcommands(help: &str) -> Vec<&str> {
    let section = help
        .split_once("\nCommands:\n")
        .map_or("", |(_, rest)| rest);
    let section = section.split("\n\n").next().unwrap_or_default();
    // A summary that continues on the next line is indented deeper.
    let lines = section.lines().filter_map(|line| line.strip_prefix("  "));
    lines
        .filter(|line| !line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect()
}

/// The help of a command and of those below it, each below the line that prints it.
async fn help_pages(cli: &CliEnv) -> Vec<(String, String)> {
    let mut pages = Vec::new();
    let mut waiting = vec![Vec::<String>::new()];
    while let Some(command) = waiting.pop() {
        let mut arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = cli.run_ok(&arguments).await;
        for name in subcommands(&help).into_iter().rev() {
            waiting.push([&command[..], &[name.to_owned()]].concat());
        }
        pages.push((format!("pvp {}", arguments.join(" ")), help));
    }
    pages
}

#[tokio::test]
async fn the_help_of_every_command_is_as_reviewed() {
    let cli = CliEnv::new();
    let pages = help_pages(&cli).await;
    assert!(pages.len() > 50, "{} pages", pages.len());
    let mut text = String::new();
    for (command, help) in &pages {
        // Padding before an empty text is not for reviewers.
        let help: Vec<_> = help.lines().map(str::trim_end).collect();
        text += &format!("$ {command}\n{}\n\n", help.join("\n"));
    }
    assert_reviewed("help.txt", &text);
}

#[tokio::test]
async fn every_command_and_option_has_help_and_names_its_values_alike() {
    let cli = CliEnv::new();
    for (command, help) in help_pages(&cli).await {
        let lines: Vec<_> = help.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let option = line.trim_start();
            let is_option =
                option.starts_with("--") || option.starts_with('-') && !option.starts_with("- ");
            // Long pages have the text in the next line, others after two spaces.
            let has_text = line.trim().contains("  ")
                || lines
                    .get(at + 1)
                    .is_some_and(|next| next.starts_with("          ") && !next.trim().is_empty());
            assert!(!is_option || has_text, "{command}: {line} has no text");
            for (option, value) in [
                ("--session", "<ID>"),
                ("--link", "<LINK>"),
                ("--data", "<DIR>"),
            ] {
                let named = line.trim_start().strip_prefix(option).map(str::trim_start);
                let named = named.filter(|rest| rest.starts_with('<'));
                assert!(
                    named.is_none_or(|rest| rest.starts_with(value)),
                    "{command}: {line}"
                );
            }
        }
    }
}
