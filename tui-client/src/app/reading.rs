//! Reading: scrolling and searching the stream, pages and the pager, and copying out of them.

use std::collections::BTreeSet;

use pvp_client::view::{TimelineEvent, TimelineItem, View};
use pvp_protocol::payload::{OutputPage, OutputStream};
use pvp_protocol::{MessageId, RunMode};
use ratatui::layout::Size;

use super::{App, Effect, Focus, Main, Tone};
use crate::dialog::Dialog;
use crate::keys::Act;
use crate::pager::{Pager, Wanted};
use crate::stream::{self, Ink};

/// Thoughts that are remembered as opened or closed.
const TOGGLED: usize = 200;

/// A row of the stream: an item, counted from the first there ever was, and a row of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) item: u64,
    pub(crate) row: usize,
}

/// Where in the stream one reads.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reading {
    /// The first row on the screen; `None` while following the newest.
    pub(crate) top: Option<Place>,
    /// The item that was chosen.
    pub(crate) selected: Option<u64>,
    pub(crate) thinking: bool,
    pub(crate) toggled: BTreeSet<MessageId>,
    pub(crate) needle: String,
}

impl Reading {
    pub(super) fn follow(&mut self) {
        self.top = None;
        self.selected = None;
    }

    /// What is no longer kept cannot be read.
    pub(super) fn forget_dropped(&mut self, view: &View) {
        let first = view.stream.dropped;
        if let Some(top) = &mut self.top
            && top.item < first
        {
            *top = Place {
                item: first,
                row: 0,
            };
        }
        self.selected = self.selected.map(|selected| selected.max(first));
        while self.toggled.len() > TOGGLED {
            self.toggled.pop_first();
        }
    }
}

impl App {
    /// How rows are made at the width that the stream has.
    pub(crate) fn ink(&self) -> Ink<'_> {
        Ink {
            view: &self.view,
            theme: &self.theme,
            clock: &self.config.clock,
            now: self.now,
            columns: crate::draw::stream_columns(self.size),
            thinking: self.reading.thinking,
            toggled: &self.reading.toggled,
        }
    }

    pub(crate) fn main_rows(&self) -> usize {
        usize::from(crate::draw::areas(self).main.height).max(1)
    }

    pub(super) fn card_page(&self) -> usize {
        crate::draw::card_window(self).saturating_sub(1).max(1)
    }

    pub(crate) fn item(&self, number: u64) -> Option<&TimelineItem> {
        let index = number.checked_sub(self.view.stream.dropped)?;
        self.view.stream.items.get(usize::try_from(index).ok()?)
    }

    fn items_end(&self) -> u64 {
        self.view.stream.dropped + self.view.stream.items.len() as u64
    }

    fn rows_of(&self, number: u64) -> usize {
        self.item(number)
            .map_or(0, |item| self.ink().rows(item).len())
    }

    /// The first row when the newest is at the bottom.
    pub(crate) fn bottom(&self) -> Place {
        self.back_from(
            Place {
                item: self.items_end(),
                row: 0,
            },
            self.main_rows(),
        )
    }

    fn back_from(&self, place: Place, rows: usize) -> Place {
        let Place { mut item, mut row } = place;
        let mut rows = rows;
        while rows > row && item > self.view.stream.dropped {
            rows -= row;
            item -= 1;
            row = self.rows_of(item);
        }
        Place {
            item,
            row: row.saturating_sub(rows),
        }
    }

    fn on_from(&self, place: Place, rows: usize) -> Place {
        let Place { mut item, row } = place;
        let mut rows = row + rows;
        while item < self.items_end() {
            let here = self.rows_of(item);
            if rows < here {
                return Place { item, row: rows };
            }
            rows -= here;
            item += 1;
        }
        Place { item, row: 0 }
    }

    /// Moves the stream by rows; at its end it is followed again.
    pub(super) fn scroll_stream(&mut self, rows: isize) {
        let bottom = self.bottom();
        let top = self.reading.top.unwrap_or(bottom);
        let by = rows.unsigned_abs();
        let moved = if rows < 0 {
            self.back_from(top, by)
        } else {
            self.on_from(top, by)
        };
        self.reading.top = (moved < bottom).then_some(moved);
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "a pane minds its own keys")]
    pub(super) fn act_stream(&mut self, act: Act) {
        let page = self.main_rows() as isize;
        match act {
            Act::Up => self.select_item(-1),
            Act::Down => self.select_item(1),
            Act::PageUp => self.scroll_stream(-page),
            Act::PageDown => self.scroll_stream(page),
            Act::Top => {
                let first = self.view.stream.dropped;
                self.reading.top = Some(Place {
                    item: first,
                    row: 0,
                });
                self.reading.selected = Some(first);
            }
            Act::Bottom => self.reading.follow(),
            Act::Open => self.open_selected(),
            Act::Fold => self.reading.thinking = !self.reading.thinking,
            Act::Search => self.dialog = Some(Dialog::search(&self.reading.needle)),
            Act::FindNext => self.find_item(1),
            Act::FindPrevious => self.find_item(-1),
            Act::Copy => self.copy_item(),
            Act::CopyOutput => self.copy_output(),
            _ => {}
        }
    }

    /// Chooses the item above or below, and brings it onto the screen.
    fn select_item(&mut self, step: i64) {
        let (first, end) = (self.view.stream.dropped, self.items_end());
        if first == end {
            return;
        }
        let next = match self.reading.selected {
            Some(selected) => selected.saturating_add_signed(step),
            None => end - 1,
        };
        self.go_to(next.clamp(first, end - 1));
    }

    fn go_to(&mut self, item: u64) {
        self.reading.selected = Some(item);
        let bottom = self.bottom();
        let top = self.reading.top.unwrap_or(bottom);
        let place = Place { item, row: 0 };
        let last = self.on_from(top, self.main_rows().saturating_sub(1));
        if place < top {
            self.reading.top = Some(place);
        } else if place > last {
            let rows = self.rows_of(item).min(self.main_rows());
            let end = Place { item, row: rows };
            let moved = self.back_from(end, self.main_rows());
            self.reading.top = (moved < bottom).then_some(moved);
        }
    }

    /// The newest item, or the one that was chosen.
    fn chosen_item(&self) -> Option<&TimelineItem> {
        let number = self.reading.selected.or(self.items_end().checked_sub(1));
        number.and_then(|number| self.item(number))
    }

    fn open_selected(&mut self) {
        let Some(item) = self.chosen_item() else {
            return;
        };
        if let TimelineEvent::Thinking { .. } = item.event {
            let id = item.id.clone();
            if !self.reading.toggled.remove(&id) {
                self.reading.toggled.insert(id);
            }
            return;
        }
        let proposal = stream::command_of(&self.view, item);
        let Some(proposal) = proposal else {
            return self.tell(Tone::Plain, "there is nothing to open here");
        };
        let id = proposal.id.clone();
        self.open_command(&id);
    }

    /// Opens the card of a command that waits, the screen of an interactive one that runs, else what
    /// a command printed.
    pub(super) fn open_command(&mut self, id: &MessageId) {
        let mut waiting = self.view.gates.iter();
        if let Some(card) = waiting.find(|card| card.proposal == *id) {
            let gate = card.gate.clone();
            return self.open_card(gate);
        }
        let proposal = self.view.proposal(id).filter(|it| it.is_running());
        match proposal.is_some_and(|it| it.requested.mode == RunMode::Pty) {
            true => self.open_pane(id.clone()),
            false => self.open_output(id),
        }
    }

    /// Opens all of what a command printed.
    pub(super) fn open_output(&mut self, id: &MessageId) {
        let Some(proposal) = self.view.proposal(id) else {
            return self.tell(Tone::Bad, "that command is not known here");
        };
        if proposal.run.is_none() && proposal.finish.is_none() {
            return self.tell(Tone::Plain, "it has not run, so it printed nothing");
        }
        let reference = proposal
            .finish
            .as_ref()
            .and_then(|finish| finish.output_ref.as_ref());
        let reference = reference.and_then(|reference| MessageId::parse(reference).ok());
        let pager = Pager::new(reference.unwrap_or(id.clone()), &proposal.requested.shown);
        self.show(Main::Pager(pager));
        self.fetch_more();
    }

    /// Asks for what was printed since, if one reads at the end.
    pub(super) fn read_on(&mut self) {
        if let Main::Pager(pager) = &mut self.main {
            pager.look_again();
            self.fetch_more();
        }
    }

    /// Asks for the lines that the pager misses.
    fn fetch_more(&mut self) {
        let rows = self.main_rows();
        if let Main::Pager(pager) = &mut self.main
            && let Some(Wanted {
                reference,
                offset,
                limit,
            }) = pager.wanted(rows)
        {
            self.effects.push(Effect::Fetch {
                reference,
                offset,
                limit,
            });
        }
    }

    pub(super) fn fetched(&mut self, page: Result<OutputPage, String>) {
        if let Main::Pager(pager) = &mut self.main {
            match page {
                Ok(page) => pager.take(page),
                Err(why) => pager.failed(why),
            }
            self.fetch_more();
        }
    }

    pub(super) fn found(&mut self, page: Result<OutputPage, String>) {
        let Main::Pager(pager) = &mut self.main else {
            return;
        };
        let told = match page {
            Ok(page) => pager.take_matches(&page),
            Err(why) => Err(why),
        };
        if let Err(why) = told {
            self.tell(Tone::Bad, why);
        }
        self.fetch_more();
    }

    /// The part of a page that is inside its frame.
    fn window(&self) -> Size {
        let area = crate::draw::areas(self).main;
        let inside = |all: u16| all.saturating_sub(2).max(1);
        Size::new(inside(area.width), inside(area.height))
    }

    pub(super) fn act_page(&mut self, act: Act) {
        let window = self.window();
        let went = match (&mut self.main, act) {
            (_, Act::Cancel) => return self.close_main(),
            (Main::Page(_) | Main::Pager(_), Act::Search) => {
                return self.dialog = Some(Dialog::search(""));
            }
            (Main::Page(page), Act::Copy) => {
                let (text, what) = page.copied();
                return self.copy(text, what);
            }
            (Main::Pager(pager), Act::Copy) => {
                let text = pager.text();
                return self.copy(text, "the lines that are loaded");
            }
            (Main::Page(page), act) => page.act(act, window),
            (Main::Pager(pager), act) => pager.act(act, window),
            (Main::Stream | Main::Preflight(_) | Main::Terminal(_), _) => true,
        };
        if !went {
            self.tell(Tone::Plain, "no more matches that way");
        }
        self.fetch_more();
    }

    /// Searches what is shown.
    pub(super) fn search(&mut self, needle: &str) {
        let needle = needle.trim().to_owned();
        if needle.is_empty() {
            self.reading.needle.clear();
            return;
        }
        match &mut self.main {
            Main::Page(page) => {
                if !page.search(&needle) {
                    self.tell(Tone::Bad, "no line matches");
                }
            }
            Main::Pager(pager) => {
                let reference = pager.search(&needle);
                self.effects.push(Effect::Find { reference, needle });
            }
            Main::Stream | Main::Preflight(_) | Main::Terminal(_) => {
                self.reading.needle = needle;
                self.focus = Focus::Main;
                self.find_item(-1);
            }
        }
    }

    /// The next item that matches, in either direction from the chosen one.
    fn find_item(&mut self, step: i64) {
        if self.reading.needle.is_empty() {
            return self.dialog = Some(Dialog::search(""));
        }
        let needle = self.reading.needle.to_lowercase();
        let (first, end) = (self.view.stream.dropped, self.items_end());
        let mut number = self.reading.selected.unwrap_or(end);
        loop {
            number = number.saturating_add_signed(step);
            if number < first || number >= end {
                return self.tell(Tone::Plain, "no more matches that way");
            }
            let found = self.item(number).is_some_and(|item| {
                stream::searched(&self.view, item)
                    .to_lowercase()
                    .contains(&needle)
            });
            if found {
                return self.go_to(number);
            }
            if number == 0 {
                return self.tell(Tone::Plain, "no more matches that way");
            }
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "everything else is one line"
    )]
    fn copy_item(&mut self) {
        let Some(item) = self.chosen_item() else {
            return;
        };
        let command = stream::command_of(&self.view, item);
        if let Some(proposal) = command {
            let text = proposal.requested.command.clone();
            return self.copy(text, "the command");
        }
        let text = match &item.event {
            TimelineEvent::Prompt { text, .. }
            | TimelineEvent::PromptAmended { text, .. }
            | TimelineEvent::Thinking { text, .. }
            | TimelineEvent::Response { text, .. } => text.text.clone(),
            _ => crate::words::what(&self.view, item),
        };
        self.copy(text, "the text");
    }

    fn copy_output(&mut self) {
        let command = self
            .chosen_item()
            .and_then(|item| stream::command_of(&self.view, item));
        let Some(output) = command.map(|proposal| &proposal.output) else {
            return self.tell(Tone::Plain, "no command is chosen");
        };
        let text = output.text(OutputStream::Stdout) + &output.text(OutputStream::Stderr);
        self.copy(text, "what it printed");
    }
}
