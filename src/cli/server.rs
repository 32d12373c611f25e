//! `pvp server`: runs the server alone, rotates its key, or declares that its data was restored.

use std::io::{IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use pvp_client::user_directories::{
    directory_key, record_data_directory, recorded_data_directories, state_directory,
};
use pvp_protocol::hex;
use pvp_server::Server;
use pvp_server::config::{ConfigFlag, ServerConfig};
use pvp_server::store::{self, KeyFiles, KeyRotation, RotationKind};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::prelude::*;

use super::{local_server, share};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ServerCommandArguments {
    #[command(subcommand)]
    command: Option<ServerCommand>,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Subcommand)]
enum ServerCommand {
    /// Replace the key that signs the log and destroy the old one; the server must be stopped
    RotateKey {
        /// The server's data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The server's key file, if it is not in the data directory
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Record that the data directory was restored from a backup, so that clients do not report the
    /// shorter logs as forged; the server must be stopped
    Restored {
        /// The server's data directory
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// The server's key file, if it is not in the data directory
        #[arg(long, value_name = "FILE")]
        key_file: Option<PathBuf>,
    },
}

#[derive(Args)]
pub(crate) struct ServerArguments {
    /// The address to listen on, with or without a port; 0.0.0.0 lets other machines connect
    /// [default: 127.0.0.1:3000]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The directory for the log, the tokens and the key [default: one for this directory, below the
    /// user's state directory]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// The file with the key that signs the log [default: server.key in the data directory]
    #[arg(long, value_name = "FILE")]
    key_file: Option<String>,
    /// Run without login: anyone who can connect may take any role
    #[arg(long)]
    open: bool,
    /// With --open: listen even on an address that other machines can reach
    #[arg(long)]
    i_know_this_is_open: bool,
    /// With --open: the port on 127.0.0.1 where published git hooks ask, or 0 for none
    /// [default: 9847]
    #[arg(long, value_name = "PORT")]
    bridge_port: Option<String>,
    /// The URL that links begin with, if others reach the server by another address, such as that of
    /// a reverse proxy with TLS
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Serve HTTPS with this certificate chain, in PEM; read again when it changes and on SIGHUP
    #[arg(long, value_name = "FILE", requires = "tls_key", conflicts_with_all = ["tls_self_signed", "acme"])]
    tls_cert: Option<String>,
    /// The private key of --tls-cert
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<String>,
    /// Serve HTTPS with a certificate that the server makes itself; links carry the fingerprint of its
    /// key, which `pvp` checks
    #[arg(long, conflicts_with = "acme")]
    tls_self_signed: bool,
    /// Serve HTTPS with a certificate for this domain from Let's Encrypt, which must reach this server
    /// at port 443 of the domain
    #[arg(long, value_name = "DOMAIN")]
    acme: Option<String>,
    /// With --acme: where the authority writes to if there is a problem
    #[arg(long, value_name = "ADDRESS", requires = "acme")]
    acme_email: Option<String>,
    /// A file of rules to add to the built-in ones; reloaded on SIGHUP
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    /// Make the working directory of each session a git repository
    #[arg(long)]
    git_init: bool,
    /// Server settings: a TOML file, or JSON such as '{"open_gates": 50}'; see docs/operations.md
    #[arg(long, value_name = "FILE|JSON")]
    config: Option<String>,
    /// Print a line of JSON when the server is ready
    #[arg(long)]
    pub(super) json: bool,
}

pub(crate) fn run(arguments: &ServerCommandArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        None => run_server(&arguments.server),
        Some(ServerCommand::RotateKey {
            data,
            key_file,
            json,
        }) => rotate_key(data, key_file.as_deref(), *json),
        Some(ServerCommand::Restored { data, key_file }) => {
            declare_restored(data, key_file.as_deref())
        }
    }
}

fn run_server(arguments: &ServerArguments) -> anyhow::Result<ExitCode> {
    let config = prepare(arguments, "warn,pvp_server=info")?;
    let (data, open, json) = (data_directory(&config)?, config.open, arguments.json);
    super::runtime()?.block_on(serve(config, async move |server: &Server| {
        print_startup(server, &data, open, json).await
    }))?;
    Ok(ExitCode::SUCCESS)
}

/// What is logged beside what a person reads in the same terminal.
pub(super) const QUIET_LOG: &str = "warn";

/// Loads the settings, refuses dangerous ones, and starts logging.
pub(super) fn prepare(
    arguments: &ServerArguments,
    default_log: &str,
) -> anyhow::Result<ServerConfig> {
    let config = load_config(arguments, ServerConfig::default())?;
    complete(arguments, config, default_log)
}

/// The same for a server that others are to reach: it listens on every interface, unless the settings
/// say where it listens or how it is reached.
pub(super) fn prepare_shared(arguments: &ServerArguments) -> anyhow::Result<ServerConfig> {
    let config = load_config(arguments, ServerConfig::default())?;
    if config.public_url.is_some() {
        return complete(arguments, config, QUIET_LOG);
    }
    let mut defaults = ServerConfig::default();
    defaults.listen.set_ip(Ipv4Addr::UNSPECIFIED.into());
    complete(arguments, load_config(arguments, defaults)?, QUIET_LOG)
}

fn complete(
    arguments: &ServerArguments,
    mut config: ServerConfig,
    default_log: &str,
) -> anyhow::Result<ServerConfig> {
    config.check_exposure(arguments.i_know_this_is_open)?;
    if let (Some(domain), true) = (&config.acme, config.listen.ip().is_loopback()) {
        super::print_warning(&format!(
            "the authority has to reach this server at port 443 of {domain}, and it listens on {} only: forward that port, or use --listen 0.0.0.0:443",
            config.listen
        ));
    }
    if config.data.is_none() {
        config.data = Some(default_data_directory()?);
    }
    init_tracing(default_log);
    Ok(config)
}

/// Where a server that is started in this directory keeps its data, unless told otherwise: outside
/// of it, because an agent may work here.
pub(super) fn default_data_directory() -> anyhow::Result<PathBuf> {
    let here = super::current_directory()?;
    let state = state_directory().context("finding a place for the server's data; give --data")?;
    Ok(state.join("data").join(directory_key(&here)))
}

/// The data directory of settings that `prepare` has completed.
pub(super) fn data_directory(config: &ServerConfig) -> anyhow::Result<PathBuf> {
    config.data.clone().context("there is no data directory")
}

/// The data directories in a workspace, also those that an earlier version made there.
pub(super) fn data_directories_in(workspace: &Path) -> Vec<PathBuf> {
    let former = workspace.join("pvp-data");
    let former = former.join("pvp.sqlite3").exists().then_some(former);
    let mut found: Vec<_> = recorded_data_directories()
        .into_iter()
        .filter(|data| data.starts_with(workspace))
        .chain(former)
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Warns of data directories in a workspace.
pub(super) fn warn_of_data_in(workspace: &Path) {
    for data in data_directories_in(workspace) {
        super::print_warning(&format!(
            "the server's data in {} lies in the workspace {}: reads are kept out of it, but approved commands are not; move it elsewhere",
            data.display(),
            workspace.display()
        ));
    }
}

/// Notes the data directory, or the key, for the executors on this machine, and warns if it lies
/// where an agent may work.
fn record_data(data: &Path) {
    if let Err(error) = record_data_directory(data) {
        super::print_warning(&format!(
            "could not record the data directory for the agents on this machine: {error}"
        ));
    }
    if let (Ok(data), Ok(here)) = (data.canonicalize(), super::current_directory())
        && data.starts_with(&here)
    {
        super::print_warning(&format!(
            "the data in {} lies in this directory; if an agent works here, its reads are kept out of it, but approved commands are not",
            data.display()
        ));
    }
}

fn load_config(
    arguments: &ServerArguments,
    defaults: ServerConfig,
) -> anyhow::Result<ServerConfig> {
    let file = match &arguments.config {
        None => None,
        Some(json) if json.trim_start().starts_with('{') => {
            Some(("--config".to_owned(), json.clone()))
        }
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("reading the settings in {path}"))?;
            Some((path.clone(), text))
        }
    };
    let mut flags = Vec::new();
    let mut flag = |key: &'static str, text: Option<&String>| {
        flags.extend(text.map(|text| ConfigFlag {
            key,
            text: text.clone(),
        }));
    };
    flag("listen", arguments.listen.as_ref());
    flag("data", arguments.data.as_ref());
    flag("key_file", arguments.key_file.as_ref());
    flag("bridge_port", arguments.bridge_port.as_ref());
    flag("public_url", arguments.public_url.as_ref());
    flag("tls_cert", arguments.tls_cert.as_ref());
    flag("tls_key", arguments.tls_key.as_ref());
    flag("acme", arguments.acme.as_ref());
    flag("acme_email", arguments.acme_email.as_ref());
    flag("policy", arguments.policy.as_ref());
    let on = Some("true".to_owned());
    flag("open", on.as_ref().filter(|_| arguments.open));
    let self_signed = on.as_ref().filter(|_| arguments.tls_self_signed);
    flag("tls_self_signed", self_signed);
    flag("git_init", on.as_ref().filter(|_| arguments.git_init));
    let file = file
        .as_ref()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    Ok(ServerConfig::load_over(
        defaults,
        file,
        std::env::vars(),
        &flags,
    )?)
}

/// Starts logging to standard error, filtered by `PVP_LOG` or else by the default filter.
pub(super) fn init_tracing(default_filter: &str) {
    let colors = std::io::stderr().is_terminal();
    init_tracing_to(default_filter, std::io::stderr, colors);
}

/// The same to a file, for a program whose terminal belongs to another one.
pub(super) fn init_tracing_to_file(default_filter: &str, file: std::fs::File) {
    init_tracing_to(default_filter, std::sync::Mutex::new(file), false);
}

fn init_tracing_to(
    default_filter: &str,
    writer: impl for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
    colors: bool,
) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("PVP_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default_filter));
    // The WebSocket parser traces whole messages, including tokens and secrets. The verifier of
    // certificates reports what whoever connects is told anyway, such as the owner of a webhook.
    let without_payloads = filter_fn(|metadata| {
        let (target, level) = (metadata.target(), *metadata.level());
        !target.starts_with("rustls_platform_verifier")
            && (!target.starts_with("tungstenite") || LevelFilter::DEBUG >= level)
    });
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_ansi(colors)
        // Reporting a log that cannot be written, on the same full disk, would panic.
        .log_internal_errors(false)
        .with_filter(filter.and(without_payloads));
    tracing_subscriber::registry().with(layer).init();
}

/// Runs a server until a signal stops it. `on_listening` is called once it has its address.
pub(super) async fn serve(
    config: ServerConfig,
    on_listening: impl AsyncFnOnce(&Server) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Catch SIGXFSZ, so that a file size limit makes a write fail and does not end the process.
    let _over_limit = signal(SignalKind::from_raw(SIGXFSZ)).context("watching for signals")?;
    let shutdown = super::shutdown_signal()?;
    let data = data_directory(&config)?;
    let key_files = [config.key_file.clone(), config.tls_key.clone()];
    let server = Server::start(config).await?;
    record_data(&data);
    for key_file in key_files.iter().flatten() {
        record_data(key_file);
    }
    if let Err(error) = local_server::record(&data, &server) {
        super::print_error(&error);
    }
    warn_of_reach(&server);
    let mut hangup = signal(SignalKind::hangup()).context("watching for signals")?;
    let reloader = server.file_reloader();
    // At a terminal, SIGHUP means that it was closed, so the server stops; otherwise it reloads its
    // files.
    let at_a_terminal = std::io::stdout().is_terminal();
    let stop = async move {
        let hung_up = async {
            while hangup.recv().await.is_some() && !at_a_terminal {
                reloader.reload().await;
            }
        };
        tokio::select! {
            () = shutdown => {}
            () = hung_up => {}
        }
    };
    on_listening(&server).await?;
    server.run(stop).await
}

/// Warns if others can reach the server without TLS, and says by which other addresses they can.
fn warn_of_reach(server: &Server) {
    let (address, url) = (server.address(), server.url());
    if address.ip().is_loopback() || url.starts_with("https://") {
        return;
    }
    let port = address.port();
    super::print_warning(&format!(
        "warning: other machines can reach this server without TLS. Tokens, commands and their output travel \
         unencrypted: whoever is on the network can read them and act as you. Add --tls-self-signed, or use a \
         network that you trust, a VPN, `ssh -L {port}:127.0.0.1:{port} HOST` with --listen 127.0.0.1, or a \
         reverse proxy with TLS (--public-url https://…)"
    ));
    let others: Vec<_> = server
        .reachable_addresses()
        .iter()
        .map(|ip| format!("http://{}", SocketAddr::new(*ip, port)))
        .filter(|other| *other != url)
        .collect();
    match (server.reachable_addresses(), others.as_slice()) {
        ([], _) if address.ip().is_unspecified() => super::print_warning(
            "this machine has no address that others could open; give one with --public-url",
        ),
        (_, []) => {}
        (_, others) => super::print_warning(&format!(
            "links begin with {url}; this machine also has {}; choose with --public-url",
            others.join(", ")
        )),
    }
}

/// The signal for a write beyond the file size limit; the same number on every Linux.
const SIGXFSZ: i32 = 25;

async fn print_startup(server: &Server, data: &Path, open: bool, json: bool) -> anyhow::Result<()> {
    let admin_link = server.first_admin_link().await?;
    if open {
        let mut stderr = std::io::stderr();
        writeln!(
            stderr,
            "\n*** OPEN: there is no login. Anyone who can connect to {} may take any role,\n\
             *** and reads run without a sandbox. Use this on your own machine only.\n",
            server.address()
        )
        .context("writing to standard error")?;
    }
    let bridge = server.bridge_address();
    if json {
        let mut said = json!({
            "listen": server.address().to_string(),
            "admin_link": admin_link,
            "data": data.display().to_string(),
        });
        if let Some(fingerprint) = server.certificate_fingerprint() {
            said["certificate_fingerprint"] = fingerprint.into();
        }
        if let Some(bridge) = bridge {
            said["bridge"] = bridge.to_string().into();
        }
        return super::print_json(said);
    }
    let scheme = server
        .url()
        .split("://")
        .next()
        .unwrap_or("http")
        .to_owned();
    super::print_line(format!("PVP listens on {scheme}://{}", server.address()))?;
    if let Some(fingerprint) = server.certificate_fingerprint() {
        super::print_line(share::certificate_text(&fingerprint))?;
    }
    super::print_line(format!("data in {}", data.display()))?;
    if let Some(bridge) = bridge {
        super::print_line(format!("git hooks ask http://{bridge}"))?;
    }
    match admin_link {
        Some(link) => super::print_line(format!("admin link (shown once): {link}")),
        None => super::print_line(
            "invite people, in this directory, with: pvp invite --name Ann --role approver",
        ),
    }
}

fn check_data_directory(data: &Path) -> anyhow::Result<()> {
    if !data.join("pvp.sqlite3").exists() {
        bail!(
            "{} is not a data directory; start `pvp up` or `pvp server` with it first",
            data.display()
        );
    }
    Ok(())
}

fn declare_restored(data: &Path, key_file: Option<&Path>) -> anyhow::Result<ExitCode> {
    check_data_directory(data)?;
    store::declare_restored(&KeyFiles::new(data, key_file), pvp_clock::now())?;
    super::print_line(
        "recorded; clients that have seen later entries are told that the logs were restored from a backup",
    )?;
    Ok(ExitCode::SUCCESS)
}

fn rotate_key(data: &Path, key_file: Option<&Path>, json: bool) -> anyhow::Result<ExitCode> {
    check_data_directory(data)?;
    let rotation = store::rotate_key(&KeyFiles::new(data, key_file), pvp_clock::now())?;
    if json {
        super::print_json(json!({
            "old": hex::encode(&rotation.old),
            "new": hex::encode(&rotation.new),
            "at": rotation.at,
        }))?;
    } else {
        super::print_line(rotation_text(&rotation, data))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn rotation_text(rotation: &KeyRotation, data: &Path) -> String {
    let resumed = match rotation.kind {
        RotationKind::Complete => "",
        RotationKind::Resumed => {
            "finished a rotation that had been interrupted; the key was not rotated again\n"
        }
    };
    let [first, old, new] =
        [rotation.first, rotation.old, rotation.new].map(|key| hex::encode(&key));
    format!(
        "{resumed}old public key: {old}, retired at {}\n\
         new public key: {new}\n\
         \n\
         The last checkpoint of every log is signed with the new key. The old secret key was\n\
         overwritten and removed; delete it from your backups too.\n\
         Keep the new public key elsewhere, together with the first one, and verify with both:\n\
         \n\
         pvp audit verify --data {} --key {first} --key {new}",
        rotation.at,
        data.display()
    )
}
