//! Typing: prompts, one's own commands and slash commands, with history and completion.

use pvp_protocol::payload::{
    InterruptRaise, InterruptUrgency, PromptDraft, PromptSubmit, ShellExec,
};
use pvp_protocol::{ExtraFields, ParticipantId};

use super::recall::Recall;
use super::{App, Errand, Focus, Tone, ticket_name};
use crate::complete::{self, Offer};
use crate::config::Bang;
use crate::dialog::Dialog;
use crate::editor::Editor;
use crate::keys::Act;

/// What is being typed.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Composer {
    pub(crate) editor: Editor,
    /// What completion offers, and which of it is in the text.
    pub(crate) offer: Option<Offer>,
    /// Names of programs.
    pub(crate) programs: Vec<String>,
    /// What was sent before.
    pub(crate) recall: Recall,
}

impl Composer {
    pub(super) fn insert(&mut self, text: &str) {
        self.offer = None;
        self.editor.insert(text);
    }

    /// Takes what is typed, or pasted: text, or what is looked for.
    pub(super) fn type_in(&mut self, text: &str) {
        match self.recall.search {
            Some(_) => self.search_for(text),
            None => self.insert(text),
        }
    }

    /// Puts back what could not be sent, unless something else is typed by now.
    pub(super) fn give_back(&mut self, text: &str) {
        if self.editor.is_empty() {
            self.editor = Editor::new(text);
        } else {
            self.recall.remember(text.to_owned());
        }
    }

    fn take(&mut self) -> String {
        self.offer = None;
        self.recall.forget_place();
        self.editor.take()
    }
}

/// What the keys of every text do.
#[expect(clippy::wildcard_enum_match_arm, reason = "a pane minds its own keys")]
pub(super) fn edit(editor: &mut Editor, act: Act) {
    match act {
        Act::Left => editor.left(),
        Act::Right => editor.right(),
        Act::WordLeft => editor.word_left(),
        Act::WordRight => editor.word_right(),
        Act::LineStart => editor.home(),
        Act::LineEnd => editor.end(),
        Act::Backspace => editor.backspace(),
        Act::Delete => editor.delete(),
        Act::DeleteWord => editor.delete_word(),
        Act::DeleteToStart => editor.delete_to_start(),
        Act::DeleteToEnd => editor.delete_to_end(),
        _ => {}
    }
}

impl App {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a pane minds its own keys")]
    pub(super) fn act_composer(&mut self, act: Act) {
        if act != Act::Complete {
            let offered = self.composer.offer.take().is_some();
            if offered && act == Act::Leave {
                return;
            }
        }
        match act {
            Act::Send => self.submit(),
            Act::NewLine => self.composer.insert("\n"),
            Act::Complete => self.complete(),
            Act::Earlier => self.composer.earlier(),
            Act::Later => self.composer.later(),
            Act::Recall => self.composer.begin_search(),
            Act::Leave => self.focus = Focus::Main,
            Act::Clear => self.clear(),
            act => edit(&mut self.composer.editor, act),
        }
    }

    pub(super) fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        match &mut self.dialog {
            Some(dialog) if dialog.takes_lines() => dialog.editor_mut().insert(&text),
            Some(dialog) => dialog.editor_mut().insert(&text.replace('\n', " ")),
            None => match self.driven_pane() {
                Some(proposal) => self.paste_into_pane(&proposal, &text),
                None => {
                    self.focus = Focus::Composer;
                    self.composer.type_in(&text);
                }
            },
        }
    }

    /// Begins to type, keeping what was typed.
    pub(super) fn compose_with(&mut self, text: &str) {
        self.focus = Focus::Composer;
        self.composer.recall.forget_place();
        if self.composer.editor.is_empty() {
            self.composer.insert(text);
        }
    }

    fn complete(&mut self) {
        if let Some(offer) = &mut self.composer.offer {
            let (start, text) = offer.next();
            return self.composer.editor.replace_back_to(start, &text);
        }
        let offer = complete::offer(self);
        match offer {
            Some(mut offer) => {
                let (start, text) = offer.first();
                self.composer.editor.replace_back_to(start, &text);
                self.composer.offer = offer.several();
            }
            None if complete::wanted(self.composer.editor.text()) => {
                self.tell(Tone::Plain, "nothing to complete");
            }
            None => self.focus_next(),
        }
    }

    fn clear(&mut self) {
        if !self.composer.editor.is_empty() {
            let text = self.composer.take();
            // Brought back with one key if that was a mistake, but not for ever.
            self.composer.recall.remember(text);
            return;
        }
        if self.quitting {
            return self.effects.push(super::Effect::Quit);
        }
        self.quitting = true;
        self.tell(Tone::Plain, "once more to quit; the session goes on");
    }

    fn submit(&mut self) {
        let text = self.composer.editor.text().to_owned();
        let trimmed = text.trim();
        if trimmed.is_empty() && self.results.is_empty() {
            return;
        }
        // What was said before is not about this.
        self.notice = None;
        let done = if let Some(line) = trimmed.strip_prefix("!!") {
            self.shell(line.trim(), true)
        } else if let Some(line) = trimmed.strip_prefix('!') {
            self.shell(line.trim(), self.config.bang == Bang::Send)
        } else if let Some(command) = trimmed.strip_prefix('/') {
            self.slash(command)
        } else {
            self.prompt(trimmed)
        };
        if done {
            self.composer.take();
            self.sent(text);
        }
    }

    /// Sends a text as if it were typed.
    pub(crate) fn submit_text(&mut self, text: &str) {
        self.composer.editor = Editor::new(text);
        self.submit();
        self.composer.editor = Editor::default();
    }

    /// Runs a command of one's own; false if it could not even be tried.
    fn shell(&mut self, line: &str, send: bool) -> bool {
        if line.is_empty() {
            self.tell(Tone::Bad, "bang command is empty");
            return false;
        }
        let supported = self.view.extensions.as_ref();
        if supported.is_some_and(|extensions| !extensions.supports_shell_exec) {
            self.tell(Tone::Bad, "this server does not run people's own commands");
            return false;
        }
        let target = self.target.as_ref().and_then(|id| self.view.people.get(id));
        let executor = target.filter(|person| person.is_executor());
        let message = ShellExec {
            command: line.to_owned(),
            timeout_seconds: None,
            cwd: None,
            executor: executor.map(|person| person.id.clone()),
            origin: None,
            assessment: None,
            extra: ExtraFields::new(),
        };
        let line = line.to_owned();
        self.send(Errand::Shell { line, send }, message);
        true
    }

    /// Asks the agent, with the results that wait; false if nobody can be asked.
    pub(crate) fn prompt(&mut self, text: &str) -> bool {
        let (to, text) = match self.addressed(text) {
            Ok(addressed) => addressed,
            Err(problem) => {
                self.tell(Tone::Bad, problem);
                return false;
            }
        };
        let Some(me) = self.view.me.as_ref().map(|me| me.participant.clone()) else {
            self.tell(Tone::Bad, "not in the session yet");
            return false;
        };
        let content = self
            .results
            .prepend_to_prompt(&ticket_name(self.next_ticket), &text);
        let message = PromptSubmit {
            content,
            target_agent: to,
            contributors: vec![me],
            context_keys: Vec::new(),
            config: None,
            extra: ExtraFields::new(),
        };
        self.send(Errand::Prompt { text }, message);
        self.reading.follow();
        true
    }

    /// Whom a text is for: `@name` before it, the one that was chosen, or the only agent.
    fn addressed(&self, text: &str) -> Result<(ParticipantId, String), String> {
        if let Some(rest) = text.strip_prefix('@') {
            let (name, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            let agent = self.agent_named(name)?;
            return Ok((agent, rest.trim_start().to_owned()));
        }
        self.addressee().map(|agent| (agent, text.to_owned()))
    }

    /// Whom the next prompt goes to.
    pub(crate) fn addressee(&self) -> Result<ParticipantId, String> {
        let agents: Vec<_> = self.view.agents().map(|agent| agent.id.clone()).collect();
        if let Some(target) = &self.target
            && agents.contains(target)
        {
            return Ok(target.clone());
        }
        match agents.as_slice() {
            [] => Err("no agent is here to be asked".to_owned()),
            [agent] => Ok(agent.clone()),
            _ => {
                let names = self.names_after_at();
                Err(format!("say which agent before the text: {names}"))
            }
        }
    }

    /// The agent of this name or id.
    pub(super) fn agent_named(&self, name: &str) -> Result<ParticipantId, String> {
        let mut agents = self.view.agents();
        let found = agents.find(|agent| agent.id.as_str() == name || squeezed(&agent.name) == name);
        let found = found.map(|agent| agent.id.clone());
        found.ok_or_else(|| match self.names_after_at().as_str() {
            "" => "no agent is here".to_owned(),
            names => format!("no agent `{name}` is here; there is {names}"),
        })
    }

    /// The agents as one writes them before a text.
    fn names_after_at(&self) -> String {
        let agents = self.view.agents();
        let names = agents.map(|agent| format!("@{}", squeezed(&agent.name)));
        names.collect::<Vec<_>>().join(", ")
    }

    pub(super) fn ask_interrupt(&mut self) {
        if !self.view.may_interrupt() {
            return self.tell(Tone::Bad, "your roles do not interrupt");
        }
        self.dialog = Some(Dialog::interrupt());
    }

    pub(super) fn interrupt(
        &mut self,
        target: Option<ParticipantId>,
        urgency: InterruptUrgency,
        message: &str,
    ) {
        let message = match message {
            "" => "interrupted by a person",
            message => message,
        };
        let errand = Errand::Plain {
            done: "interrupted",
        };
        let message = InterruptRaise {
            target,
            urgency,
            message: message.to_owned(),
            inject_context: None,
            inject_context_ref: None,
            extra: ExtraFields::new(),
        };
        self.send(errand, message);
    }

    /// Tells others what is being typed, if that is wanted and it is meant for an agent.
    pub(super) fn share_draft(&mut self) {
        let text = self.composer.editor.text();
        let private = text.starts_with(['!', '/']);
        let text = if private {
            String::new()
        } else {
            text.to_owned()
        };
        let up = self.link == super::Link::Up;
        // What one only looks at on the way back is not what one is about to ask.
        let looking = self.composer.recall.search.is_some();
        if !self.config.share_drafts || !up || looking || text == self.shared_draft {
            return;
        }
        let Some(me) = self.view.me.as_ref().filter(|me| me.may_prompt) else {
            return;
        };
        let message = PromptDraft {
            content: text.clone(),
            target_agent: self.addressee().ok(),
            contributors: vec![me.participant.clone()],
            extra: ExtraFields::new(),
        };
        self.shared_draft = text;
        self.send(Errand::Silent, message);
    }
}

/// A name as it is typed after `@`.
pub(crate) fn squeezed(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join("-")
}
