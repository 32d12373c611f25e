//! Handles reading: scrolling, searching and copying in the stream, on pages and in the pager.

use crate::text::narrator;
use std::collections::BTreeSet;

use pvp_client::view::{TimelineEvent, TimelineItem, View};
use pvp_protocol::payload::{OutputPage, OutputStream};
use pvp_protocol::{MessageId, RunMode};
use ratatui::layout::Size;

use super::{App, AppEffect, Focus, MainContent, NoticeLevel};
use crate::dialog::Dialog;
use crate::keys::KeyAction;
use crate::pager::{Pager, PagerFetch};
use crate::stream::{self, StreamRenderer};

/// The most thinking items that are remembered as opened or closed by hand.
const MAX_TOGGLED_THINKING: usize = 200;

/// A row of the stream: an item, counted from the first of the session, and a row within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamPosition {
    pub(crate) item: u64,
    pub(crate) row: usize,
}

/// What the user sees of the stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StreamScrollState {
    /// The first row on the screen; `None` while following the newest item.
    pub(crate) top: Option<StreamPosition>,
    /// The number of the selected item.
    pub(crate) selected_item: Option<u64>,
    pub(crate) show_thinking: bool,
    pub(crate) toggled_thinking: BTreeSet<MessageId>,
    pub(crate) needle: String,
}

impl StreamScrollState {
    pub(super) fn follow_newest(&mut self) {
        self.top = None;
        self.selected_item = None;
    }

    /// Moves past items that the view no longer keeps.
    pub(super) fn skip_dropped_items(&mut self, view: &View) {
        let first = view.stream.dropped;
        if let Some(top) = &mut self.top
            && top.item < first
        {
            *top = StreamPosition {
                item: first,
                row: 0,
            };
        }
        self.selected_item = self.selected_item.map(|selected| selected.max(first));
        while self.toggled_thinking.len() > MAX_TOGGLED_THINKING {
            self.toggled_thinking.pop_first();
        }
    }
}

impl App {
    /// Renders items at the width that the stream has.
    pub(crate) fn stream_renderer(&self) -> StreamRenderer<'_> {
        StreamRenderer {
            view: &self.view,
            theme: &self.theme,
            time_zone: &self.config.time_zone,
            now: self.now,
            columns: crate::draw::stream_columns(self.size),
            show_thinking: self.stream_scroll.show_thinking,
            toggled_thinking: &self.stream_scroll.toggled_thinking,
        }
    }

    pub(crate) fn main_rows(&self) -> usize {
        usize::from(crate::draw::areas(self).main.height).max(1)
    }

    pub(super) fn card_page_rows(&self) -> usize {
        crate::draw::visible_card_rows(self)
            .saturating_sub(1)
            .max(1)
    }

    pub(crate) fn item(&self, number: u64) -> Option<&TimelineItem> {
        let index = number.checked_sub(self.view.stream.dropped)?;
        self.view.stream.items.get(usize::try_from(index).ok()?)
    }

    fn end_item_number(&self) -> u64 {
        self.view.stream.dropped + self.view.stream.items.len() as u64
    }

    fn row_count_of_item(&self, number: u64) -> usize {
        self.item(number)
            .map_or(0, |item| self.stream_renderer().item_rows(item).len())
    }

    /// The first row on the screen when the newest item is at the bottom.
    pub(crate) fn bottom_position(&self) -> StreamPosition {
        self.position_before(
            StreamPosition {
                item: self.end_item_number(),
                row: 0,
            },
            self.main_rows(),
        )
    }

    fn position_before(&self, position: StreamPosition, rows: usize) -> StreamPosition {
        let StreamPosition { mut item, mut row } = position;
        let mut rows = rows;
        while rows > row && item > self.view.stream.dropped {
            rows -= row;
            item -= 1;
            row = self.row_count_of_item(item);
        }
        StreamPosition {
            item,
            row: row.saturating_sub(rows),
        }
    }

    fn position_after(&self, position: StreamPosition, rows: usize) -> StreamPosition {
        let StreamPosition { mut item, row } = position;
        let mut rows = row + rows;
        while item < self.end_item_number() {
            let here = self.row_count_of_item(item);
            if rows < here {
                return StreamPosition { item, row: rows };
            }
            rows -= here;
            item += 1;
        }
        StreamPosition { item, row: 0 }
    }

    /// Scrolls the stream by rows; at its end the newest item is followed again.
    pub(super) fn scroll_stream(&mut self, rows: isize) {
        let bottom = self.bottom_position();
        let top = self.stream_scroll.top.unwrap_or(bottom);
        let by = rows.unsigned_abs();
        let moved = if rows < 0 {
            self.position_before(top, by)
        } else {
            self.position_after(top, by)
        };
        self.stream_scroll.top = (moved < bottom).then_some(moved);
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "handles only its own keys")]
    pub(super) fn on_stream_action(&mut self, action: KeyAction) {
        let page = self.main_rows() as isize;
        match action {
            KeyAction::Up => self.move_item_selection(-1),
            KeyAction::Down => self.move_item_selection(1),
            KeyAction::PageUp => self.scroll_stream(-page),
            KeyAction::PageDown => self.scroll_stream(page),
            KeyAction::Top => {
                let first = self.view.stream.dropped;
                self.stream_scroll.top = Some(StreamPosition {
                    item: first,
                    row: 0,
                });
                self.stream_scroll.selected_item = Some(first);
            }
            KeyAction::Bottom => self.stream_scroll.follow_newest(),
            KeyAction::Open => self.open_selected(),
            KeyAction::Fold => self.stream_scroll.show_thinking = !self.stream_scroll.show_thinking,
            KeyAction::Search => self.dialog = Some(Dialog::search(&self.stream_scroll.needle)),
            KeyAction::FindNext => self.find_matching_item(1),
            KeyAction::FindPrevious => self.find_matching_item(-1),
            KeyAction::Copy => self.copy_item(),
            KeyAction::CopyOutput => self.copy_output(),
            _ => {}
        }
    }

    /// Selects the item above or below and scrolls to it.
    fn move_item_selection(&mut self, step: i64) {
        let (first, end) = (self.view.stream.dropped, self.end_item_number());
        if first == end {
            return;
        }
        let next = match self.stream_scroll.selected_item {
            Some(selected) => selected.saturating_add_signed(step),
            None => end - 1,
        };
        self.scroll_to_item(next.clamp(first, end - 1));
    }

    fn scroll_to_item(&mut self, item: u64) {
        self.stream_scroll.selected_item = Some(item);
        let bottom = self.bottom_position();
        let top = self.stream_scroll.top.unwrap_or(bottom);
        let start = StreamPosition { item, row: 0 };
        let last = self.position_after(top, self.main_rows().saturating_sub(1));
        if start < top {
            self.stream_scroll.top = Some(start);
        } else if start > last {
            let rows = self.row_count_of_item(item).min(self.main_rows());
            let end = StreamPosition { item, row: rows };
            let moved = self.position_before(end, self.main_rows());
            self.stream_scroll.top = (moved < bottom).then_some(moved);
        }
    }

    fn selected_or_newest_item(&self) -> Option<&TimelineItem> {
        let number = self
            .stream_scroll
            .selected_item
            .or(self.end_item_number().checked_sub(1));
        number.and_then(|number| self.item(number))
    }

    fn open_selected(&mut self) {
        let Some(item) = self.selected_or_newest_item() else {
            return;
        };
        if let TimelineEvent::Thinking { .. } = item.event {
            let id = item.id.clone();
            if !self.stream_scroll.toggled_thinking.remove(&id) {
                self.stream_scroll.toggled_thinking.insert(id);
            }
            return;
        }
        let proposal = stream::proposal_of(&self.view, item);
        let Some(proposal) = proposal else {
            return self.show_notice(NoticeLevel::Info, "nothing to open here");
        };
        let id = proposal.id.clone();
        let is_proposed = matches!(item.event, TimelineEvent::Proposed { .. });
        let is_waiting = self.view.card(&id).is_some();
        // Of what a tool was called with, the stream shows only one line.
        let call = crate::pages::decided_call(proposal, &self.theme);
        match call.filter(|_| is_proposed && !is_waiting) {
            Some(page) => self.open_page(page),
            None => self.open_command(&id),
        }
    }

    /// Opens the card of a waiting command, the screen of a running interactive one, or else the
    /// command's output.
    pub(super) fn open_command(&mut self, id: &MessageId) {
        let mut waiting = self.view.gates.iter();
        if let Some(card) = waiting.find(|card| card.proposal == *id) {
            let gate = card.gate.clone();
            return self.open_card(gate);
        }
        let proposal = self.view.proposal(id).filter(|it| it.is_running());
        match proposal.is_some_and(|it| it.requested.mode == RunMode::Pty) {
            true => self.open_pty_screen(id.clone()),
            false => self.open_output(id),
        }
    }

    /// Opens the pager with the whole output of a command.
    pub(super) fn open_output(&mut self, id: &MessageId) {
        let Some(proposal) = self.view.proposal(id) else {
            return self.show_notice(
                NoticeLevel::Error,
                "this command is no longer kept here; use `pvp output`",
            );
        };
        if proposal.run.is_none() && proposal.finish.is_none() {
            return self.show_notice(
                NoticeLevel::Info,
                "this command has not run, so it has no output",
            );
        }
        let reference = proposal
            .finish
            .as_ref()
            .and_then(|finish| finish.output_ref.as_ref());
        let reference = reference.and_then(|reference| MessageId::parse(reference).ok());
        let pager = Pager::new(reference.unwrap_or(id.clone()), &proposal.requested.shown);
        self.show_main(MainContent::Pager(pager));
        self.fetch_missing_lines();
    }

    /// Fetches new output if the user reads at the end.
    pub(super) fn poll_pager(&mut self) {
        if let MainContent::Pager(pager) = &mut self.main {
            pager.check_for_more();
            self.fetch_missing_lines();
        }
    }

    /// Fetches the lines that the pager needs next.
    fn fetch_missing_lines(&mut self) {
        let rows = self.main_rows();
        if let MainContent::Pager(pager) = &mut self.main
            && let Some(PagerFetch {
                reference,
                offset,
                limit,
            }) = pager.next_fetch(rows)
        {
            self.effects.push(AppEffect::FetchOutput {
                reference,
                offset,
                limit,
            });
        }
    }

    pub(super) fn on_output_fetched(&mut self, page: Result<OutputPage, String>) {
        if let MainContent::Pager(pager) = &mut self.main {
            match page {
                Ok(page) => pager.add_page(page),
                Err(why) => pager.fetch_failed(why),
            }
            self.fetch_missing_lines();
        }
    }

    pub(super) fn on_output_searched(&mut self, page: Result<OutputPage, String>) {
        let MainContent::Pager(pager) = &mut self.main else {
            return;
        };
        let result = match page {
            Ok(page) => pager.set_matches(&page),
            Err(why) => Err(why),
        };
        if let Err(why) = result {
            self.show_notice(NoticeLevel::Error, why);
        }
        self.fetch_missing_lines();
    }

    /// The size of the area inside a page's frame.
    fn page_window(&self) -> Size {
        let area = crate::draw::areas(self).main;
        let inside = |all: u16| all.saturating_sub(2).max(1);
        Size::new(inside(area.width), inside(area.height))
    }

    pub(super) fn on_page_action(&mut self, action: KeyAction) {
        let window = self.page_window();
        let moved = match (&mut self.main, action) {
            (_, KeyAction::Cancel) => return self.close_main(),
            (MainContent::Page(_) | MainContent::Pager(_), KeyAction::Search) => {
                return self.dialog = Some(Dialog::search(""));
            }
            (MainContent::Page(page), KeyAction::Copy) => {
                let (text, what) = page.copy_text();
                return self.copy_to_clipboard(text, what);
            }
            (MainContent::Pager(pager), KeyAction::Copy) => {
                let text = pager.text();
                return self.copy_to_clipboard(text, "the loaded lines");
            }
            (MainContent::Page(page), action) => page.on_action(action, window),
            (MainContent::Pager(pager), action) => pager.on_action(action, window),
            (MainContent::Stream | MainContent::Preflight(_) | MainContent::Terminal(_), _) => true,
        };
        if !moved {
            self.show_notice(NoticeLevel::Info, "no more matches in that direction");
        }
        self.fetch_missing_lines();
    }

    /// Searches what the main area shows.
    pub(super) fn start_search(&mut self, needle: &str) {
        let needle = needle.trim().to_owned();
        if needle.is_empty() {
            self.stream_scroll.needle.clear();
            return;
        }
        match &mut self.main {
            MainContent::Page(page) => {
                if !page.search(&needle) {
                    self.show_notice(NoticeLevel::Error, "no line matches");
                }
            }
            MainContent::Pager(pager) => {
                let reference = pager.start_search(&needle);
                self.effects
                    .push(AppEffect::SearchOutput { reference, needle });
            }
            MainContent::Stream | MainContent::Preflight(_) | MainContent::Terminal(_) => {
                self.stream_scroll.needle = needle;
                self.focus = Focus::Main;
                self.find_matching_item(-1);
            }
        }
    }

    /// Moves to the next item that matches, in the direction of `step`.
    fn find_matching_item(&mut self, step: i64) {
        if self.stream_scroll.needle.is_empty() {
            return self.dialog = Some(Dialog::search(""));
        }
        let needle = self.stream_scroll.needle.to_lowercase();
        let (first, end) = (self.view.stream.dropped, self.end_item_number());
        let mut number = self.stream_scroll.selected_item.unwrap_or(end);
        loop {
            number = number.saturating_add_signed(step);
            if number < first || number >= end {
                return self.show_notice(NoticeLevel::Info, "no more matches in that direction");
            }
            let found = self.item(number).is_some_and(|item| {
                stream::searchable_text(&self.view, item)
                    .to_lowercase()
                    .contains(&needle)
            });
            if found {
                return self.scroll_to_item(number);
            }
            if number == 0 {
                return self.show_notice(NoticeLevel::Info, "no more matches in that direction");
            }
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "every other event is one line"
    )]
    fn copy_item(&mut self) {
        let Some(item) = self.selected_or_newest_item() else {
            return;
        };
        let command = stream::proposal_of(&self.view, item);
        if let Some(proposal) = command {
            let text = proposal.requested.command.clone();
            return self.copy_to_clipboard(text, "the command");
        }
        let text = match &item.event {
            TimelineEvent::Prompt { text, .. }
            | TimelineEvent::PromptAmended { text, .. }
            | TimelineEvent::Thinking { text, .. }
            | TimelineEvent::Response { text, .. } => text.text.clone(),
            _ => narrator(&self.view).item_text(item),
        };
        self.copy_to_clipboard(text, "the text");
    }

    fn copy_output(&mut self) {
        let command = self
            .selected_or_newest_item()
            .and_then(|item| stream::proposal_of(&self.view, item));
        let Some(output) = command.map(|proposal| &proposal.output) else {
            return self.show_notice(NoticeLevel::Info, "select a command first");
        };
        let text = output.text(OutputStream::Stdout) + &output.text(OutputStream::Stderr);
        self.copy_to_clipboard(text, "the output");
    }
}
