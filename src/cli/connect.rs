//! `pvp connect`: one envelope a line between a program and the server.

use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pvp_client::{
    ConnectError, Connection, Ending, Event, Events, Link, Options, Receipt, SendError, fresh_id,
};
use pvp_protocol::{JsonObject, MessageId, ParticipantId, Role, VERSION};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::mpsc;

use super::links::LinkArguments;

#[derive(Args)]
pub(crate) struct ConnectArguments {
    /// The link; else what `pvp login` remembered
    #[arg(value_name = "LINK")]
    target: Option<String>,
    #[command(flatten)]
    link: LinkArguments,
    /// Join with fewer roles than the token allows; may be given several times
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<Role>,
    /// Who to be, on a server without login
    #[arg(long = "as", value_name = "ID", value_parser = super::participant_id)]
    participant: Option<ParticipantId>,
    /// Resume after this seq
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// How many past messages to tell first [default: the server's, 500]
    #[arg(long, value_name = "N", conflicts_with = "after")]
    history: Option<u64>,
    /// Stay when standard input ends, until stopped
    #[arg(long)]
    stay: bool,
}

pub(crate) fn run(arguments: ConnectArguments) -> anyhow::Result<ExitCode> {
    let link = match &arguments.target {
        Some(text) => Link::parse(text)?,
        None => arguments.link.find()?.0,
    };
    let options = Options {
        session: arguments.link.said_session(&link),
        roles: (!arguments.roles.is_empty()).then(|| arguments.roles.clone()),
        participant: arguments.participant,
        after: arguments.after,
        history: arguments.history,
        ..Options::default()
    };
    let stay = arguments.stay;
    super::runtime()?.block_on(async move {
        let opened = Connection::open(link, options).await;
        let (connection, events) = opened.map_err(with_flag)?;
        let lines = BufReader::new(tokio::io::stdin()).lines();
        let (receipts, sent) = mpsc::unbounded_channel();
        let answers = tokio::spawn(answers(sent));
        let bridge = Bridge {
            connection: Some(connection),
            receipts,
            bad: false,
            stay,
        };
        let good = bridge.run(lines, events).await? & answers.await?;
        Ok(match good {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    })
}

/// The same, and which flag helps.
fn with_flag(error: ConnectError) -> anyhow::Error {
    let flag = match &error {
        ConnectError::NoSession => " with --session",
        ConnectError::Nobody => " with --as",
        ConnectError::Api(_) | ConnectError::Refused(_) | ConnectError::Lost(_) => "",
    };
    anyhow::anyhow!("{error}{flag}")
}

/// Waits for the answer to each message, in the order they were sent; false if one was refused.
async fn answers(mut sent: mpsc::UnboundedReceiver<Receipt>) -> bool {
    let mut good = true;
    while let Some(receipt) = sent.recv().await {
        let id = receipt.id.clone();
        let problem = match receipt.answer().await {
            Ok(_) => continue,
            Err(SendError::Refused(report)) => format!("`{id}` was refused: {}", report.message),
            Err(error) => format!("`{id}`: {error}"),
        };
        good = false;
        super::complain(&anyhow::anyhow!(problem));
    }
    good
}

struct Bridge {
    /// `None` once standard input has ended.
    connection: Option<Connection>,
    /// Of what was sent.
    receipts: mpsc::UnboundedSender<Receipt>,
    /// Something was not understood.
    bad: bool,
    stay: bool,
}

impl Bridge {
    /// False if a line was not understood or the server let us go.
    async fn run(
        mut self,
        mut lines: Lines<BufReader<Stdin>>,
        mut events: Events,
    ) -> anyhow::Result<bool> {
        let mut reading = true;
        loop {
            tokio::select! {
                line = lines.next_line(), if reading => {
                    match line.context("reading standard input")? {
                        Some(line) => self.send(&line).await?,
                        None => {
                            reading = false;
                            if !self.stay {
                                // It closes by itself when everything is answered.
                                self.connection = None;
                            }
                        }
                    }
                }
                event = events.next() => match event {
                    None => break,
                    Some(Event::Ended(ending)) => {
                        self.ended(ending)?;
                        break;
                    }
                    Some(event) => self.tell(event)?,
                },
            }
        }
        Ok(!self.bad)
    }

    /// Sends a line, of which the envelope may be left out.
    async fn send(&mut self, line: &str) -> anyhow::Result<()> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let Some(connection) = &self.connection else {
            return Ok(());
        };
        let mut envelope: JsonObject = match serde_json::from_str(line) {
            Ok(envelope) => envelope,
            Err(error) => return self.complain(format!("a line is one JSON object: {error}")),
        };
        let mut default = |key: &str, value: serde_json::Value| {
            envelope.entry(key).or_insert(value);
        };
        default("v", VERSION.into());
        default("id", fresh_id().as_str().into());
        default("session", connection.session().as_str().into());
        default("sender", connection.participant().as_str().into());
        default("payload", JsonObject::new().into());
        let text = |key: &str| {
            envelope
                .get(key)
                .and_then(|value| value.as_str())
                .unwrap_or_default()
        };
        let Ok(id) = MessageId::parse(text("id")) else {
            return self.complain(format!("`{}` cannot be an id", text("id")));
        };
        let kind = text("type").to_owned();
        let text = serde_json::to_string(&envelope).context("writing an envelope")?;
        let receipt = connection.send_text(id, &kind, text).await?;
        // They are received for as long as anything is sent.
        let _ = self.receipts.send(receipt);
        Ok(())
    }

    fn tell(&self, event: Event) -> anyhow::Result<()> {
        match event {
            Event::Told { text, .. } => super::say(text),
            Event::Down { why } => {
                super::complain(&anyhow::anyhow!("lost the connection, trying again: {why}"));
                Ok(())
            }
            Event::Up { .. } | Event::Ended(_) => Ok(()),
        }
    }

    fn ended(&mut self, ending: Ending) -> anyhow::Result<()> {
        match ending {
            Ending::Closed | Ending::Left => Ok(()),
            Ending::Refused(report) => self.complain(report.message),
        }
    }

    fn complain(&mut self, problem: String) -> anyhow::Result<()> {
        self.bad = true;
        super::complain(&anyhow::anyhow!(problem));
        Ok(())
    }
}
