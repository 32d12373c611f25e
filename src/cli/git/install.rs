//! `pvp git install` and `uninstall`: put hooks into a repository, and take them out again.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use super::super::shell_words::quote;
use super::super::{print_line, print_warning};
use super::repository::Repository;

/// The hooks that are installed.
const HOOKS: [&str; 2] = ["prepare-commit-msg", "post-commit"];

/// Marks a hook as one that may be replaced and removed.
const MARK: &str = "# Installed by `pvp git install`; `pvp git uninstall` removes it.";

/// What a hook that was there before is renamed to: this follows its name.
const KEPT: &str = ".before-pvp";

/// How much of a hook is read to find the mark.
const MAX_READ_BYTES: u64 = 4096;

#[derive(Args)]
pub(crate) struct InstallArguments {
    /// A directory in the repository [default: the current directory]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// Keep hooks that are there, and run them first
    #[arg(long)]
    chain: bool,
}

#[derive(Args)]
pub(crate) struct UninstallArguments {
    /// A directory in the repository [default: the current directory]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(super) fn install(arguments: &InstallArguments) -> anyhow::Result<ExitCode> {
    let hooks = HooksDirectory::find(arguments.directory.as_deref())?;
    let program = std::env::current_exe().context("finding this program")?;
    let program = program.to_str().context("the path of this program")?;
    // All are looked at before the first is written.
    for name in HOOKS {
        hooks.check_may_write(name, arguments.chain)?;
    }
    std::fs::create_dir_all(&hooks.path)
        .with_context(|| format!("creating {}", hooks.path.display()))?;
    for name in HOOKS {
        hooks.write(name, program)?;
    }
    print_line(format!(
        "installed {} in {}",
        HOOKS.join(" and "),
        hooks.path.display()
    ))?;
    if hooks.is_elsewhere {
        print_warning(
            "`core.hooksPath` names this directory; its hooks run in every repository that uses it",
        );
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn uninstall(arguments: &UninstallArguments) -> anyhow::Result<ExitCode> {
    let hooks = HooksDirectory::find(arguments.directory.as_deref())?;
    let mut removed = Vec::new();
    for name in HOOKS {
        if hooks.remove(name)? {
            removed.push(name);
        }
    }
    let place = hooks.path.display();
    match removed.as_slice() {
        [] => print_line(format!("no hook of pvp is in {place}"))?,
        names => print_line(format!("removed {} from {place}", names.join(" and ")))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is in the place of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PresentHook {
    None,
    /// Written by an earlier `pvp git install`.
    Own,
    Foreign,
}

/// Where git looks for the hooks of a repository.
struct HooksDirectory {
    path: PathBuf,
    /// Whether it is outside of the repository.
    is_elsewhere: bool,
}

impl HooksDirectory {
    fn find(directory: Option<&Path>) -> anyhow::Result<Self> {
        let directory = match directory {
            Some(directory) => directory.to_owned(),
            None => super::super::current_directory()?,
        };
        let repository = Repository::around(&directory)?;
        let path = repository.hooks_directory()?;
        let path = path.canonicalize().unwrap_or(path);
        let own = repository.own_directories()?;
        let is_elsewhere = !own.iter().any(|own| path.starts_with(own));
        Ok(Self { path, is_elsewhere })
    }

    fn present(&self, name: &str) -> anyhow::Result<PresentHook> {
        let path = self.path.join(name);
        let read = || {
            let mut bytes = Vec::new();
            let file = std::fs::File::open(&path)?;
            file.take(MAX_READ_BYTES).read_to_end(&mut bytes)?;
            std::io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(PresentHook::None),
            // A link is somebody else's, even one that leads nowhere.
            Ok(metadata) if !metadata.is_file() => return Ok(PresentHook::Foreign),
            found => found.with_context(|| format!("looking at {}", path.display()))?,
        };
        let text = read().with_context(|| format!("reading {}", path.display()))?;
        let is_own = text.lines().nth(1) == Some(MARK);
        Ok(match is_own {
            true => PresentHook::Own,
            false => PresentHook::Foreign,
        })
    }

    fn check_may_write(&self, name: &str, chain: bool) -> anyhow::Result<()> {
        let (path, kept) = (self.path.join(name), self.kept(name));
        match self.present(name)? {
            PresentHook::None | PresentHook::Own => Ok(()),
            PresentHook::Foreign if !chain => bail!(
                "{} is there already, and not from pvp; run `pvp git install --chain` to keep it and run it first, or remove it",
                path.display()
            ),
            PresentHook::Foreign if kept.symlink_metadata().is_ok() => bail!(
                "{} cannot be kept as {}, which is there already; remove one of them",
                path.display(),
                kept.display()
            ),
            PresentHook::Foreign => Ok(()),
        }
    }

    fn kept(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}{KEPT}"))
    }

    /// Writes a hook; one of somebody else is kept beside it.
    fn write(&self, name: &str, program: &str) -> anyhow::Result<()> {
        let path = self.path.join(name);
        if self.present(name)? == PresentHook::Foreign {
            let kept = self.kept(name);
            std::fs::rename(&path, &kept)
                .with_context(|| format!("renaming {} to {}", path.display(), kept.display()))?;
        }
        let temporary = self.path.join(format!("{name}.pvp-new"));
        let write = || -> std::io::Result<()> {
            let mut file = OpenOptions::new()
                .create_new(true)
                .write(true)
                .mode(0o755)
                .open(&temporary)?;
            file.write_all(hook_script(name, program).as_bytes())?;
            drop(file);
            // Nothing is ever half a hook, and a link in its place is not followed.
            std::fs::rename(&temporary, &path)
        };
        // What an interrupted run has left; if it is not there, so much the better.
        let _ = std::fs::remove_file(&temporary);
        write().with_context(|| format!("writing {}", path.display()))
    }

    /// Removes a hook of pvp and puts back the one that it replaced; false if there is none of pvp.
    fn remove(&self, name: &str) -> anyhow::Result<bool> {
        let (path, kept) = (self.path.join(name), self.kept(name));
        if self.present(name)? != PresentHook::Own {
            return Ok(false);
        }
        match kept.symlink_metadata() {
            Ok(_) => std::fs::rename(&kept, &path),
            Err(_) => std::fs::remove_file(&path),
        }
        .with_context(|| format!("removing {}", path.display()))?;
        Ok(true)
    }
}

/// A hook that calls this program, and that succeeds whatever comes of it.
fn hook_script(name: &str, program: &str) -> String {
    let program = quote(program);
    format!(
        r#"#!/bin/sh
{MARK}
if [ -x "$0{KEPT}" ]; then
    "$0{KEPT}" "$@" || exit $?
fi
pvp={program}
[ -x "$pvp" ] || pvp=pvp
"$pvp" git hook {name} "$@" </dev/null >/dev/null 2>&1 || true
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_found_in_what_is_written_and_odd_paths_are_quoted() {
        let script = hook_script("post-commit", "/a b/it's/pvp");
        assert_eq!(script.lines().nth(1), Some(MARK));
        assert!(script.contains(r"pvp='/a b/it'\''s/pvp'"), "{script}");
    }
}
