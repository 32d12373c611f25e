//! Remembers in a data directory how its server is reached, so that `pvp invite` and `pvp tokens`
//! find the server that was started in this directory.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, bail};
use pvp_bridge::client_files::is_locked;
use pvp_bridge::client_processes::ProcessName;
use pvp_client::Link;
use pvp_client::user_directories::recorded_data_directories;
use pvp_protocol::KeyFingerprint;
use pvp_server::Server;
use pvp_server::invite::ServerAddress;
use pvp_server::store::SqliteTokens;
use serde::{Deserialize, Serialize};

use super::server;

/// The file in a data directory that says how its server is reached.
const ADDRESS_FILE: &str = "server.address";

/// Bytes of the longest address file that is read.
const MAX_FILE_BYTES: u64 = 16 * 1024;

/// Where links point to if no server has said how it is reached.
const DEFAULT_URL: &str = "http://127.0.0.1:3000";

#[derive(Serialize, Deserialize)]
struct AddressFile {
    /// The address that others open.
    url: String,
    /// The address for this machine.
    local_url: String,
    /// The fingerprint of the server's key, if it signs its certificate itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    /// The directory that the server was started in.
    directory: PathBuf,
    /// The process that wrote this, once it could be reached there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process: Option<ServerProcess>,
}

/// A process, by what no later one has.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct ServerProcess {
    pid: i32,
    /// In ticks since the machine started.
    started: u64,
}

/// The data directory of a server on this machine, and how the server is reached.
pub(super) struct LocalServer {
    pub(super) data: PathBuf,
    /// The address that others open.
    pub(super) address: ServerAddress,
    /// The address for this machine.
    pub(super) local_address: ServerAddress,
    /// The process that listened there.
    process: Option<ServerProcess>,
}

/// Writes how a server that has just started is reached.
pub(super) fn record(data: &Path, server: &Server) -> anyhow::Result<()> {
    let content = AddressFile {
        url: server.url(),
        local_url: server.local_address().url,
        fingerprint: server
            .server_address()
            .fingerprint
            .map(|key| key.to_string()),
        directory: super::current_directory()?,
        process: ProcessName::own()
            .map(|ProcessName { pid, started }| ServerProcess { pid, started }),
    };
    let (path, temporary) = (data.join(ADDRESS_FILE), data.join("server.address.new"));
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)?;
        writeln!(file, "{}", serde_json::to_string(&content)?)?;
        std::fs::rename(&temporary, &path)
    };
    write().with_context(|| format!("writing {}", path.display()))
}

impl LocalServer {
    /// The server of this data directory.
    pub(super) fn in_directory(data: &Path) -> anyhow::Result<Self> {
        if !is_data_directory(data) {
            bail!(
                "{} is not a data directory; start `pvp up` or `pvp server` with it first",
                data.display()
            );
        }
        let known = read_address(data);
        let process = known.as_ref().and_then(|address| address.process);
        let (url, local_url, fingerprint) = match known {
            Some(address) => (address.url, address.local_url, address.fingerprint),
            None => (DEFAULT_URL.to_owned(), DEFAULT_URL.to_owned(), None),
        };
        let fingerprint = fingerprint.and_then(|text| KeyFingerprint::parse(&text).ok());
        let address = |url| ServerAddress { url, fingerprint };
        Ok(Self {
            data: data.to_owned(),
            address: address(url),
            local_address: address(local_url),
            process,
        })
    }

    /// The server that was started in this directory or the nearest one above it; of several, the
    /// one that was started last.
    pub(super) fn started_here() -> anyhow::Result<Option<Self>> {
        let here = super::current_directory()?;
        let mut known = recorded_data_directories();
        known.extend(server::default_data_directory().ok());
        let started = known.iter().filter(|data| is_data_directory(data));
        let started = started.filter_map(|data| {
            let address = read_address(data)?;
            let depth = address.directory.components().count();
            let at = modified_at(data)?;
            here.starts_with(&address.directory)
                .then_some((depth, at, data))
        });
        let nearest = started.max_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
        nearest
            .map(|(_, _, data)| Self::in_directory(data))
            .transpose()
    }

    /// Whether a link leads to this server.
    pub(super) fn is_reached_by(&self, link: &Link) -> bool {
        [&self.address, &self.local_address]
            .iter()
            .any(|address| address.url == link.base_url())
    }

    /// Whether its address leads nowhere from another machine.
    pub(super) fn is_local_only(&self) -> bool {
        is_local_url(&self.address.url)
    }

    /// The file that it holds a lock on while it runs.
    pub(super) fn lock_file(&self) -> PathBuf {
        self.data.join("pvp.lock")
    }

    /// Whether it runs and listens at this address. A server that is only being started, or a
    /// command that works on its data, holds the lock too, while somebody else may have the address
    /// that the last one had.
    pub(super) fn listens(&self) -> bool {
        let process = self
            .process
            .map(|ServerProcess { pid, started }| ProcessName { pid, started });
        is_locked(&self.lock_file()) && process.is_some_and(ProcessName::is_alive)
    }

    /// The port that it listened on.
    pub(super) fn port(&self) -> Option<u16> {
        let (_, port) = self.local_address.url.rsplit_once(':')?;
        port.parse().ok()
    }

    pub(super) fn tokens(&self) -> anyhow::Result<SqliteTokens> {
        SqliteTokens::open(&self.data).context("opening the data directory")
    }
}

/// Whether a URL leads to the machine where it is opened.
pub(super) fn is_local_url(url: &str) -> bool {
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    let place = place.split(['/', '#']).next().unwrap_or_default();
    let with_port = place.parse::<SocketAddr>().map(|address| address.ip());
    let address = with_port.or_else(|_| place.trim_matches(['[', ']']).parse::<IpAddr>());
    match address {
        Ok(address) => address.is_loopback(),
        Err(_) => place.split(':').next() == Some("localhost"),
    }
}

fn is_data_directory(data: &Path) -> bool {
    data.join("pvp.sqlite3").exists()
}

fn modified_at(data: &Path) -> Option<SystemTime> {
    let file = std::fs::metadata(data.join(ADDRESS_FILE)).ok()?;
    file.modified().ok()
}

/// What a data directory says about its server; `None` if it says nothing that can be used.
fn read_address(data: &Path) -> Option<AddressFile> {
    let mut text = String::new();
    let file = File::open(data.join(ADDRESS_FILE)).ok()?;
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    let address: AddressFile = serde_json::from_str(&text).ok()?;
    let is_usable = |url: &str| Link::parse(url).is_ok_and(|link| link.base_url() == url);
    let fingerprint = address.fingerprint.as_deref().map(KeyFingerprint::parse);
    let has_good_key = !matches!(fingerprint, Some(Err(_)));
    let is_whole = is_usable(&address.url) && is_usable(&address.local_url) && has_good_key;
    is_whole.then_some(address)
}

#[cfg(test)]
mod tests {
    use super::is_local_url;

    #[test]
    fn a_url_of_this_machine_is_told_from_others() {
        for (url, expected) in [
            ("http://127.0.0.1:3000", true),
            ("https://127.0.0.1:3000/#join=A&fp=B", true),
            ("http://127.0.0.2", true),
            ("http://[::1]:3000/", true),
            ("http://[::1]", true),
            ("http://localhost:3000", true),
            ("http://192.168.1.5:3000/#join=A", false),
            ("https://pvp.example.com", false),
            ("https://localhost.example.com", false),
            ("https://pvp.example.com/#join=127.0.0.1", false),
        ] {
            assert_eq!(is_local_url(url), expected, "{url}");
        }
    }
}
