//! The pages that slash commands and keys open.

use crate::text::narrator;
use pvp_client::narrate;
use pvp_client::view::{
    CommandHistoryEntry, GateCard, ProposalState, ProposalView, RequestedAction, View,
    escape_invisible,
};
use pvp_protocol::payload::ExecutorInfo;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use crate::app::{App, MadeInvitation, SLASH_COMMANDS};
use crate::call_rows;
use crate::keys::{DEFAULT_BINDINGS, KeyAction, KeyScope};
use crate::qr_code::{self, QrBackground};
use crate::text::{clip, one_line, sanitize};
use crate::text_page::{PageCall, TextPage};
use crate::theme::{Palette, Theme};

/// The most columns of a command in a list.
const MAX_LISTED_COLUMNS: usize = 200;

/// Collects the lines of a page.
struct PageBuilder<'a> {
    theme: &'a Theme,
    lines: Vec<Line<'static>>,
}

impl<'a> PageBuilder<'a> {
    fn new(theme: &'a Theme) -> Self {
        let lines = Vec::new();
        Self { theme, lines }
    }

    fn heading(&mut self, text: &str) {
        if !self.lines.is_empty() {
            self.lines.push(Line::default());
        }
        self.lines
            .push(Line::from(Span::styled(one_line(text), self.theme.title)));
    }

    fn line(&mut self, text: &str) {
        self.lines.push(Line::from(one_line(text)));
    }

    fn row(&mut self, label: &str, width: usize, text: &str) {
        let label = format!("{:<width$}  ", one_line(label));
        let label = Span::styled(label, self.theme.key);
        self.lines
            .push(Line::from(vec![label, Span::raw(one_line(text))]));
    }

    fn build(self, title: &str) -> TextPage {
        TextPage::new(title, self.lines)
    }
}

pub(crate) fn help(app: &App) -> TextPage {
    let mut builder = PageBuilder::new(&app.theme);
    builder.heading("What you type");
    for (what, does) in [
        (
            "text",
            "asks the agent; @name before it asks one of several",
        ),
        (
            "!command",
            "runs a command of your own on the agent's machine, in the login shell there",
        ),
        ("", "its result goes with your next message"),
        (
            "!!command",
            "the same, and the agent gets the result at once",
        ),
        ("/command", "one of those below"),
    ] {
        builder.row(what, 10, does);
    }
    builder.line("Your own reads and writes run at once; a destructive command waits at a gate; a blocked one never runs.");
    builder.line("Everyone sees them, and the log says that you typed them.");
    builder.heading("Deciding");
    let keymap = &app.config.keymap;
    let card = keymap.first_key(KeyScope::Anywhere, KeyAction::FocusCard);
    let keys = [
        (KeyAction::Approve, "approve"),
        (KeyAction::Reject, "reject"),
        (KeyAction::Edit, "edit"),
        (KeyAction::AllowPrefix, "allow a prefix"),
        (KeyAction::AllowReading, "allow reading a directory"),
        (KeyAction::ApproveAll, "approve all after a list"),
        (KeyAction::Explain, "explain"),
    ];
    let keys =
        keys.map(|(action, word)| format!("{} {word}", keymap.first_key(KeyScope::Card, action)));
    builder.line(&format!(
        "{card} moves the focus to the card; its keys work only there: {}. Your vote counts for exactly the command shown.",
        keys.join(", ")
    ));
    builder.heading("Slash commands");
    for command in SLASH_COMMANDS {
        let usage = format!("/{} {}", command.name, command.args);
        builder.row(usage.trim_end(), 36, command.help);
    }
    builder.heading("Keys");
    let all = keymap.first_key(KeyScope::Anywhere, KeyAction::Keys);
    builder.line(&format!("{all} lists every key."));
    builder.build("Help")
}

pub(crate) fn keys(app: &App) -> TextPage {
    let mut builder = PageBuilder::new(&app.theme);
    let mut last = None;
    for binding in DEFAULT_BINDINGS {
        if last != Some(binding.scope) {
            builder.heading(&format!("In: {}", binding.scope.name()));
            last = Some(binding.scope);
        }
        let keys = app.config.keymap.keys_of(binding.scope, binding.action);
        let name = format!("{}.{}", binding.scope.name(), binding.name);
        let help = format!("{}  · {name}", binding.help);
        builder.row(&keys.join(" "), 22, &help);
    }
    builder.build("Keys")
}

pub(crate) fn people(app: &App) -> TextPage {
    let mut builder = PageBuilder::new(&app.theme);
    for participant in app.view.people.values() {
        let kind = narrate::label(participant.kind.as_str());
        let presence = if participant.left {
            "left".to_owned()
        } else {
            narrate::label(participant.presence.as_str())
        };
        let me = if app.view.is_me(&participant.id) {
            " (you)"
        } else {
            ""
        };
        let roles = narrate::role_list(&participant.roles);
        let text = format!("{} · {kind} · {roles} · {presence}{me}", participant.name);
        builder.row(
            &format!("{} {}", narrate::presence_mark(participant), participant.id),
            28,
            &text,
        );
    }
    builder.build("People")
}

pub(crate) fn tools(app: &App) -> TextPage {
    let mut builder = PageBuilder::new(&app.theme);
    for agent in app.view.agents() {
        builder.heading(&format!("{} ({})", agent.name, agent.id));
        match &agent.executor {
            None => builder.line("runs no commands"),
            Some(ability) => add_executor_rows(&mut builder, ability),
        }
    }
    if builder.lines.is_empty() {
        builder.line("there is no agent in this session");
    }
    builder.heading("How commands are assessed");
    builder.line("read: runs at once in a read-only sandbox; write and destructive: wait at a gate; blocked: never runs.");
    builder.build("Tools")
}

fn add_executor_rows(builder: &mut PageBuilder<'_>, executor_info: &ExecutorInfo) {
    let profiles: Vec<_> = executor_info
        .profiles
        .iter()
        .map(|it| narrate::label(it.as_str()))
        .collect();
    let sandbox = match profiles.as_slice() {
        [] => "none, so reads need approval too".to_owned(),
        profiles => profiles.join(", "),
    };
    builder.row("sandbox", 10, &sandbox);
    let directory = executor_info
        .working_directory
        .as_deref()
        .unwrap_or("unknown");
    builder.row("works in", 10, directory);
    if !executor_info.runner.is_empty() {
        builder.row("wrapped by", 10, &executor_info.runner.join(" "));
    }
    let own = if executor_info.shell_exec {
        "yes"
    } else {
        "no"
    };
    builder.row("!command", 10, own);
}

pub(crate) fn rules(app: &App) -> TextPage {
    let mut builder = PageBuilder::new(&app.theme);
    for (index, rule) in app.view.active_rules(app.now).enumerate() {
        let left = narrate::duration(rule.expires_at.millis_since(app.now));
        let by = app.view.display_name(&rule.by);
        let text = match &rule.read_root {
            Some(root) => format!("reading below {root}, expires in {left}, by {by}"),
            None => {
                let place = narrate::rule_place(rule.directory.as_deref());
                let prefix = rule.prefix.join(" ");
                format!("{prefix} …   {place}, expires in {left}, by {by}")
            }
        };
        builder.row(&(index + 1).to_string(), 3, &text);
    }
    if builder.lines.is_empty() {
        builder.line("no allow rules are in force; make one with P on a card, or with /allow");
    }
    builder.build("Allow rules: /revoke NUMBER revokes one")
}

pub(crate) fn jobs(app: &App) -> TextPage {
    let mut builder = PageBuilder::new(&app.theme);
    for (index, job) in app.active_proposals().iter().enumerate() {
        let state = narrator(&app.view).state_text(job, app.now);
        let command = shorten_command(&job.requested.shown);
        let text = format!("{:<6} {command}   {state}", job.id.short());
        builder.row(&(index + 1).to_string(), 3, &text);
    }
    if builder.lines.is_empty() {
        builder.line("no command is running or waiting");
    }
    builder.build("Jobs: /open NUMBER shows one, /cancel NUMBER cancels it")
}

pub(crate) fn context(app: &App) -> TextPage {
    let mut builder = PageBuilder::new(&app.theme);
    for (key, context) in &app.view.context {
        let by = app.view.sender_name(&context.by);
        let size = narrate::byte_size(context.bytes);
        let kind = narrate::label(context.content_type.as_str());
        builder.row(key, 24, &format!("{kind}, {size}, by {by}"));
    }
    for (key, secret) in &app.view.secrets {
        let whom = narrator(&app.view).name_list(secret.scope.iter());
        builder.row(key, 24, &format!("a secret, shared with {whom}"));
    }
    if builder.lines.is_empty() {
        builder.line("nothing is shared");
    }
    builder.build("Context")
}

fn finished_command_line(finished_command: &CommandHistoryEntry, view: &View) -> String {
    let how = match (finished_command.exit_code, finished_command.outcome) {
        (Some(code), _) => format!("exit {code}"),
        (None, outcome) => narrate::label(outcome.as_str()),
    };
    let by = match (
        &finished_command.allowed_by,
        finished_command.approvers.as_slice(),
    ) {
        (Some(rule), _) => format!(", allowed by {}", narrator(view).rule_text(Some(rule))),
        (None, []) => String::new(),
        (None, approvers) => {
            let names = narrator(view).name_list(approvers.iter());
            format!(", approved by {names}")
        }
    };
    let edited = edit_note(finished_command, view);
    let command = shorten_command(&finished_command.shown);
    format!("{command}   {how}{by}{edited}")
}

/// Who edited a command and what was proposed; empty if nobody edited it.
fn edit_note(finished_command: &CommandHistoryEntry, view: &View) -> String {
    let Some(proposed) = &finished_command.proposed else {
        return String::new();
    };
    let by = finished_command.edited_by.as_ref();
    let by = by.map(|by| format!(" by {}", view.display_name(by)));
    let was = match &**proposed {
        "" => String::new(),
        proposed => format!("; proposed as: {}", shorten_command(proposed)),
    };
    format!(", edited{}{was}", by.unwrap_or_default())
}

/// A command shortened for a list.
fn shorten_command(command: &str) -> String {
    clip(&one_line(command), MAX_LISTED_COLUMNS)
}

pub(crate) fn history(app: &App, needle: &str) -> TextPage {
    let mut builder = PageBuilder::new(&app.theme);
    let needle_lower = needle.to_lowercase();
    let matches = |finished_command: &CommandHistoryEntry| {
        let proposed = finished_command.proposed.as_deref().unwrap_or_default();
        let mut texts = [finished_command.shown.as_str(), proposed].into_iter();
        texts.any(|text| text.to_lowercase().contains(&needle_lower))
    };
    for (index, finished_command) in app.view.history.iter().rev().enumerate() {
        if matches(finished_command) {
            let at = finished_command
                .at
                .map(|at| app.config.time_zone.time_of_day(at))
                .unwrap_or_default();
            let category = finished_command
                .category
                .map(|it| it.label(finished_command.sensitive_read))
                .unwrap_or_default();
            let text = format!(
                "{at} {:<6} {category:<11} {}",
                finished_command.proposal.short(),
                finished_command_line(finished_command, &app.view)
            );
            builder.row(&(index + 1).to_string(), 4, &text);
        }
    }
    if builder.lines.is_empty() && !needle.is_empty() {
        builder.line(&format!("no finished command matches: {needle}"));
    } else if builder.lines.is_empty() {
        builder.line("no command has finished yet");
    }
    builder.build("History, newest first: /output NUMBER shows the output")
}

pub(crate) fn audit(app: &App) -> TextPage {
    let mut builder = PageBuilder::new(&app.theme);
    let session = app.view.session.as_ref().map(ToString::to_string);
    let session = session.unwrap_or_default();
    builder.line(&format!(
        "The log of {session} has {} entries, each bound to the one before by its hash.",
        app.view.head
    ));
    builder.line("Verify it on the server's machine: pvp audit verify --data DIR");
    builder.heading("Decisions, newest first");
    for resolved in app.view.resolved.iter().rev() {
        let at = app.config.time_zone.time_of_day(resolved.resolution.at);
        let how = narrator(&app.view).resolution_text(&resolved.resolution);
        builder.row(
            &at,
            8,
            &format!("{how} — {}", shorten_command(&resolved.shown)),
        );
    }
    let blocked = app
        .view
        .history
        .iter()
        .filter(|finished_command| finished_command.outcome == ProposalState::Blocked);
    let blocked = narrate::pluralize(blocked.count() as u64, "command");
    builder.line(&format!("{blocked} blocked by policy"));
    builder.build("Audit")
}

pub(crate) fn invitation(app: &App, made: &MadeInvitation) -> TextPage {
    let invitation = &made.invitation;
    let mut builder = PageBuilder::new(&app.theme);
    let roles: Vec<_> = invitation.roles.iter().copied().collect();
    let expires = match invitation.expires {
        // What was just made for a day expires in a day, not in 23 hours.
        Some(at) => format!(
            "in {}",
            narrate::duration(at.millis_since(app.now) + 30_000)
        ),
        None => "never".to_owned(),
    };
    builder.line(&invitation.link);
    builder.lines.push(Line::default());
    builder.row("for", 7, invitation.participant.as_str());
    builder.row("role", 7, &narrate::role_list(&roles));
    builder.row("expires", 7, &expires);
    builder
        .line("Anyone with this link can act as that person. It is shown only once; y copies it.");
    if let Some(page_link) = &made.page_link {
        builder.lines.push(Line::default());
        builder.line(
            "In a browser, which keeps what it opened, this one; it works once, within an hour:",
        );
        builder.line(page_link);
        add_qr_code(&mut builder, app, page_link);
    }
    builder
        .build("An invitation")
        .with_copy_text("the link", &invitation.link)
}

/// Adds a link as a QR code, black on white, where there is room and there are colours.
fn add_qr_code(builder: &mut PageBuilder<'_>, app: &App, link: &str) {
    let Some(code) = qr_code::draw(link, QrBackground::Light) else {
        return;
    };
    let columns = code.first().map_or(0, |line| line.chars().count());
    if app.theme.palette == Palette::None || columns + 2 > usize::from(app.size.width) {
        return builder.line("`pvp invite --qr` prints a link with its QR code.");
    }
    builder.lines.push(Line::default());
    builder.line(&format!(
        "To scan it, make the window at least {} rows high and scroll down:",
        code.len() + 8
    ));
    let black_on_white = Style::new().fg(Color::Black).bg(Color::White);
    let code = code.into_iter();
    let code = code.map(|line| Line::styled(line, black_on_white));
    builder.lines.extend(code);
}

/// Explains the assessment of a command, part by part.
pub(crate) fn explanation(card: &GateCard, view: &View, theme: &Theme) -> TextPage {
    let mut builder = PageBuilder::new(theme);
    match &card.requested.call {
        Some(call) => {
            builder.heading("The call");
            builder.lines.extend(call_rows::page_lines(call, theme));
        }
        None => {
            builder.heading("The command");
            for line in sanitize(&card.requested.shown).lines() {
                builder.line(line);
            }
        }
    }
    let call = card.requested.call.as_ref().map(|_| PageCall {
        gate: card.gate.clone(),
        digest: card.digest,
        line_count: builder.lines.len(),
    });
    if let Some(assessment) = &card.requested.assessment {
        builder.heading("The verdict");
        builder.row("category", 9, assessment.category_label());
        builder.row("risk", 9, &narrate::label(assessment.risk.as_str()));
        builder.row("rule", 9, &assessment.rule);
        builder.row("reason", 9, &assessment.reason);
        builder.row("sandbox", 9, &narrate::label(assessment.profile.as_str()));
        builder.row("policy", 9, &assessment.policy);
        for note in &assessment.notes {
            builder.row("note", 9, note);
        }
        if !assessment.parts.is_empty() {
            builder.heading("Its parts");
        }
        for part in &assessment.parts {
            builder.row(part.category_label(), 11, &part.text);
            builder.row("", 11, &format!("{} [{}]", part.reason, part.rule));
        }
    }
    for file in &card.requested.files {
        builder.heading(&narrate::bound_file(file));
        let contents = &card.requested.file_contents;
        match contents.iter().find(|content| content.path == file.path) {
            Some(content) => {
                for line in sanitize(&escape_invisible(&content.text)).lines() {
                    builder.line(line);
                }
            }
            None if file.sha256.is_none() => {
                builder.line("The command does not start if this file exists by then.")
            }
            None => builder.line("The proposal does not include its content."),
        }
    }
    builder.heading("Who decides");
    builder.line(&card.quorum_words);
    builder.line(&narrator(view).vote_tally(card));
    let deadline = card.deadline.map(|deadline| format!("{deadline}, "));
    let deadline = format!("{}{}", deadline.unwrap_or_default(), card.at_deadline);
    builder.row("deadline", 9, &deadline);
    builder.row("digest", 9, &card.digest.to_string());
    add_sent_call(&mut builder, &card.requested);
    let mut page = builder.build("Assessment");
    page.call = call;
    page
}

/// The bytes that were proposed: whatever the page makes of them, this is all of them.
fn add_sent_call(builder: &mut PageBuilder<'_>, requested: &RequestedAction) {
    if requested.call.is_some() {
        builder.heading("The call as it was sent");
        let lines = call_rows::sent_lines(requested, builder.theme);
        builder.lines.extend(lines);
    }
}

/// A tool call that has been decided.
pub(crate) fn decided_call(proposal: &ProposalView, theme: &Theme) -> Option<TextPage> {
    let call = proposal.requested.call.as_ref()?;
    let mut builder = PageBuilder::new(theme);
    builder.lines.extend(call_rows::page_lines(call, theme));
    if proposal.requested.cut_bytes > 0 {
        let id = proposal.id.short();
        builder.line(&format!("`pvp show {id}` prints all of it"));
    }
    add_sent_call(&mut builder, &proposal.requested);
    Some(builder.build("The call"))
}
