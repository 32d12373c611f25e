//! The composer: the input line for prompts, shell commands and slash commands.

use pvp_protocol::payload::{
    InterruptRaise, InterruptUrgency, PromptDraft, PromptSubmit, ShellExec,
};
use pvp_protocol::{ExtraFields, ParticipantId};

use super::input_history::InputHistory;
use super::{App, Focus, NoticeLevel, PendingRequest, provisional_message_id};
use crate::completion::{self, InputCompletion};
use crate::config::ShellResultRouting;
use crate::dialog::Dialog;
use crate::editor::Editor;
use crate::keys::KeyAction;

/// The input line.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Composer {
    pub(crate) editor: Editor,
    /// The candidates of a completion under way, and which of them is in the text.
    pub(crate) completion: Option<InputCompletion>,
    /// Names of programs on this machine, for completion.
    pub(crate) program_names: Vec<String>,
    /// What the user sent before.
    pub(crate) history: InputHistory,
}

impl Composer {
    pub(super) fn insert(&mut self, text: &str) {
        self.completion = None;
        self.editor.insert(text);
    }

    /// Inserts typed or pasted text into the input, or into the needle during a history search.
    pub(super) fn insert_typed(&mut self, text: &str) {
        match self.history.search {
            Some(_) => self.type_search_text(text),
            None => self.insert(text),
        }
    }

    /// Puts back a text that could not be sent; into the history if the input is no longer empty.
    pub(super) fn restore_text(&mut self, text: &str) {
        if self.editor.is_empty() {
            self.editor = Editor::new(text);
        } else {
            self.history.push(text.to_owned());
        }
    }

    fn take_text(&mut self) -> String {
        self.completion = None;
        self.history.reset_position();
        self.editor.take_text()
    }
}

/// Applies the editing keys that every text input shares.
#[expect(clippy::wildcard_enum_match_arm, reason = "handles only its own keys")]
pub(super) fn apply_edit(editor: &mut Editor, action: KeyAction) {
    match action {
        KeyAction::Left => editor.move_left(),
        KeyAction::Right => editor.move_right(),
        KeyAction::WordLeft => editor.move_word_left(),
        KeyAction::WordRight => editor.move_word_right(),
        KeyAction::LineStart => editor.move_to_line_start(),
        KeyAction::LineEnd => editor.move_to_line_end(),
        KeyAction::Backspace => editor.backspace(),
        KeyAction::Delete => editor.delete(),
        KeyAction::DeleteWord => editor.delete_word_left(),
        KeyAction::DeleteToStart => editor.delete_to_line_start(),
        KeyAction::DeleteToEnd => editor.delete_to_line_end(),
        _ => {}
    }
}

impl App {
    #[expect(clippy::wildcard_enum_match_arm, reason = "handles only its own keys")]
    pub(super) fn on_composer_action(&mut self, action: KeyAction) {
        if action != KeyAction::Complete {
            let had_completion = self.composer.completion.take().is_some();
            if had_completion && action == KeyAction::Leave {
                return;
            }
        }
        match action {
            KeyAction::Send => self.submit(),
            KeyAction::NewLine => self.composer.insert("\n"),
            KeyAction::Complete => self.complete_input(),
            KeyAction::Earlier => self.composer.recall_previous(),
            KeyAction::Later => self.composer.recall_next(),
            KeyAction::Recall => self.composer.begin_search(),
            KeyAction::Leave => self.focus = Focus::Main,
            KeyAction::Clear => self.clear_or_quit(),
            action => apply_edit(&mut self.composer.editor, action),
        }
    }

    pub(super) fn on_paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        match &mut self.dialog {
            Some(dialog) if dialog.is_multiline() => dialog.editor_mut().insert(&text),
            Some(dialog) => dialog.editor_mut().insert(&text.replace('\n', " ")),
            None => match self.focused_driven_pty() {
                Some(proposal) => self.paste_to_pty(&proposal, &text),
                None if self.purpose.is_answers() => {}
                None => {
                    self.focus = Focus::Composer;
                    self.composer.insert_typed(&text);
                }
            },
        }
    }

    /// Focuses the composer and inserts `text`, unless there is text already.
    pub(super) fn start_composing(&mut self, text: &str) {
        self.focus = Focus::Composer;
        self.composer.history.reset_position();
        if self.composer.editor.is_empty() {
            self.composer.insert(text);
        }
    }

    fn complete_input(&mut self) {
        if let Some(completion) = &mut self.composer.completion {
            let (start, text) = completion.next_candidate();
            return self.composer.editor.replace_before_cursor(start, &text);
        }
        let completion = completion::complete_at_cursor(self);
        match completion {
            Some(mut completion) => {
                let (start, text) = completion.common_prefix();
                self.composer.editor.replace_before_cursor(start, &text);
                self.composer.completion = completion.if_ambiguous();
            }
            None if completion::is_completable(self.composer.editor.text()) => {
                self.show_notice(NoticeLevel::Info, "nothing to complete");
            }
            None => self.focus_next(),
        }
    }

    fn clear_or_quit(&mut self) {
        if !self.composer.editor.is_empty() {
            let text = self.composer.take_text();
            // If that was a mistake, one key brings it back; it is not saved to the history file.
            self.composer.history.push(text);
            return;
        }
        if self.quit_requested {
            return self.effects.push(super::AppEffect::Quit);
        }
        self.quit_requested = true;
        self.show_notice(
            NoticeLevel::Info,
            "press again to quit; the session keeps running",
        );
    }

    fn submit(&mut self) {
        let text = self.composer.editor.text().to_owned();
        let trimmed = text.trim();
        if trimmed.is_empty() && self.shell_results.is_empty() {
            return;
        }
        // The notice was about an earlier input.
        self.notice = None;
        let done = if let Some(line) = trimmed.strip_prefix("!!") {
            self.send_shell_command(line.trim(), true)
        } else if let Some(line) = trimmed.strip_prefix('!') {
            self.send_shell_command(line.trim(), self.config.bang == ShellResultRouting::Send)
        } else if let Some(command) = trimmed.strip_prefix('/') {
            self.run_slash_command(command)
        } else {
            self.send_prompt(trimmed)
        };
        if done {
            self.composer.take_text();
            self.record_sent_text(text);
        }
    }

    /// Submits a text as if the user had typed it.
    pub(crate) fn submit_text(&mut self, text: &str) {
        self.composer.editor = Editor::new(text);
        self.submit();
        self.composer.editor = Editor::default();
    }

    /// Sends a command of the user's own; false if it could not be sent.
    fn send_shell_command(&mut self, line: &str, send_result: bool) -> bool {
        if line.is_empty() {
            self.show_notice(NoticeLevel::Error, "type a command after `!`");
            return false;
        }
        let supported = self.view.extensions.as_ref();
        if supported.is_some_and(|extensions| !extensions.supports_shell_exec) {
            self.show_notice(
                NoticeLevel::Error,
                "this session does not run people's own commands",
            );
            return false;
        }
        let target = self
            .prompt_target
            .as_ref()
            .and_then(|id| self.view.people.get(id));
        let executor = target.filter(|person| person.is_executor());
        let message = ShellExec {
            command: line.to_owned(),
            timeout_seconds: None,
            cwd: None,
            executor: executor.map(|person| person.id.clone()),
            origin: None,
            secrets: Vec::new(),
            assessment: None,
            extra: ExtraFields::new(),
        };
        let line = line.to_owned();
        self.send(PendingRequest::Shell { line, send_result }, message);
        true
    }

    /// Prompts the agent, with the waiting shell results; false if it could not be sent.
    pub(crate) fn send_prompt(&mut self, text: &str) -> bool {
        let (to, text) = match self.split_recipient(text) {
            Ok(addressed) => addressed,
            Err(problem) => {
                self.show_notice(NoticeLevel::Error, problem);
                return false;
            }
        };
        let Some(me) = self.view.me.as_ref().map(|me| me.participant.clone()) else {
            self.show_notice(NoticeLevel::Error, "not connected to the session yet");
            return false;
        };
        let content = self
            .shell_results
            .prepend_to_prompt(&provisional_message_id(self.next_request_id), &text);
        let message = PromptSubmit {
            content,
            target_agent: to,
            contributors: vec![me],
            context_keys: Vec::new(),
            config: None,
            origin: None,
            extra: ExtraFields::new(),
        };
        self.send(PendingRequest::Prompt { text }, message);
        self.stream_scroll.follow_newest();
        true
    }

    /// Splits a text into its recipient and the rest: the agent of a leading `@name`, else the
    /// agent of `/to`, else the only agent.
    fn split_recipient(&self, text: &str) -> Result<(ParticipantId, String), String> {
        if let Some(rest) = text.strip_prefix('@') {
            let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let agent = self.find_agent(name)?;
            return Ok((agent, rest.trim_start().to_owned()));
        }
        self.prompt_recipient()
            .map(|agent| (agent, text.to_owned()))
    }

    /// The agent that a prompt without `@name` goes to.
    pub(crate) fn prompt_recipient(&self) -> Result<ParticipantId, String> {
        let agents: Vec<_> = self.view.agents().map(|agent| agent.id.clone()).collect();
        if let Some(target) = &self.prompt_target
            && agents.contains(target)
        {
            return Ok(target.clone());
        }
        match agents.as_slice() {
            [] => Err("there is no agent in this session".to_owned()),
            [agent] => Ok(agent.clone()),
            _ => {
                let names = self.agent_mentions();
                Err(format!(
                    "choose an agent by starting with its name: {names}"
                ))
            }
        }
    }

    /// The agent with this name or id.
    pub(super) fn find_agent(&self, name: &str) -> Result<ParticipantId, String> {
        let mut agents = self.view.agents();
        let found =
            agents.find(|agent| agent.id.as_str() == name || mention_name(&agent.name) == name);
        let found = found.map(|agent| agent.id.clone());
        found.ok_or_else(|| match self.agent_mentions().as_str() {
            "" => "there is no agent in this session".to_owned(),
            names => format!("there is no agent `{name}`; choose from {names}"),
        })
    }

    /// The names of all agents as typed before a prompt.
    fn agent_mentions(&self) -> String {
        let agents = self.view.agents();
        let names = agents.map(|agent| format!("@{}", mention_name(&agent.name)));
        names.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn open_interrupt_dialog(&mut self) {
        if !self.view.may_interrupt() {
            return self.show_notice(NoticeLevel::Error, "your roles do not include interrupting");
        }
        self.dialog = Some(Dialog::interrupt());
    }

    pub(super) fn send_interrupt(
        &mut self,
        target: Option<ParticipantId>,
        urgency: InterruptUrgency,
        message: &str,
    ) {
        let message = match message {
            "" => "interrupted by a person",
            message => message,
        };
        let request = PendingRequest::WithNotice {
            success_notice: "interrupted",
        };
        let message = InterruptRaise {
            target,
            urgency,
            message: message.to_owned(),
            inject_context: None,
            inject_context_ref: None,
            extra: ExtraFields::new(),
        };
        self.send(request, message);
    }

    /// Shares the draft with the others, if the settings say so and it is meant for an agent.
    pub(super) fn share_draft(&mut self) {
        let text = self.composer.editor.text();
        let private = text.starts_with(['!', '/']);
        let text = if private {
            String::new()
        } else {
            text.to_owned()
        };
        let connected = self.connection == super::ConnectionState::Connected;
        // An entry shown by a history search is not a draft.
        let searching = self.composer.history.search.is_some();
        if !self.config.share_drafts || !connected || searching || text == self.shared_draft {
            return;
        }
        let Some(me) = self.view.me.as_ref().filter(|me| me.may_prompt) else {
            return;
        };
        let message = PromptDraft {
            content: text.clone(),
            target_agent: self.prompt_recipient().ok(),
            contributors: vec![me.participant.clone()],
            extra: ExtraFields::new(),
        };
        self.shared_draft = text;
        self.send(PendingRequest::Ignored, message);
    }
}

/// A name as it is typed after `@`.
pub(crate) fn mention_name(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join("-")
}
