//! Plain mode, for screen readers, pipes and logs: prints one line for each event and reads
//! commands from standard input.

mod commands;

use crate::text::narrator;
use pvp_client::narrate;
use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Context;
use pvp_client::view::{GateCard, TimelineEvent, TimelineItem};
use pvp_client::{ApiClient, Connection, ConnectionEvent, EndReason, now};
use pvp_protocol::payload::OutputStream;
use pvp_protocol::{Digest, MessageId, ServerMessage};
use ratatui::layout::Size;
use ratatui::style::Style;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;

use crate::app::{App, AppEffect, AppInput, ConnectionState, MainContent, NoticeLevel};
use crate::event_loop::LaunchOptions;
use crate::requests::RequestDispatcher;
use crate::text::{line_text, one_line};
use crate::theme::Palette;
use crate::{ansi, notify};

/// Bytes of an unfinished output line that are buffered before it is printed anyway.
const MAX_PARTIAL_LINE_BYTES: usize = 4096;

/// Joins a session, prints what happens and runs the commands on standard input.
pub async fn run_plain(launch_options: LaunchOptions) -> anyhow::Result<()> {
    let (connection, mut events) =
        Connection::open(launch_options.link.clone(), launch_options.options).await?;
    let size = Size {
        width: 80,
        height: 24,
    };
    let mut config = launch_options.config;
    config.palette = Palette::None;
    let (replies, mut inbox) = mpsc::unbounded_channel();
    let session = connection.session().clone();
    let requests = RequestDispatcher::new(
        ApiClient::new(launch_options.link),
        session,
        connection,
        replies,
    );
    let mut plain_client = PlainClient::new(App::new(config, size, now()), requests);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut stdin_open = true;
    while !plain_client.finished {
        tokio::select! {
            // Events are printed before a command that was typed after them runs.
            biased;
            event = events.next() => match event {
                Some(event) => plain_client.on_connection_event(event)?,
                None => return Ok(()),
            },
            Some(reply) = inbox.recv() => plain_client.handle_input(reply)?,
            // A command needs what the welcome tells: who is here, and which gates are open.
            line = lines.next_line(), if stdin_open && plain_client.welcomed => {
                match line.context("reading standard input")? {
                    Some(line) => plain_client.run_command(&line)?,
                    // Without more input we only print.
                    None => stdin_open = false,
                }
            }
        }
    }
    Ok(())
}

/// Prints what happens in the session and runs typed commands.
struct PlainClient {
    /// The same state as the full screen has, of which nothing is drawn.
    app: App,
    /// Sends the app's requests to the server.
    requests: RequestDispatcher,
    /// Number of the first timeline item that was not processed yet.
    next_item: u64,
    /// Numbers of the thinking and response items that are still streaming; printed when complete.
    open_items: Vec<u64>,
    /// Open gates by number, with the digest that was last printed, to which a vote binds.
    printed_gates: BTreeMap<usize, (MessageId, Digest)>,
    /// Open gates of which everything was printed, with the digest they had then.
    read_gates: BTreeMap<MessageId, Digest>,
    /// The number for the next gate that opens.
    next_gate_number: usize,
    /// Output after the last line end, by command and stream.
    partial_lines: BTreeMap<(MessageId, OutputStream), String>,
    /// Whether the server has told the state of the session.
    welcomed: bool,
    /// Whether the user has quit or the connection has ended.
    finished: bool,
}

impl PlainClient {
    fn new(app: App, requests: RequestDispatcher) -> Self {
        Self {
            app,
            requests,
            next_item: 0,
            open_items: Vec::new(),
            printed_gates: BTreeMap::new(),
            read_gates: BTreeMap::new(),
            next_gate_number: 1,
            partial_lines: BTreeMap::new(),
            welcomed: false,
            finished: false,
        }
    }

    fn print_line(&self, line: &str) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .context("writing to standard output")
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other message is an item of the timeline"
    )]
    fn on_connection_event(&mut self, event: ConnectionEvent) -> anyhow::Result<()> {
        match event {
            ConnectionEvent::Message {
                envelope: Some(envelope),
                ..
            } => {
                let again = envelope.seq.is_some_and(|seq| seq <= self.app.view.head);
                if let (ServerMessage::ToolOutput(output), false) = (&envelope.message, again) {
                    self.print_output(&output.tool_proposal, output.stream, &output.text)?;
                }
                let ended = match &envelope.message {
                    ServerMessage::ToolResult(result) => Some(result.tool_proposal.clone()),
                    _ => None,
                };
                self.handle_input(AppInput::Message(envelope))?;
                self.print_welcome()?;
                ended.map_or(Ok(()), |proposal| self.print_result(&proposal))
            }
            ConnectionEvent::Message { envelope: None, .. } => Ok(()),
            ConnectionEvent::Connected { resumed } => {
                let back = matches!(self.app.connection, ConnectionState::Reconnecting { .. });
                self.handle_input(AppInput::Connected { resumed })?;
                if !resumed {
                    self.next_item = 0;
                    self.open_items.clear();
                }
                if back {
                    self.print_line("reconnected")
                } else {
                    Ok(())
                }
            }
            ConnectionEvent::RecordWarning(warning) => {
                self.print_line(&one_line(&warning.to_string()))?;
                self.handle_input(AppInput::RecordWarning(warning))
            }
            ConnectionEvent::Disconnected { why } => {
                self.print_line(&format!(
                    "connection lost, reconnecting: {}",
                    one_line(&why)
                ))?;
                self.handle_input(AppInput::Disconnected { reason: why })
            }
            ConnectionEvent::Ended(ending) => {
                self.finished = true;
                match ending {
                    EndReason::Closed | EndReason::Left => self.print_line("over"),
                    EndReason::Refused(report) => {
                        self.print_line(&format!("over: {}", one_line(&report.message)))
                    }
                    EndReason::RecordChanged(warning) => {
                        self.print_line(&format!("over: {}", one_line(&warning.to_string())))
                    }
                }
            }
        }
    }

    /// Says once that the session was joined and that commands are read.
    fn print_welcome(&mut self) -> anyhow::Result<()> {
        if self.welcomed || self.app.view.me.is_none() {
            return Ok(());
        }
        self.welcomed = true;
        self.print_line("joined; type `help` for the commands, `quit` to leave")
    }

    /// Updates the app, performs its effects, and prints what is new.
    fn handle_input(&mut self, input: AppInput) -> anyhow::Result<()> {
        self.app.notice = None;
        let effects = self.app.update(now(), input);
        self.perform_effects(effects)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the server gets the others")]
    fn perform_effects(&mut self, effects: Vec<AppEffect>) -> anyhow::Result<()> {
        for effect in effects {
            match effect {
                AppEffect::Quit => self.finished = true,
                AppEffect::Notify => {
                    let waiting = self.app.view.awaiting_my_vote().count();
                    let methods = &self.app.config.notify;
                    notify::send_notifications(&mut std::io::stderr(), methods, waiting)
                        .context("calling")?;
                }
                other => self.requests.run_effect(other),
            }
        }
        self.print_new_items()?;
        self.print_changed_gates()?;
        self.print_page()?;
        match self.app.notice.take() {
            Some(notice) if notice.level == NoticeLevel::Error => {
                self.print_line(&format!("problem: {}", notice.text))
            }
            Some(notice) => self.print_line(&notice.text),
            None => Ok(()),
        }
    }

    /// Prints the timeline items that are new or have become complete.
    fn print_new_items(&mut self) -> anyhow::Result<()> {
        let still_streaming = |item: &TimelineItem| {
            matches!(
                item.event,
                TimelineEvent::Thinking { open: true, .. }
                    | TimelineEvent::Response { open: true, .. }
            )
        };
        for number in std::mem::take(&mut self.open_items) {
            match self.app.item(number) {
                Some(item) if still_streaming(item) => self.open_items.push(number),
                Some(item) => self.print_line(&self.item_line(item))?,
                None => {}
            }
        }
        self.next_item = self.next_item.max(self.app.view.stream.dropped);
        while let Some(item) = self.app.item(self.next_item) {
            if still_streaming(item) {
                self.open_items.push(self.next_item);
            } else {
                self.print_line(&self.item_line(item))?;
            }
            self.next_item += 1;
        }
        Ok(())
    }

    fn item_line(&self, item: &TimelineItem) -> String {
        let who = one_line(self.app.view.sender_name(&item.who));
        let what = narrator(&self.app.view).item_text(item);
        let at = self.app.config.time_zone.time_of_day(item.at);
        format!("{at} {who} {what}")
    }

    /// Prints the gates that opened or changed, and forgets those that closed.
    fn print_changed_gates(&mut self) -> anyhow::Result<()> {
        let fresh: Vec<_> = self
            .app
            .view
            .gates
            .iter()
            .filter(|card| !self.is_printed(card))
            .cloned()
            .collect();
        for card in fresh {
            let number = self.number_gate(&card);
            let text = self.gate_line(number, &card);
            self.print_line(&text)?;
        }
        let view = &self.app.view;
        self.printed_gates
            .retain(|_, (gate, _)| view.card(gate).is_some());
        self.read_gates.retain(|gate, _| view.card(gate).is_some());
        Ok(())
    }

    fn is_printed(&self, card: &GateCard) -> bool {
        self.printed_gates
            .values()
            .any(|(gate, digest)| (gate, digest) == (&card.gate, &card.digest))
    }

    /// The number of a gate, which it keeps. Records its digest as the one that is printed next.
    fn number_gate(&mut self, card: &GateCard) -> usize {
        let known = self
            .printed_gates
            .iter()
            .find(|(_, (gate, _))| *gate == card.gate);
        let number = known.map(|(number, _)| *number).unwrap_or_else(|| {
            self.next_gate_number += 1;
            self.next_gate_number - 1
        });
        self.printed_gates
            .insert(number, (card.gate.clone(), card.digest));
        number
    }

    fn gate_line(&self, number: usize, card: &GateCard) -> String {
        let command = one_line(&card.requested.shown);
        let reason = card
            .requested
            .assessment
            .as_ref()
            .map(|it| one_line(&it.reason));
        let reason = reason
            .map(|reason| format!(", {reason}"))
            .unwrap_or_default();
        let votes = narrator(&self.app.view).vote_tally(card);
        let left = card.remaining_ms(self.app.now).map(narrate::countdown);
        let left = left
            .map(|left| format!(", {left} left"))
            .unwrap_or_default();
        let more = match card.requested.call {
            Some(_) => format!("; `show {number}` prints all of it"),
            None => String::new(),
        };
        format!(
            "gate {number}: {command} ({}{reason}; {votes}{left}; {}; id {}{more})",
            card.category_label(),
            card.standing.description(),
            card.proposal.short()
        )
    }

    /// Prints the open page or the output in the pager, once it is loaded, and closes it.
    fn print_page(&mut self) -> anyhow::Result<()> {
        let text = match &self.app.main {
            MainContent::Page(page) => format!("{}\n{}", page.title, page.text()),
            MainContent::Pager(pager) => match (pager.total_lines, &pager.error) {
                (_, Some(problem)) => problem.clone(),
                (None, None) => return Ok(()),
                (Some(_), None) => {
                    let lines = pager.lines.iter().map(|line| {
                        let text = strip_ansi(&line.text);
                        format!("{} {} {text}", line.number, stream_name(line.stream))
                    });
                    lines.collect::<Vec<_>>().join("\n")
                }
            },
            MainContent::Stream | MainContent::Preflight(_) | MainContent::Terminal(_) => {
                return Ok(());
            }
        };
        self.app.main = MainContent::Stream;
        self.print_line(&text)
    }

    /// Prints the complete lines of a command's output and buffers the rest.
    fn print_output(
        &mut self,
        proposal: &MessageId,
        stream: OutputStream,
        text: &str,
    ) -> anyhow::Result<()> {
        let key = (proposal.clone(), stream);
        let mut rest = self.partial_lines.remove(&key).unwrap_or_default() + text;
        while let Some(end) = rest.find('\n') {
            let line: String = rest.drain(..=end).collect();
            self.print_line(&format!("{}: {}", stream_name(stream), strip_ansi(&line)))?;
        }
        if rest.len() > MAX_PARTIAL_LINE_BYTES {
            self.print_line(&format!("{}: {}", stream_name(stream), strip_ansi(&rest)))?;
        } else if !rest.is_empty() {
            self.partial_lines.insert(key, rest);
        }
        Ok(())
    }

    /// Prints the rest of a command's output and how it ended.
    fn print_result(&mut self, proposal: &MessageId) -> anyhow::Result<()> {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            if let Some(rest) = self.partial_lines.remove(&(proposal.clone(), stream)) {
                self.print_line(&format!("{}: {}", stream_name(stream), strip_ansi(&rest)))?;
            }
        }
        let Some(proposal) = self.app.view.proposal(proposal) else {
            return Ok(());
        };
        let Some(finish) = &proposal.finish else {
            return Ok(());
        };
        let command = one_line(&proposal.requested.shown);
        let at = self.app.config.time_zone.time_of_day(finish.at);
        self.print_line(&format!(
            "{at} {command}: {}",
            narrator(&self.app.view).run_result_text(finish)
        ))
    }
}

fn stream_name(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "out",
        OutputStream::Stderr => "err",
    }
}

/// A line of output as a terminal would show it, without styles.
fn strip_ansi(text: &str) -> String {
    let lines = ansi::styled_lines(text, Style::new(), Palette::None);
    lines.iter().map(line_text).collect::<Vec<_>>().join(" ")
}
