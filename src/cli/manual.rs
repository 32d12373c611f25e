//! `pvp man`: writes manual pages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, CommandFactory};

#[derive(Args)]
pub(crate) struct ManArguments {
    /// Write a page for every command to this directory, instead of the main page to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn man(arguments: &ManArguments) -> anyhow::Result<ExitCode> {
    let command = crate::CliArguments::command();
    match &arguments.out {
        None => super::print_bytes(&render_page(command)?)?,
        Some(directory) => {
            std::fs::create_dir_all(directory)
                .with_context(|| format!("making {}", directory.display()))?;
            write_pages(command, "pvp", directory)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn render_page(command: clap::Command) -> anyhow::Result<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command)
        .render(&mut page)
        .context("writing a manual page")?;
    Ok(page)
}

/// Writes a page for a command and for each of its subcommands, such as `pvp-audit-verify.1`.
fn write_pages(command: clap::Command, name: &str, directory: &Path) -> anyhow::Result<()> {
    for subcommand in command.get_subcommands() {
        if subcommand.get_name() != "help" && !subcommand.is_hide_set() {
            write_pages(
                subcommand.clone(),
                &format!("{name}-{}", subcommand.get_name()),
                directory,
            )?;
        }
    }
    let path = directory.join(format!("{name}.1"));
    // clap needs a `'static` name, so it is leaked; the program ends soon.
    let command = command.name(name.to_owned().leak() as &'static str);
    std::fs::write(&path, render_page(command)?)
        .with_context(|| format!("writing {}", path.display()))
}
