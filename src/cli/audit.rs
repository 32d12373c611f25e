//! `pvp audit`: verifies, shows, anchors and exports the log.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args, Subcommand};
use pvp_protocol::{SessionId, Timestamp, hex};
use pvp_server::store::audit::{
    self, AuditError, AuditReport, KeyRange, KeySource, KnownHeads, LogItem,
};
use pvp_server::store::{LogHead, Tombstone};
use pvp_session::Entry;
use serde_json::json;

use super::local_server::LocalServer;
use super::log_line::LogLines;

#[derive(Args)]
pub(crate) struct AuditArguments {
    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Subcommand)]
enum AuditCommand {
    /// Verify that a log or an export was not changed; names the first entry that was
    Verify(VerifyArguments),
    /// Print the log of one session
    Show {
        /// The data directory [default: that of the server started in this directory]
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// The session
        #[arg(long, value_name = "ID", value_parser = parse_session_id)]
        session: SessionId,
    },
    /// Print a signed anchor for each session: one line of JSON that says where its log ends. Keep it
    /// elsewhere; with it, `pvp audit verify --anchor` detects a log that was cut or rewritten later
    Anchor {
        /// The data directory [default: that of the server started in this directory]
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Only this session
        #[arg(long, value_name = "ID", value_parser = parse_session_id)]
        session: Option<SessionId>,
    },
    /// Export the whole log as JSON Lines
    Export {
        /// The data directory [default: that of the server started in this directory]
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Only this session
        #[arg(long, value_name = "ID", value_parser = parse_session_id)]
        session: Option<SessionId>,
        /// Write to this file, which must not exist, instead of standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
}

#[derive(Args)]
#[command(group(ArgGroup::new("what").args(["data", "export"])))]
struct VerifyArguments {
    /// The server's data directory; the server may be running [default: that of the server started
    /// in this directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// A file made by `pvp audit export`
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// A public key of the server that you kept elsewhere, as 64 hexadecimal digits. If the key was
    /// rotated, give the oldest and then the newest; the keys between them are trusted too. With a
    /// range of RFC 3339 times, either of which may be left out, a key is trusted only within it
    #[arg(long = "key", value_parser = parse_key_range, value_name = "HEX[@FROM..UNTIL]")]
    keys: Vec<KeyRange>,
    /// A file of anchors, from `pvp audit anchor`, that the logs must contain; may be given several
    /// times
    #[arg(long = "anchor", value_name = "FILE")]
    anchors: Vec<PathBuf>,
    /// An entry that the log must contain, as SESSION:SEQ:HASH; may be given several times
    #[arg(long, value_parser = parse_known_head, value_name = "HEAD")]
    since: Vec<(SessionId, LogHead)>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: AuditArguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        AuditCommand::Verify(arguments) => verify(&arguments),
        AuditCommand::Anchor { data, session } => {
            audit::for_each_anchor(&data_directory(data)?, session.as_ref(), &mut |anchor| {
                super::print_line(anchor.to_json())
                    .map_err(|error| AuditError::Io(std::io::Error::other(error)))
            })?;
            Ok(ExitCode::SUCCESS)
        }
        AuditCommand::Show { data, session } => print_log(&data_directory(data)?, &session),
        AuditCommand::Export { data, session, out } => {
            let mut out: Box<dyn Write> = match out {
                Some(path) => Box::new(
                    File::create_new(&path)
                        .with_context(|| format!("creating {}", path.display()))?,
                ),
                None => Box::new(std::io::stdout()),
            };
            let mut buffered = BufWriter::new(&mut out);
            audit::export(&data_directory(data)?, session.as_ref(), &mut buffered)?;
            buffered.flush().context("writing the export")?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn verify(arguments: &VerifyArguments) -> anyhow::Result<ExitCode> {
    let (pinned, known) = (&arguments.keys, known_heads(arguments)?);
    let report = match (&arguments.data, &arguments.export) {
        (Some(data), _) => audit::verify_store_since(data, pinned, &known)?,
        (None, Some(path)) => {
            let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
            audit::verify_export_since(&mut BufReader::new(file), pinned, &known)?
        }
        (None, None) => audit::verify_store_since(&data_directory(None)?, pinned, &known)?,
    };
    if arguments.json {
        super::print_json(report_json(&report))?;
    } else {
        print_report(&report)?;
    }
    Ok(if report.is_intact() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What the logs must contain, by the anchors and heads that were given.
fn known_heads(arguments: &VerifyArguments) -> anyhow::Result<KnownHeads> {
    let mut known = KnownHeads::default();
    for (session, head) in &arguments.since {
        known.insert(session.clone(), *head);
    }
    for path in &arguments.anchors {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let count = known
            .read_anchors(&mut BufReader::new(file))
            .with_context(|| format!("reading the anchors in {}", path.display()))?;
        if count == 0 {
            bail!("{} contains no anchor", path.display());
        }
    }
    Ok(known)
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
    let tombstones = report.tombstones.iter().map(|one| {
        json!({
            "tombstone": one.tombstone.to_text(),
            "finding": one.fault.as_ref().map(ToString::to_string),
        })
    });
    let keys = report.keys.keys().iter().map(|one| {
        json!({
            "key": hex::encode(&one.range.key),
            "from": one.range.from,
            "until": one.range.until,
            "source": key_source_text(one.source),
        })
    });
    json!({
        "intact": report.is_intact(),
        "key": report.keys.newest().map(|newest| hex::encode(&newest.range.key)),
        "key_source": key_source_text(report.key_source),
        "keys": keys.collect::<Vec<_>>(),
        "key_finding": report.key_finding.as_ref().map(ToString::to_string),
        "sessions": sessions.collect::<Vec<_>>(),
        "tombstones": tombstones.collect::<Vec<_>>(),
    })
}

fn print_report(report: &AuditReport) -> anyhow::Result<()> {
    for one in report.keys.keys() {
        let source = key_source_text(one.source);
        super::print_line(format!("key {} ({source})", one.range))?;
    }
    if let Some(finding) = &report.key_finding {
        super::print_line(format!("keys: NOT INTACT: {finding}"))?;
    }
    for one in &report.sessions {
        let state = match &one.finding {
            None => format!("intact, signed up to entry {}", one.checkpoint_seq),
            Some(finding) => format!("NOT INTACT: entry {}: {}", finding.seq, finding.fault),
        };
        super::print_line(format!("{}: {} entries, {state}", one.session, one.entries))?;
    }
    for one in &report.tombstones {
        let Tombstone {
            session,
            entries,
            at,
            by,
            ..
        } = &one.tombstone;
        let state = match &one.fault {
            None => "signed".to_owned(),
            Some(fault) => format!("NOT INTACT: {fault}"),
        };
        let by = super::one_line(by);
        super::print_line(format!(
            "{session}: deleted at {at} by {by} with {entries} entries, {state}"
        ))?;
    }
    let bad_tombstone = report.tombstones.iter().find_map(|one| {
        let fault = one.fault.as_ref()?;
        Some(format!(
            "the tombstone of `{}`: {fault}",
            one.tombstone.session
        ))
    });
    match (report.first_finding(), &report.key_finding) {
        (None, None) => match (bad_tombstone, report.sessions.len()) {
            (Some(finding), _) => super::print_line(format!("first finding: {finding}")),
            (None, sessions) => super::print_line(format!("{sessions} sessions, all intact")),
        },
        (Some(finding), _) => super::print_line(format!("first finding: {finding}")),
        (None, Some(finding)) => super::print_line(format!("first finding: {finding}")),
    }
}

fn key_source_text(source: KeySource) -> &'static str {
    match source {
        KeySource::Pinned => "as given",
        KeySource::Certificate => "certified by the key before it",
        KeySource::DataDirectory => "from the data directory",
        KeySource::ExportHeader => "from the export itself",
    }
}

/// The data directory that was given, or that of the server which was started in this directory.
fn data_directory(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if let Some(data) = given {
        return Ok(data);
    }
    let server = LocalServer::started_here()?;
    let server = server.context("no server was started in this directory; give --data DIR")?;
    Ok(server.data)
}

fn print_log(data: &std::path::Path, session: &SessionId) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(std::io::stdout());
    let mut lines = LogLines::default();
    let mut print_item = |item: LogItem| -> std::io::Result<()> {
        match item {
            LogItem::Record(record) => match Entry::decode(&record.meta, &record.body) {
                Ok(entry) => writeln!(out, "{}", lines.line(&entry.envelope)),
                Err(error) => {
                    let problem = super::one_line(&error.to_string());
                    writeln!(out, "{:>6}  unreadable: {problem}", record.seq)
                }
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
    out.flush().context("writing the log")?;
    Ok(ExitCode::SUCCESS)
}

fn parse_session_id(text: &str) -> Result<SessionId, String> {
    SessionId::parse(text).map_err(|error| error.to_string())
}

fn parse_known_head(text: &str) -> Result<(SessionId, LogHead), String> {
    let parse = || {
        let mut parts = text.rsplitn(3, ':');
        let hash = hex::decode(parts.next()?)?;
        let seq = parts.next()?.parse().ok().filter(|seq| *seq > 0)?;
        let session = SessionId::parse(parts.next()?).ok()?;
        Some((session, LogHead { seq, hash }))
    };
    parse()
        .ok_or_else(|| "a head is SESSION:SEQ:HASH, the hash with 64 hexadecimal digits".to_owned())
}

fn parse_key_range(text: &str) -> Result<KeyRange, String> {
    let (key, range) = match text.split_once('@') {
        Some((key, range)) => (key, Some(range)),
        None => (text, None),
    };
    let (from, until) = match range {
        None => (None, None),
        Some(range) => {
            let (from, until) = range.split_once("..").ok_or(
                "a range is FROM..UNTIL, such as 2026-01-31T12:00:00Z..2026-02-28T12:00:00Z",
            )?;
            (parse_bound(from)?, parse_bound(until)?)
        }
    };
    if from.zip(until).is_some_and(|(from, until)| until < from) {
        return Err("the range ends before it begins".to_owned());
    }
    let key = hex::decode(key).ok_or("a key is 64 hexadecimal digits")?;
    Ok(KeyRange { key, from, until })
}

fn parse_bound(text: &str) -> Result<Option<Timestamp>, String> {
    match text {
        "" => Ok(None),
        text => Timestamp::parse(text)
            .map(Some)
            .map_err(|error| error.to_string()),
    }
}
