//! Finds the server and session that a command is about: from flags, the environment, or a saved
//! link.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use pvp_client::user_directories::{
    config_directory, create_private_directory, directory_key, state_directory,
};
use pvp_client::{ApiClient, Link};
use pvp_protocol::{ParticipantKind, SessionId};

use super::link_argument;

/// Where earlier versions saved a directory's link: in the directory, where an agent could read it.
const FORMER_LINK_FILE: &str = ".pvp/link";

#[derive(Args, Clone, Default)]
pub(crate) struct LinkArguments {
    /// The link, or `-` to read it from standard input [default: $PVP_LINK, or the link saved for
    /// this directory]
    #[arg(long, value_name = "LINK")]
    link: Option<String>,
    /// Read the link from this file
    #[arg(long, value_name = "FILE", conflicts_with = "link")]
    link_file: Option<PathBuf>,
    /// The session; needed if the link opens several
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
            LinkSource::File(path) => write!(f, "saved in {}", path.display()),
        }
    }
}

impl LinkArguments {
    /// As if only this flag had been given.
    pub(crate) fn for_completion(link_file: Option<PathBuf>) -> Self {
        Self {
            link_file,
            ..Self::default()
        }
    }

    /// The link given by flag or environment.
    pub(crate) fn given_link(&self) -> anyhow::Result<Option<Link>> {
        if let Some(text) = &self.link {
            let link = link_argument::from_argument(text).context("--link")?;
            return Ok(Some(link));
        }
        if let Some(path) = &self.link_file {
            return Ok(Some(link_argument::from_file(path)?));
        }
        link_from_variable("PVP_LINK")
    }

    /// The link given by flag or environment, or else the nearest saved one.
    pub(crate) fn resolve_link(&self) -> anyhow::Result<(Link, LinkSource)> {
        if let Some(link) = self.given_link()? {
            return Ok((link, LinkSource::Given));
        }
        let found = find_saved_link(&[ParticipantKind::Human, ParticipantKind::Agent])?;
        found.context(
            "no server is known here; start one with `pvp up`, join one with `pvp join` or `pvp login`, give --link-file, or set PVP_LINK",
        )
    }

    /// As `resolve_link`, but prints nothing; `None` if there is no link.
    pub(crate) fn resolve_quietly(&self) -> anyhow::Result<Option<Link>> {
        if let Some(link) = self.given_link()? {
            return Ok(Some(link));
        }
        let found = nearest_saved_link(&[ParticipantKind::Human, ParticipantKind::Agent])?;
        Ok(found.map(|(link, _)| link))
    }

    /// As `resolve_link`, for a command that also takes the link as its argument.
    pub(crate) fn resolve_link_or(&self, argument: Option<&str>) -> anyhow::Result<Link> {
        match argument {
            Some(text) => link_argument::from_argument(text),
            None => Ok(self.resolve_link()?.0),
        }
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
                "no session is open; create one with `pvp create`, or choose one of `pvp sessions --all` with --session"
            ),
            several => {
                let names: Vec<_> = several.iter().map(|one| one.session.as_str()).collect();
                bail!(
                    "several sessions are open; choose one with --session: {}",
                    names.join(", ")
                )
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

/// The link that an environment variable holds, if it is set.
pub(crate) fn link_from_variable(name: &str) -> anyhow::Result<Option<Link>> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let link = Link::parse(&text.to_string_lossy());
    link.map(Some).with_context(|| name.to_owned())
}

/// The link that is saved for one of these holders, the first before the others: for this directory,
/// for the nearest one above it, or else for every directory. Links in the directories themselves
/// are not used: a repository may bring one along.
pub(crate) fn find_saved_link(
    holders: &[ParticipantKind],
) -> anyhow::Result<Option<(Link, LinkSource)>> {
    let found = nearest_saved_link(holders)?;
    let Some(former) = former_link_here() else {
        return Ok(found);
    };
    if found.is_none() {
        bail!(
            "{file} was left by an earlier version, or came with the files here; links are no longer taken from where an agent works. \
             If it is yours, move it with `pvp login --link-file {file}`, else delete it",
            file = former.display()
        );
    }
    super::print_warning(&format!(
        "{} is not used; delete it, because an agent that works there can read it",
        former.display()
    ));
    Ok(found)
}

/// As `find_saved_link`, without a word about what else there is.
fn nearest_saved_link(holders: &[ParticipantKind]) -> anyhow::Result<Option<(Link, LinkSource)>> {
    let here = super::current_directory()?;
    let mut candidates = Vec::new();
    for directory in here.ancestors() {
        for holder in holders {
            candidates.push(link_path_for(directory, *holder)?);
        }
    }
    for holder in holders {
        candidates.push(user_link_path(*holder)?);
    }
    for path in candidates {
        if path.symlink_metadata().is_ok() {
            let link = link_argument::from_file(&path)?;
            return Ok(Some((link, LinkSource::File(path))));
        }
    }
    Ok(None)
}

/// The nearest link file that an earlier version left in this directory or above it.
pub(crate) fn former_link_here() -> Option<PathBuf> {
    let here = super::current_directory().ok()?;
    here.ancestors()
        .map(|directory| directory.join(FORMER_LINK_FILE))
        .find(|path| path.symlink_metadata().is_ok())
}

/// Deletes a link file that an earlier version left, once it is saved elsewhere.
pub(crate) fn remove_former_link(path: &Path) -> anyhow::Result<bool> {
    if !path.ends_with(FORMER_LINK_FILE) {
        return Ok(false);
    }
    remove_link(path)
}

/// The file for the link that applies in every directory.
pub(crate) fn user_link_path(holder: ParticipantKind) -> anyhow::Result<PathBuf> {
    Ok(config_directory()?.join(link_file_name(holder)))
}

/// The file for the link that applies in this directory and below.
pub(crate) fn directory_link_path(holder: ParticipantKind) -> anyhow::Result<PathBuf> {
    link_path_for(&super::current_directory()?, holder)
}

fn link_path_for(directory: &Path, holder: ParticipantKind) -> anyhow::Result<PathBuf> {
    let links = links_directory()?.join(directory_key(directory));
    Ok(links.join(link_file_name(holder)))
}

/// The directory below which links are saved, for each directory apart.
pub(crate) fn links_directory() -> anyhow::Result<PathBuf> {
    Ok(state_directory()?.join("links"))
}

pub(crate) fn link_file_name(holder: ParticipantKind) -> &'static str {
    match holder {
        ParticipantKind::Human => "link",
        ParticipantKind::Agent => "agent-link",
    }
}

/// Saves a link so that only its owner can read it.
pub(crate) fn save_link(path: &Path, link: &Link) -> anyhow::Result<()> {
    let directory = path.parent().context("a link is kept in a directory")?;
    create_private_directory(directory)
        .with_context(|| format!("making {}", directory.display()))?;
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
