//! `pvp audit`: verifies, shows and exports the log.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args, Subcommand};
use pvp_protocol::{SessionId, hex};
use pvp_server::store::PublicKey;
use pvp_server::store::audit::{self, AuditError, AuditReport, KeySource, LogItem};
use pvp_session::Entry;
use serde_json::json;

use super::log_line::LogLines;

#[derive(Args)]
pub(crate) struct AuditArguments {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Prove that a store or an export is as the server wrote it; names the first entry that is not
    Verify(VerifyArguments),
    /// A readable account of one session
    Show {
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        #[arg(long, value_parser = parse_session_id)]
        session: SessionId,
    },
    /// The whole record as JSON lines, for keeping elsewhere
    Export {
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// One session only
        #[arg(long, value_parser = parse_session_id)]
        session: Option<SessionId>,
        /// A file instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Args)]
#[command(group(ArgGroup::new("what").required(true).args(["data", "export"])))]
struct VerifyArguments {
    /// A data directory, also of a running server
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A file made by `pvp audit export`
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// The server's public key, kept elsewhere: 64 hexadecimal digits
    #[arg(long, value_parser = parse_public_key, value_name = "HEX")]
    key: Option<PublicKey>,
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: AuditArguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        AuditCommand::Verify(arguments) => verify(&arguments),
        AuditCommand::Show { data, session } => print_log(&data, &session),
        AuditCommand::Export { data, session, out } => {
            let mut out: Box<dyn Write> = match out {
                Some(path) => Box::new(
                    File::create_new(&path)
                        .with_context(|| format!("making the file {}", path.display()))?,
                ),
                None => Box::new(std::io::stdout()),
            };
            let mut buffered = BufWriter::new(&mut out);
            audit::export(&data, session.as_ref(), &mut buffered)?;
            buffered.flush().context("writing the export")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn verify(arguments: &VerifyArguments) -> anyhow::Result<ExitCode> {
    let pinned = arguments.key.as_ref();
    let report = match (&arguments.data, &arguments.export) {
        (Some(data), _) => audit::verify_store(data, pinned)?,
        (None, Some(path)) => {
            let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
            audit::verify_export(&mut BufReader::new(file), pinned)?
        }
        (None, None) => bail!("say --data DIR or --export FILE"),
    };
    if arguments.json {
        super::print_line(report_json(&report))?;
    } else {
        print_report(&report)?;
    }
    Ok(if report.first_finding().is_some() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn report_json(report: &AuditReport) -> serde_json::Value {
    let sessions = report.sessions.iter().map(|one| {
        json!({
            "session": one.session,
            "entries": one.entries,
            "head": hex::encode(&one.head),
            "checkpoints": one.checkpoints,
            "sealed": one.checkpoint_seq,
            "finding": one.finding.as_ref().map(|finding| json!({
                "seq": finding.seq,
                "what": finding.fault.to_string(),
            })),
        })
    });
    json!({
        "intact": report.first_finding().is_none(),
        "key": hex::encode(&report.key),
        "key_source": key_source_text(report.key_source),
        "sessions": sessions.collect::<Vec<_>>(),
    })
}

fn print_report(report: &AuditReport) -> anyhow::Result<()> {
    super::print_line(format!(
        "key {} ({})",
        hex::encode(&report.key),
        key_source_text(report.key_source)
    ))?;
    for one in &report.sessions {
        let state = match &one.finding {
            None => format!("intact, signed for up to {}", one.checkpoint_seq),
            Some(finding) => format!("NOT INTACT: entry {}: {}", finding.seq, finding.fault),
        };
        super::print_line(format!("{}: {} entries, {state}", one.session, one.entries))?;
    }
    match report.first_finding() {
        None => super::print_line(format!("{} sessions, all intact", report.sessions.len())),
        Some(finding) => super::print_line(format!("first finding: {finding}")),
    }
}

fn key_source_text(source: KeySource) -> &'static str {
    match source {
        KeySource::Pinned => "as given",
        KeySource::DataDirectory => "from the data directory",
        KeySource::ExportHeader => "from the export itself",
    }
}

fn print_log(data: &std::path::Path, session: &SessionId) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(std::io::stdout());
    let mut lines = LogLines::default();
    let mut print_item = |item: LogItem| -> std::io::Result<()> {
        match item {
            LogItem::Record(record) => match Entry::decode(&record.meta, &record.body) {
                Ok(entry) => writeln!(out, "{}", lines.line(&entry.envelope)),
                Err(error) => writeln!(out, "{:>6}  unreadable: {error}", record.seq),
            },
            LogItem::Checkpoint(checkpoint) => {
                writeln!(
                    out,
                    "{:>6}  {}  -- signed by the server",
                    checkpoint.seq, checkpoint.at
                )
            }
        }
    };
    audit::for_each_log_item(data, Some(session), &mut |_, item| {
        print_item(item).map_err(AuditError::Io)
    })?;
    out.flush().context("writing the account")?;
    Ok(ExitCode::SUCCESS)
}

fn parse_session_id(text: &str) -> Result<SessionId, String> {
    SessionId::parse(text).map_err(|error| error.to_string())
}

fn parse_public_key(text: &str) -> Result<PublicKey, String> {
    hex::decode(text).ok_or_else(|| "a key is 64 hexadecimal digits".to_owned())
}
