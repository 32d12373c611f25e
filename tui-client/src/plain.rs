//! Plain mode: every event one line, commands by word. For screen readers, pipes and logs.

mod words;

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

use crate::app::{App, Effect, Input, Link, Main, Tone};
use crate::errands::Errands;
use crate::run::Start;
use crate::text::{one_line, plain as plain_text};
use crate::theme::Palette;
use crate::{ansi, notify, words as tell};

/// Characters of a line that has not ended which are kept before it is said anyway.
const UNSAID: usize = 4096;

/// Joins a session, prints what happens and does what is said on standard input.
pub async fn plain(start: Start) -> anyhow::Result<()> {
    let (connection, mut events) = Connection::open(start.link.clone(), start.options).await?;
    let size = Size {
        width: 80,
        height: 24,
    };
    let mut config = start.config;
    config.palette = Palette::None;
    let (replies, mut inbox) = mpsc::unbounded_channel();
    let session = connection.session().clone();
    let errands = Errands::new(ApiClient::new(start.link), session, connection, replies);
    let mut reader = Reader::new(App::new(config, size, now()), errands);
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut typing = true;
    reader.say("joined; type `help` for the words, `quit` to leave")?;
    while !reader.over {
        tokio::select! {
            // What has happened is said before what was typed is done.
            biased;
            event = events.next() => match event {
                Some(event) => reader.happened(event)?,
                None => return Ok(()),
            },
            Some(reply) = inbox.recv() => reader.take(reply)?,
            line = lines.next_line(), if typing => {
                match line.context("reading standard input")? {
                    Some(line) => reader.said(&line)?,
                    // Whoever pipes nothing in only listens.
                    None => typing = false,
                }
            }
        }
    }
    Ok(())
}

/// Prints what happens.
struct Reader {
    app: App,
    errands: Errands,
    /// The first item that was not looked at.
    next_item: u64,
    /// Thoughts and answers that are still going on.
    open: Vec<u64>,
    /// Gates by number, as they were last printed; a vote binds that.
    printed: BTreeMap<usize, (MessageId, Digest)>,
    next_number: usize,
    /// The rest of what a command printed since its last line ended.
    unsaid: BTreeMap<(MessageId, OutputStream), String>,
    over: bool,
}

impl Reader {
    fn new(app: App, errands: Errands) -> Self {
        Self {
            app,
            errands,
            next_item: 0,
            open: Vec::new(),
            printed: BTreeMap::new(),
            next_number: 1,
            unsaid: BTreeMap::new(),
            over: false,
        }
    }

    fn say(&self, line: &str) -> anyhow::Result<()> {
        let mut out = std::io::stdout();
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .context("writing to standard output")
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is an item of the stream"
    )]
    fn happened(&mut self, event: ConnectionEvent) -> anyhow::Result<()> {
        match event {
            ConnectionEvent::Message {
                envelope: Some(envelope),
                ..
            } => {
                let again = envelope.seq.is_some_and(|seq| seq <= self.app.view.head);
                if let (ServerMessage::ToolOutput(output), false) = (&envelope.message, again) {
                    self.printed_by(&output.tool_proposal, output.stream, &output.text)?;
                }
                let ended = match &envelope.message {
                    ServerMessage::ToolResult(result) => Some(result.tool_proposal.clone()),
                    _ => None,
                };
                self.take(Input::Told(envelope))?;
                ended.map_or(Ok(()), |proposal| self.ended(&proposal))
            }
            ConnectionEvent::Message { envelope: None, .. } => Ok(()),
            ConnectionEvent::Connected { resumed } => {
                let back = matches!(self.app.link, Link::Down { .. });
                self.take(Input::Up { resumed })?;
                if !resumed {
                    self.next_item = 0;
                    self.open.clear();
                }
                if back {
                    self.say("connected again")
                } else {
                    Ok(())
                }
            }
            ConnectionEvent::Disconnected { why } => {
                self.say(&format!(
                    "connection lost, trying again: {}",
                    one_line(&why)
                ))?;
                self.take(Input::Down { why })
            }
            ConnectionEvent::Ended(ending) => {
                self.over = true;
                match ending {
                    EndReason::Closed | EndReason::Left => self.say("over"),
                    EndReason::Refused(report) => {
                        self.say(&format!("over: {}", one_line(&report.message)))
                    }
                }
            }
        }
    }

    /// Takes an input, does what follows, and says what is new.
    fn take(&mut self, input: Input) -> anyhow::Result<()> {
        self.app.notice = None;
        let effects = self.app.update(now(), input);
        self.after(effects)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "the server does the others")]
    fn after(&mut self, effects: Vec<Effect>) -> anyhow::Result<()> {
        for effect in effects {
            match effect {
                Effect::Quit => self.over = true,
                Effect::Call => {
                    let waiting = self.app.view.awaiting_my_vote().count();
                    let calls = &self.app.config.notify;
                    notify::call(&mut std::io::stderr(), calls, waiting).context("calling")?;
                }
                other => self.errands.run(other),
            }
        }
        self.items()?;
        self.gates()?;
        self.page()?;
        match self.app.notice.take() {
            Some(notice) if notice.tone == Tone::Bad => {
                self.say(&format!("problem: {}", notice.text))
            }
            Some(notice) => self.say(&notice.text),
            None => Ok(()),
        }
    }

    /// Says what happened since.
    fn items(&mut self) -> anyhow::Result<()> {
        let speaks = |item: &TimelineItem| {
            matches!(
                item.event,
                TimelineEvent::Thinking { open: true, .. }
                    | TimelineEvent::Response { open: true, .. }
            )
        };
        for number in std::mem::take(&mut self.open) {
            match self.app.item(number) {
                Some(item) if speaks(item) => self.open.push(number),
                Some(item) => self.say(&self.line(item))?,
                None => {}
            }
        }
        self.next_item = self.next_item.max(self.app.view.stream.dropped);
        while let Some(item) = self.app.item(self.next_item) {
            if speaks(item) {
                self.open.push(self.next_item);
            } else {
                self.say(&self.line(item))?;
            }
            self.next_item += 1;
        }
        Ok(())
    }

    fn line(&self, item: &TimelineItem) -> String {
        let who = one_line(self.app.view.sender_name(&item.who));
        let what = tell::what(&self.app.view, item);
        let at = self.app.config.clock.time(item.at);
        format!("{at} {who} {what}")
    }

    /// Says which gates opened or changed.
    fn gates(&mut self) -> anyhow::Result<()> {
        let fresh: Vec<_> = self
            .app
            .view
            .gates
            .iter()
            .filter(|card| !self.is_printed(card))
            .cloned()
            .collect();
        for card in fresh {
            let number = self.number(&card);
            let text = self.gate_line(number, &card);
            self.say(&text)?;
        }
        let view = &self.app.view;
        self.printed
            .retain(|_, (gate, _)| view.card(gate).is_some());
        Ok(())
    }

    fn is_printed(&self, card: &GateCard) -> bool {
        self.printed
            .values()
            .any(|(gate, digest)| (gate, digest) == (&card.gate, &card.digest))
    }

    /// The number of a gate, which it keeps; what it shows is what is printed next.
    fn number(&mut self, card: &GateCard) -> usize {
        let known = self
            .printed
            .iter()
            .find(|(_, (gate, _))| *gate == card.gate);
        let number = known.map(|(number, _)| *number).unwrap_or_else(|| {
            self.next_number += 1;
            self.next_number - 1
        });
        self.printed
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
        let votes = tell::tally(card, &self.app.view);
        let left = card.remaining_ms(self.app.now).map(tell::countdown);
        let left = left
            .map(|left| format!(", {left} left"))
            .unwrap_or_default();
        format!(
            "gate {number}: {command} ({}{reason}; {votes}{left}; {})",
            card.category,
            card.standing.description()
        )
    }

    /// Says a page, once there is one.
    fn page(&mut self) -> anyhow::Result<()> {
        let text = match &self.app.main {
            Main::Page(page) => format!("{}\n{}", page.title, page.text()),
            Main::Pager(pager) => match (pager.total, &pager.problem) {
                (_, Some(problem)) => problem.clone(),
                (None, None) => return Ok(()),
                (Some(_), None) => {
                    let lines = pager.lines.iter().map(|line| {
                        let text = ansi_text(&line.text);
                        format!("{} {} {text}", line.number, stream_word(line.stream))
                    });
                    lines.collect::<Vec<_>>().join("\n")
                }
            },
            Main::Stream | Main::Preflight(_) | Main::Terminal(_) => return Ok(()),
        };
        self.app.main = Main::Stream;
        self.say(&text)
    }

    /// Says the lines that a command has finished.
    fn printed_by(
        &mut self,
        proposal: &MessageId,
        stream: OutputStream,
        text: &str,
    ) -> anyhow::Result<()> {
        let key = (proposal.clone(), stream);
        let mut rest = self.unsaid.remove(&key).unwrap_or_default() + text;
        while let Some(end) = rest.find('\n') {
            let line: String = rest.drain(..=end).collect();
            self.say(&format!("{}: {}", stream_word(stream), ansi_text(&line)))?;
        }
        if rest.len() > UNSAID {
            self.say(&format!("{}: {}", stream_word(stream), ansi_text(&rest)))?;
        } else if !rest.is_empty() {
            self.unsaid.insert(key, rest);
        }
        Ok(())
    }

    /// Says the last of what a command printed, and how it ended.
    fn ended(&mut self, proposal: &MessageId) -> anyhow::Result<()> {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            if let Some(rest) = self.unsaid.remove(&(proposal.clone(), stream)) {
                self.say(&format!("{}: {}", stream_word(stream), ansi_text(&rest)))?;
            }
        }
        let Some(proposal) = self.app.view.proposal(proposal) else {
            return Ok(());
        };
        let Some(finish) = &proposal.finish else {
            return Ok(());
        };
        let command = one_line(&proposal.requested.shown);
        let at = self.app.config.clock.time(finish.at);
        self.say(&format!("{at} {command}: {}", tell::finish(finish)))
    }
}

fn stream_word(stream: OutputStream) -> &'static str {
    match stream {
        OutputStream::Stdout => "out",
        OutputStream::Stderr => "err",
    }
}

/// What a terminal would show of a line.
fn ansi_text(text: &str) -> String {
    let lines = ansi::lines(text, Style::new(), Palette::None);
    lines.iter().map(plain_text).collect::<Vec<_>>().join(" ")
}
