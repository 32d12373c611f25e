//! `pvp server`: runs the server alone.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_server::Server;
use pvp_server::config::{ConfigFlag, ServerConfig};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::filter::{FilterExt, LevelFilter, filter_fn};
use tracing_subscriber::prelude::*;

#[derive(Args)]
pub(crate) struct ServerArguments {
    /// Where to listen [default: 127.0.0.1:3000]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Where the log, the tokens and the key are kept [default: pvp-data]
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// No login: anyone who can connect may claim any role
    #[arg(long)]
    open: bool,
    /// With --open: listen on an address that others can reach all the same
    #[arg(long)]
    i_know_this_is_open: bool,
    /// The address that people reach the server by
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Rules of your own on top of the built-in ones; read again on SIGHUP
    #[arg(long, value_name = "FILE")]
    policy: Option<String>,
    /// Settings, as TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON line when it listens: listen, admin_link, data
    #[arg(long)]
    pub(super) json: bool,
}

pub(crate) fn run(arguments: &ServerArguments) -> anyhow::Result<ExitCode> {
    let config = prepare(arguments)?;
    let (data, open, json) = (config.data.clone(), config.open, arguments.json);
    super::runtime()?.block_on(serve(config, move |server: &Server| {
        print_startup(server, &data, open, json)
    }))?;
    Ok(ExitCode::SUCCESS)
}

/// Loads the settings, refuses dangerous ones, and starts logging.
pub(super) fn prepare(arguments: &ServerArguments) -> anyhow::Result<ServerConfig> {
    let config = load_config(arguments)?;
    config.check_exposure(arguments.i_know_this_is_open)?;
    init_tracing("warn,pvp_server=info");
    Ok(config)
}

fn load_config(arguments: &ServerArguments) -> anyhow::Result<ServerConfig> {
    let file = match &arguments.config {
        None => None,
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("reading the settings in {}", path.display()))?;
            Some((path.display().to_string(), text))
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
    flag("public_url", arguments.public_url.as_ref());
    flag("policy", arguments.policy.as_ref());
    flag("open", arguments.open.then(|| "true".to_owned()).as_ref());
    let file = file
        .as_ref()
        .map(|(name, text)| (name.as_str(), text.as_str()));
    let mut config = ServerConfig::load(file, std::env::vars(), &flags)?;
    if config.working_directory.is_none() {
        let here = std::env::current_dir().context("finding the working directory")?;
        config.working_directory = here.to_str().map(str::to_owned);
    }
    Ok(config)
}

/// Starts logging to standard error, filtered by `PVP_LOG` or else by the default filter.
pub(super) fn init_tracing(default_filter: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("PVP_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default_filter));
    // The WebSocket parser traces whole messages, including tokens and secrets.
    let without_payloads = filter_fn(|metadata| {
        !metadata.target().starts_with("tungstenite") || LevelFilter::DEBUG >= *metadata.level()
    });
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // Reporting a log that cannot be written, on the same full disk, would panic.
        .log_internal_errors(false)
        .with_filter(filter.and(without_payloads));
    tracing_subscriber::registry().with(layer).init();
}

/// Runs a server until a signal stops it. `on_listening` is called once it has its address.
pub(super) async fn serve(
    config: ServerConfig,
    on_listening: impl FnOnce(&Server) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // Catch SIGXFSZ, so that a file size limit makes a write fail and does not end the process.
    let _over_limit = signal(SignalKind::from_raw(SIGXFSZ)).context("watching for signals")?;
    let shutdown = super::shutdown_signal()?;
    let server = Server::start(config).await?;
    let mut hangup = signal(SignalKind::hangup()).context("watching for signals")?;
    let reloader = server.policy_reloader();
    // At a terminal, SIGHUP means that it was closed, so the server stops; otherwise it reloads the
    // policy.
    let at_a_terminal = std::io::stdout().is_terminal();
    let stop = async move {
        let hung_up = async {
            while hangup.recv().await.is_some() && !at_a_terminal {
                reloader.reload();
            }
        };
        tokio::select! {
            () = shutdown => {}
            () = hung_up => {}
        }
    };
    on_listening(&server)?;
    server.run(stop).await
}

/// The signal for a write beyond the file size limit; the same number on every Linux.
const SIGXFSZ: i32 = 25;

fn print_startup(
    server: &Server,
    data: &std::path::Path,
    open: bool,
    json: bool,
) -> anyhow::Result<()> {
    let admin_link = server.first_admin_link()?;
    if open {
        let mut stderr = std::io::stderr();
        writeln!(
            stderr,
            "\n*** OPEN: there is no login. Anyone who can connect to {} may claim any role,\n\
             *** and reads run without a sandbox. Use this on your own machine only.\n",
            server.address()
        )
        .context("writing to standard error")?;
    }
    if json {
        return super::print_line(json!({
            "listen": server.address().to_string(),
            "admin_link": admin_link,
            "data": data.display().to_string(),
        }));
    }
    super::print_line(format!("PVP listens on http://{}", server.address()))?;
    super::print_line(format!("data in {}", data.display()))?;
    match admin_link {
        Some(link) => super::print_line(format!("admin link (shown once): {link}")),
        None => {
            super::print_line("invite people with: pvp invite --data DIR --name NAME --role ROLE")
        }
    }
}
