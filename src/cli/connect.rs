//! `pvp connect`: bridges standard input and output to a session, one envelope per line.

mod program_input;

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::Args;
use pvp_client::{
    ConnectError, ConnectOptions, Connection, ConnectionEvent, ConnectionEvents, EndReason, Link,
    OwnJoin, Receipt, SendError, fresh_id,
};
use pvp_protocol::{
    JsonObject, MessageId, ParticipantId, ParticipantKind, Role, ServerMessage, SessionId,
};
use serde_json::Value;
use tokio::sync::mpsc;

use super::invite::parse_kind;
use super::link_argument;
use super::links::LinkArguments;
use program_input::{Opening, ProgramInput, complete_envelope, complete_for, text_of};

/// Where a server listens unless told otherwise.
const DEFAULT_SERVER: &str = "http://127.0.0.1:3000";

#[derive(Args)]
pub(crate) struct ConnectArguments {
    /// The link, or `-` to read it from the first line of standard input [default: $PVP_LINK, or the
    /// link saved for this directory]. Other users of this machine can see arguments. With --open-as,
    /// the address of the server [default: 127.0.0.1:3000]
    #[arg(value_name = "LINK")]
    target: Option<String>,
    #[command(flatten)]
    link: LinkArguments,
    /// Join with fewer roles than the token allows, or with these on a server without login; may be
    /// given several times
    #[arg(long = "role", value_name = "ROLE")]
    roles: Vec<Role>,
    /// Join a server without login as an agent or a human, unless the program begins with a
    /// `session.join` of its own
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    open_as: Option<ParticipantKind>,
    /// The participant id to join as, on a server without login
    #[arg(long = "as", visible_alias = "id", value_name = "ID", value_parser = super::parse_participant_id)]
    participant: Option<ParticipantId>,
    /// The name to join with, on a server without login [default: the participant id]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Receive the messages after this sequence number first
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Receive the last N messages first [default: 500]
    #[arg(long, value_name = "N", conflicts_with = "after")]
    history: Option<u64>,
    /// Stay connected when standard input ends
    #[arg(long)]
    stay: bool,
}

pub(crate) fn run(arguments: ConnectArguments) -> anyhow::Result<ExitCode> {
    let link = arguments.find_link()?;
    let options = ConnectOptions {
        session: arguments.link.named_session(&link),
        roles: (!arguments.roles.is_empty()).then(|| arguments.roles.clone()),
        participant: arguments.participant,
        name: arguments.name,
        kind: arguments.open_as,
        after: arguments.after,
        history: arguments.history,
        record_check: super::reported_record_check(),
        ..ConnectOptions::default()
    };
    let bridge = Bridge {
        link,
        options,
        stay: arguments.stay,
    };
    let runtime = super::runtime()?;
    let succeeded = runtime.block_on(bridge.run());
    // A read from standard input may still be blocked; do not wait for it.
    runtime.shutdown_background();
    Ok(match succeeded? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

impl ConnectArguments {
    fn find_link(&self) -> anyhow::Result<Link> {
        let link = match (self.open_as, self.target.as_deref()) {
            (Some(_), None) => match self.link.given_link()? {
                Some(link) => link,
                None => Link::parse(DEFAULT_SERVER)?,
            },
            (Some(_), Some(address)) if address != "-" && !address.contains("://") => {
                Link::parse(&format!("http://{address}"))?
            }
            (Some(_), Some(link)) => link_argument::from_argument(link)?,
            (None, target) => self.link.resolve_link_or(target)?,
        };
        if link.token().is_some() && (self.open_as.is_some() || self.name.is_some()) {
            bail!("the link has a token, which says who you are; leave out --open-as and --name");
        }
        Ok(link)
    }
}

/// A session on one side, a program on the other.
struct Bridge {
    /// The server, and the token if there is one.
    link: Link,
    /// How to join, unless the program does.
    options: ConnectOptions,
    /// Whether to go on when the input ends.
    stay: bool,
}

/// An open connection, and what came before it.
struct OpenedConnection {
    connection: Connection,
    events: ConnectionEvents,
    program_join: ProgramJoin,
    /// The id of the program's `session.create`, which was sent before the join.
    create: Option<MessageId>,
}

/// Whether the program may still join by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramJoin {
    /// The join was sent before the program had said anything.
    Possible,
    /// The program has joined, or has begun with something else.
    Decided,
}

/// How one connection ended.
struct ConnectionResult {
    /// Whether everything went well.
    succeeded: bool,
    /// The last entry that the program has received.
    last_seq: Option<u64>,
    /// The program's own join, for which the connection was closed, and the rest of its input.
    rejoin: Option<(JsonObject, ProgramInput)>,
}

impl Bridge {
    /// Sends and prints messages until the connection has ended; false if anything went wrong.
    async fn run(self) -> anyhow::Result<bool> {
        let mut input = ProgramInput::new();
        let mut opened = self.open(&mut input).await?;
        let mut succeeded = true;
        loop {
            let result = self.carry(opened, input).await?;
            succeeded &= result.succeeded;
            let Some((join, rest)) = result.rejoin else {
                return Ok(succeeded);
            };
            input = rest;
            let opening = Opening {
                create: None,
                join: Some(join),
            };
            opened = self.open_as_program(opening, result.last_seq).await?;
        }
    }

    /// Joins: at once if it is known who joins where, otherwise as the program says.
    async fn open(&self, input: &mut ProgramInput) -> anyhow::Result<OpenedConnection> {
        if self.options.kind.is_some() {
            let opening = input.read_opening().await?;
            return self.open_as_program(opening, None).await;
        }
        match Connection::open(self.link.clone(), self.options.clone()).await {
            Err(ConnectError::NoSession | ConnectError::NoParticipant)
                if !std::io::stdin().is_terminal() =>
            {
                let opening = input.read_opening().await?;
                self.open_as_program(opening, None).await
            }
            opened => finish_opening(opened, ProgramJoin::Possible, None),
        }
    }

    /// Joins as the program says, if it does, after what it has received already.
    async fn open_as_program(
        &self,
        opening: Opening,
        received: Option<u64>,
    ) -> anyhow::Result<OpenedConnection> {
        let (mut link, mut options) = (self.link.clone(), self.options.clone());
        let own_join = match opening.join {
            Some(join) => Some(self.own_join(join, received)?),
            None => None,
        };
        let (session, sender) = match &own_join {
            Some(join) => (Some(join.session()), Some(&join.announce().id)),
            None => (
                self.options.session.as_ref(),
                self.options.participant.as_ref(),
            ),
        };
        let create = opening.create.map(|create| {
            complete_envelope(
                create,
                session.map(SessionId::as_str),
                sender.map(ParticipantId::as_str),
            )
        });
        let create = create.transpose()?;
        options.create = create.as_ref().map(|create| create.text.clone());
        if let Some(token) = own_join.as_ref().and_then(OwnJoin::token)
            && link.token().is_none()
        {
            link = link.with_token(token)?;
        }
        if own_join.is_none() && options.kind.is_some() && options.participant.is_none() {
            let id = ParticipantId::parse(fresh_id().as_str()).context("a fresh id")?;
            options.participant = Some(id);
        }
        options.own_join = own_join;
        let opened = Connection::open(link, options).await;
        let create = create.map(|create| create.id);
        finish_opening(opened, ProgramJoin::Decided, create)
    }

    /// The program's own join. It is passed on as it is, but for the fields that it leaves out, and
    /// may not go beyond what the flags say.
    fn own_join(&self, mut join: JsonObject, received: Option<u64>) -> anyhow::Result<OwnJoin> {
        let mut sender = None;
        if let Some(Value::Object(payload)) = join.get_mut("payload") {
            let participant = payload.get("participant").and_then(Value::as_object);
            sender = participant.map(|participant| text_of(participant, "id").to_owned());
            let mut default = |key: &str, seq: Option<u64>| {
                if let Some(seq) = seq {
                    payload.entry(key).or_insert(seq.into());
                }
            };
            default("after", received.or(self.options.after));
            default("history", self.options.history);
        }
        let session = self.options.session.as_ref().map(SessionId::as_str);
        let envelope = complete_envelope(join, session, sender.as_deref())?;
        let own_join = OwnJoin::parse(envelope.text);
        let own_join = own_join.map_err(|problem| anyhow::anyhow!("`session.join`: {problem}"))?;
        self.check_own_join(&own_join)?;
        Ok(own_join)
    }

    /// Refuses a join beyond what the flags say: whoever started this chose them.
    fn check_own_join(&self, join: &OwnJoin) -> anyhow::Result<()> {
        let (options, announce) = (&self.options, join.announce());
        if let Some(session) = &options.session {
            let named = join.session();
            ensure!(
                session == named,
                "the program joins the session `{named}`, and this was started for `{session}`"
            );
        }
        if let Some(participant) = &options.participant {
            let named = &announce.id;
            ensure!(
                participant == named,
                "the program joins as `{named}`, and --as says `{participant}`"
            );
        }
        if let Some(kind) = options.kind {
            ensure!(
                announce.kind == kind,
                "the program joins as another kind of participant than --open-as says"
            );
        }
        if let Some(roles) = &options.roles {
            let beyond = announce.roles.iter().find(|role| !roles.contains(role));
            if let Some(beyond) = beyond {
                bail!(
                    "the program joins as {}, which --role does not allow",
                    beyond.as_str()
                );
            }
        }
        Ok(())
    }

    /// Sends and prints messages over one connection.
    async fn carry(
        &self,
        opened: OpenedConnection,
        input: ProgramInput,
    ) -> anyhow::Result<ConnectionResult> {
        let (receipts, receipts_receiver) = mpsc::unbounded_channel();
        let acks = tokio::spawn(await_acks(receipts_receiver));
        let sending = send_input(
            opened.connection,
            receipts,
            input,
            opened.program_join,
            self.stay,
        );
        // In a task of its own, because a connection whose events are not read accepts no messages.
        let sending = tokio::spawn(sending);
        let printed = print_events(opened.events, opened.create).await?;
        sending.abort();
        let (sending_ok, rejoin) = match sending.await {
            Ok(sent) => match sent? {
                SentInput::Done(sending_ok) => (sending_ok, None),
                SentInput::Rejoin(rejoin) => (true, Some(*rejoin)),
            },
            // The task was still waiting for a line.
            Err(_) => (true, None),
        };
        Ok(ConnectionResult {
            succeeded: printed.succeeded & sending_ok & acks.await?,
            last_seq: printed.last_seq,
            rejoin,
        })
    }
}

fn finish_opening(
    opened: Result<(Connection, ConnectionEvents), ConnectError>,
    program_join: ProgramJoin,
    create: Option<MessageId>,
) -> anyhow::Result<OpenedConnection> {
    let (connection, events) = opened.map_err(suggest_flag)?;
    Ok(OpenedConnection {
        connection,
        events,
        program_join,
        create,
    })
}

/// Adds the flag that helps to the error.
fn suggest_flag(error: ConnectError) -> anyhow::Error {
    let flag = match &error {
        ConnectError::NoSession => " with --session",
        ConnectError::NoParticipant => " with --as",
        ConnectError::Api(_)
        | ConnectError::Refused(_)
        | ConnectError::RecordChanged(_)
        | ConnectError::Failed(_) => "",
    };
    anyhow::anyhow!("{error}{flag}")
}

/// Waits for the answer to each message, in the order they were sent; false if one was refused.
async fn await_acks(mut receipts: mpsc::UnboundedReceiver<Receipt>) -> bool {
    let mut all_accepted = true;
    while let Some(receipt) = receipts.recv().await {
        let id = receipt.id.clone();
        let problem = match receipt.ack().await {
            Ok(_) => continue,
            Err(SendError::Refused(report)) => format!("`{id}` was refused: {}", report.message),
            Err(error) => format!("`{id}`: {error}"),
        };
        all_accepted = false;
        super::print_error(&anyhow::anyhow!(problem));
    }
    all_accepted
}

/// How the input ended.
enum SentInput {
    /// At its end, or with the connection; false if a line was not understood.
    Done(bool),
    /// With a join of the program, which needs a connection of its own.
    Rejoin(Box<(JsonObject, ProgramInput)>),
}

/// Sends the lines of standard input.
async fn send_input(
    connection: Connection,
    receipts: mpsc::UnboundedSender<Receipt>,
    mut input: ProgramInput,
    program_join: ProgramJoin,
    stay: bool,
) -> anyhow::Result<SentInput> {
    while let Some(object) = input.next_object().await? {
        let is_join = text_of(&object, "type") == "session.join";
        if is_join && program_join == ProgramJoin::Possible {
            return Ok(SentInput::Rejoin(Box::new((object, input))));
        }
        let envelope = match complete_for(&connection, object) {
            Ok(envelope) => envelope,
            Err(problem) => {
                input.complain(&problem);
                continue;
            }
        };
        let sending = connection.send_text(envelope.id, &envelope.kind, envelope.text);
        match sending.await {
            // The receiver lives as long as this sender, so this cannot fail.
            Ok(receipt) => drop(receipts.send(receipt)),
            // The connection has ended, and `print_events` prints why.
            Err(_) => return Ok(SentInput::Done(false)),
        }
    }
    if stay {
        std::future::pending::<()>().await;
    }
    // The connection closes by itself once the server has answered everything.
    Ok(SentInput::Done(input.all_valid))
}

/// What was printed until the connection ended.
struct PrintedEvents {
    /// False if the server no longer lets this client in, or refused the program's create.
    succeeded: bool,
    /// The last entry.
    last_seq: Option<u64>,
}

/// Prints the messages received.
async fn print_events(
    mut events: ConnectionEvents,
    create: Option<MessageId>,
) -> anyhow::Result<PrintedEvents> {
    let mut printed = PrintedEvents {
        succeeded: true,
        last_seq: None,
    };
    while let Some(event) = events.next().await {
        match event {
            ConnectionEvent::Message { text, envelope } => {
                super::print_json(text)?;
                let Some(envelope) = envelope else {
                    continue;
                };
                printed.last_seq = printed.last_seq.max(envelope.seq);
                if let ServerMessage::Error(report) = &envelope.message
                    && let (Some(related), Some(create)) = (&report.related_to, &create)
                    && related == create
                {
                    printed.succeeded = false;
                    let message = &report.message;
                    super::print_error(&anyhow::anyhow!("`{create}` was refused: {message}"));
                }
            }
            ConnectionEvent::Disconnected { why } => {
                super::print_error(&anyhow::anyhow!("lost the connection, trying again: {why}"));
            }
            ConnectionEvent::RecordWarning(warning) => super::print_error(&warning.into()),
            ConnectionEvent::Connected { .. } => {}
            ConnectionEvent::Ended(EndReason::RecordChanged(warning)) => {
                super::print_error(&warning.into());
                printed.succeeded = false;
                break;
            }
            ConnectionEvent::Ended(EndReason::Closed | EndReason::Left) => break,
            ConnectionEvent::Ended(EndReason::Refused(report)) => {
                super::print_error(&anyhow::anyhow!(report.message));
                printed.succeeded = false;
                break;
            }
        }
    }
    Ok(printed)
}
