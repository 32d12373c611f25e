//! Finds the server and session that a command is about: from flags, the environment, or a saved
//! link.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::{ApiClient, Link};
use pvp_protocol::SessionId;

/// The file in which a directory's link is saved.
const LINK_FILE: &str = ".pvp/link";

#[derive(Args, Clone)]
pub(crate) struct LinkArguments {
    /// The link to use; else $PVP_LINK, the nearest `.pvp/link`, or the one for everywhere
    #[arg(long, env = "PVP_LINK", hide_env_values = true, value_name = "LINK")]
    link: Option<String>,
    /// The session, if the link does not name it and there is more than one
    #[arg(long, env = "PVP_SESSION", value_name = "ID", value_parser = super::parse_session_id)]
    session: Option<SessionId>,
}

/// Where a link was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LinkSource {
    Given,
    File(PathBuf),
}

impl std::fmt::Display for LinkSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkSource::Given => f.write_str("given"),
            LinkSource::File(path) => write!(f, "remembered in {}", path.display()),
        }
    }
}

impl LinkArguments {
    /// The link given by flag or environment, or else the nearest saved one.
    pub(crate) fn resolve_link(&self) -> anyhow::Result<(Link, LinkSource)> {
        if let Some(text) = &self.link {
            return Ok((Link::parse(text).context("--link")?, LinkSource::Given));
        }
        let here = std::env::current_dir().context("finding the working directory")?;
        let candidates = here.ancestors().map(|directory| directory.join(LINK_FILE));
        for path in candidates.chain([user_link_path()?]) {
            match std::fs::read_to_string(&path) {
                Ok(text) => {
                    let link = Link::parse(&text)
                        .with_context(|| format!("{} does not hold a link", path.display()))?;
                    return Ok((link, LinkSource::File(path)));
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("reading {}", path.display()));
                }
            }
        }
        bail!(
            "no server is known here; give --link, set PVP_LINK, or remember one with `pvp login LINK`"
        )
    }

    pub(crate) fn api_client(&self) -> anyhow::Result<ApiClient> {
        Ok(ApiClient::new(self.resolve_link()?.0))
    }

    /// The server and the session that a command is about.
    pub(crate) fn api_and_session(&self) -> anyhow::Result<(ApiClient, SessionId)> {
        let api = self.api_client()?;
        let session = self.resolve_session(&api)?;
        Ok((api, session))
    }

    /// The session given by flag or environment, the one that the link names, or the only open one.
    pub(crate) fn resolve_session(&self, api: &ApiClient) -> anyhow::Result<SessionId> {
        if let Some(session) = self.session.as_ref().or(api.link().session()) {
            return Ok(session.clone());
        }
        let open = [("ended", Some("false".to_owned()))];
        let sessions = api.list_sessions(&open)?.sessions;
        match sessions.as_slice() {
            [only] => Ok(only.session.clone()),
            [] => bail!(
                "no session is open; make one with `pvp create`, or name one of `pvp sessions --all` with --session"
            ),
            several => {
                let names: Vec<_> = several.iter().map(|one| one.session.as_str()).collect();
                bail!("say which with --session: {}", names.join(", "))
            }
        }
    }

    /// The session, only if it was given by flag or environment.
    pub(crate) fn session_flag(&self) -> Option<SessionId> {
        self.session.clone()
    }

    /// The session, only if it was given or the link names it.
    pub(crate) fn named_session(&self, link: &Link) -> Option<SessionId> {
        self.session.clone().or_else(|| link.session().cloned())
    }
}

/// The file for the link that applies in every directory.
pub(crate) fn user_link_path() -> anyhow::Result<PathBuf> {
    Ok(super::user_directory("XDG_CONFIG_HOME", ".config")?.join("link"))
}

/// The file for the link that applies in this directory and below.
pub(crate) fn directory_link_path() -> anyhow::Result<PathBuf> {
    let here = std::env::current_dir().context("finding the working directory")?;
    Ok(here.join(LINK_FILE))
}

/// Saves a link so that only its owner can read it.
pub(crate) fn save_link(path: &Path, link: &Link) -> anyhow::Result<()> {
    let directory = path.parent().context("a link is kept in a directory")?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .with_context(|| format!("making {}", directory.display()))?;
    if path.ends_with(LINK_FILE) {
        // Keep the token out of the repository.
        let ignore = directory.join(".gitignore");
        std::fs::write(&ignore, "*\n").with_context(|| format!("writing {}", ignore.display()))?;
    }
    let temporary = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)?;
        writeln!(file, "{}", link.reveal())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    write().with_context(|| format!("writing {}", path.display()))
}

/// Deletes a saved link; false if there was none.
pub(crate) fn remove_link(path: &Path) -> anyhow::Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("removing {}", path.display())),
    }
}
