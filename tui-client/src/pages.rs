//! The pages that slash commands and keys open.

use pvp_client::view::{CommandHistoryEntry, GateCard, ProposalState, View};
use pvp_protocol::api::Invitation;
use pvp_protocol::payload::ExecutorInfo;
use ratatui::text::{Line, Span};

use crate::app::{App, COMMANDS};
use crate::keys::{Act, Scope, TABLE};
use crate::page::Page;
use crate::text::{clip, one_line, safe};
use crate::theme::Theme;
use crate::words::{self, word};

/// Columns of a command in a list.
const LISTED: usize = 200;

/// Lines of a page.
struct Sheet<'a> {
    theme: &'a Theme,
    lines: Vec<Line<'static>>,
}

impl<'a> Sheet<'a> {
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

    fn page(self, title: &str) -> Page {
        Page::new(title, self.lines)
    }
}

pub(crate) fn help(app: &App) -> Page {
    let mut sheet = Sheet::new(&app.theme);
    sheet.heading("What you type");
    for (what, does) in [
        (
            "text",
            "asks the agent; @name before it asks one of several",
        ),
        (
            "!command",
            "runs a command of your own on the agent's machine, in the login shell there",
        ),
        (
            "",
            "its result waits as a chip and goes with your next message",
        ),
        (
            "!!command",
            "the same, and the agent gets the result at once",
        ),
        ("/command", "one of those below"),
    ] {
        sheet.row(what, 10, does);
    }
    sheet.line("Reads and writes of your own run at once; a destructive one waits at a gate, a blocked one never runs.");
    sheet.line("Everyone sees them, and the record says that you typed them.");
    sheet.heading("Deciding");
    let keymap = &app.config.keymap;
    let card = keymap.hint(Scope::Anywhere, Act::FocusCard);
    let keys = [
        (Act::Approve, "approve"),
        (Act::Reject, "reject"),
        (Act::Edit, "edit"),
        (Act::AllowPrefix, "allow a prefix"),
        (Act::ApproveAll, "approve all after a list"),
        (Act::Explain, "explain"),
    ];
    let keys = keys.map(|(act, word)| format!("{} {word}", keymap.hint(Scope::Card, act)));
    sheet.line(&format!(
        "{card} gives the card the focus; only then its keys act: {}. What you vote on is what you see.",
        keys.join(", ")
    ));
    sheet.heading("Slash commands");
    for command in COMMANDS {
        let usage = format!("/{} {}", command.name, command.args);
        sheet.row(usage.trim_end(), 36, command.help);
    }
    sheet.heading("Keys");
    let all = keymap.hint(Scope::Anywhere, Act::Keys);
    sheet.line(&format!("{all} lists every key."));
    sheet.page("Help")
}

pub(crate) fn keys(app: &App) -> Page {
    let mut sheet = Sheet::new(&app.theme);
    let mut last = None;
    for binding in TABLE {
        if last != Some(binding.scope) {
            sheet.heading(&format!("In: {}", binding.scope.name()));
            last = Some(binding.scope);
        }
        let keys = app.config.keymap.keys_of(binding.scope, binding.act);
        let name = format!("{}.{}", binding.scope.name(), binding.name);
        let help = format!("{}  · {name}", binding.help);
        sheet.row(&keys.join(" "), 22, &help);
    }
    sheet.page("Keys")
}

pub(crate) fn people(app: &App) -> Page {
    let mut sheet = Sheet::new(&app.theme);
    for person in app.view.people.values() {
        let kind = word(&person.kind);
        let presence = if person.left {
            "left".to_owned()
        } else {
            word(&person.presence)
        };
        let me = if app.view.is_me(&person.id) {
            " (you)"
        } else {
            ""
        };
        let roles = words::roles(&person.roles);
        let text = format!("{} · {kind} · {roles} · {presence}{me}", person.name);
        sheet.row(
            &format!("{} {}", words::presence(person), person.id),
            28,
            &text,
        );
    }
    sheet.page("People")
}

pub(crate) fn tools(app: &App) -> Page {
    let mut sheet = Sheet::new(&app.theme);
    for agent in app.view.agents() {
        sheet.heading(&format!("{} ({})", agent.name, agent.id));
        match &agent.executor {
            None => sheet.line("runs no commands"),
            Some(ability) => ability_lines(&mut sheet, ability),
        }
    }
    if sheet.lines.is_empty() {
        sheet.line("no agent is here");
    }
    sheet.heading("How commands are judged");
    sheet.line("read: runs at once, held to reading; write and destructive: wait at a gate; blocked: never.");
    sheet.page("Tools")
}

fn ability_lines(sheet: &mut Sheet<'_>, ability: &ExecutorInfo) {
    let profiles: Vec<_> = ability.profiles.iter().map(word).collect();
    let held = match profiles.as_slice() {
        [] => "no sandbox here, so reads are asked for".to_owned(),
        profiles => profiles.join(", "),
    };
    sheet.row("sandbox", 10, &held);
    let place = ability.working_directory.as_deref().unwrap_or("not told");
    sheet.row("works in", 10, place);
    if !ability.runner.is_empty() {
        sheet.row("behind", 10, &ability.runner.join(" "));
    }
    let own = if ability.shell_exec {
        "yes, with !command"
    } else {
        "no"
    };
    sheet.row("your own", 10, own);
}

pub(crate) fn rules(app: &App) -> Page {
    let mut sheet = Sheet::new(&app.theme);
    for (index, rule) in app.view.active_rules(app.now).enumerate() {
        let left = words::duration(rule.expires_at.millis_since(app.now));
        let by = app.view.display_name(&rule.by);
        let text = format!("{} …   for another {left}, by {by}", rule.prefix.join(" "));
        sheet.row(&(index + 1).to_string(), 3, &text);
    }
    if sheet.lines.is_empty() {
        sheet.line("nothing is allowed beforehand; P on a card, or /allow, does that");
    }
    sheet.page("Rules: /revoke NUMBER takes one back")
}

pub(crate) fn jobs(app: &App) -> Page {
    let mut sheet = Sheet::new(&app.theme);
    for (index, job) in app.jobs().iter().enumerate() {
        let state = words::state(job, app.now);
        let text = format!("{}   {state}", listed(&job.requested.shown));
        sheet.row(&(index + 1).to_string(), 3, &text);
    }
    if sheet.lines.is_empty() {
        sheet.line("nothing runs or waits");
    }
    sheet.page("Jobs: /open NUMBER shows one, /cancel NUMBER stops it")
}

pub(crate) fn context(app: &App) -> Page {
    let mut sheet = Sheet::new(&app.theme);
    for (key, context) in &app.view.context {
        let by = app.view.sender_name(&context.by);
        let size = words::size(context.bytes);
        let kind = word(&context.content_type);
        sheet.row(key, 24, &format!("{kind}, {size}, by {by}"));
    }
    for (key, secret) in &app.view.secrets {
        let whom = words::names(&app.view, secret.scope.iter());
        sheet.row(key, 24, &format!("a secret, shared with {whom}"));
    }
    if sheet.lines.is_empty() {
        sheet.line("nothing is shared");
    }
    sheet.page("Context")
}

fn past_line(past: &CommandHistoryEntry, view: &View) -> String {
    let how = match (past.exit_code, past.outcome) {
        (Some(code), _) => format!("exit {code}"),
        (None, outcome) => word(&outcome),
    };
    let by = match past.approvers.as_slice() {
        [] => String::new(),
        approvers => format!(", approved by {}", words::names(view, approvers.iter())),
    };
    format!("{}   {how}{by}", listed(&past.shown))
}

/// A command as one of a list: as much of it as tells it from the others.
fn listed(command: &str) -> String {
    clip(&one_line(command), LISTED)
}

pub(crate) fn history(app: &App, needle: &str) -> Page {
    let mut sheet = Sheet::new(&app.theme);
    let fits =
        |past: &CommandHistoryEntry| past.shown.to_lowercase().contains(&needle.to_lowercase());
    for (index, past) in app.view.history.iter().rev().enumerate() {
        if fits(past) {
            let at = past
                .at
                .map(|at| app.config.clock.time(at))
                .unwrap_or_default();
            let category = past.category.map(|it| it.as_str()).unwrap_or_default();
            let text = format!("{at} {category:<11} {}", past_line(past, &app.view));
            sheet.row(&(index + 1).to_string(), 4, &text);
        }
    }
    if sheet.lines.is_empty() && !needle.is_empty() {
        sheet.line(&format!("no command that is over has: {needle}"));
    } else if sheet.lines.is_empty() {
        sheet.line("no command is over yet");
    }
    sheet.page("History, newest first: /output NUMBER reads one")
}

pub(crate) fn audit(app: &App) -> Page {
    let mut sheet = Sheet::new(&app.theme);
    let session = app.view.session.as_ref().map(ToString::to_string);
    let session = session.unwrap_or_default();
    sheet.line(&format!(
        "{} entries are in the log of {session}, each bound to the one before.",
        app.view.head
    ));
    sheet.line("Prove it where the server runs, with: pvp audit verify --data DIR");
    sheet.heading("Decisions, newest first");
    for resolved in app.view.resolved.iter().rev() {
        let at = app.config.clock.time(resolved.resolution.at);
        let how = words::resolution(&resolved.resolution, &app.view);
        sheet.row(&at, 8, &format!("{how} — {}", listed(&resolved.shown)));
    }
    let blocked = app
        .view
        .history
        .iter()
        .filter(|past| past.outcome == ProposalState::Blocked);
    let blocked = words::count(blocked.count() as u64, "command");
    sheet.line(&format!("{blocked} blocked without asking anyone"));
    sheet.page("Audit")
}

pub(crate) fn invitation(invitation: &Invitation) -> Page {
    let roles: Vec<_> = invitation.roles.iter().copied().collect();
    let lines = vec![
        Line::from(one_line(&invitation.link)),
        Line::default(),
        Line::from(format!(
            "for {} as {}",
            invitation.participant,
            words::roles(&roles)
        )),
        Line::from("Whoever has this link is that person. It is shown once; y copies it."),
    ];
    Page::new("An invitation", lines).about("the link", &invitation.link)
}

/// Why a command was judged so, part by part.
pub(crate) fn explain(card: &GateCard, view: &View, theme: &Theme) -> Page {
    let mut sheet = Sheet::new(theme);
    sheet.heading("The command");
    for line in safe(&card.requested.shown).lines() {
        sheet.line(line);
    }
    if let Some(assessment) = &card.requested.assessment {
        sheet.heading("The verdict");
        sheet.row("category", 9, assessment.category.as_str());
        sheet.row("risk", 9, &word(&assessment.risk));
        sheet.row("rule", 9, &assessment.rule);
        sheet.row("reason", 9, &assessment.reason);
        sheet.row("sandbox", 9, &word(&assessment.profile));
        sheet.row("policy", 9, &assessment.policy);
        for note in &assessment.notes {
            sheet.row("note", 9, note);
        }
        if !assessment.parts.is_empty() {
            sheet.heading("Its parts");
        }
        for part in &assessment.parts {
            sheet.row(part.category.as_str(), 11, &part.text);
            sheet.row("", 11, &format!("{} [{}]", part.reason, part.rule));
        }
    }
    sheet.heading("Who decides");
    sheet.line(&card.quorum_words);
    sheet.line(&words::tally(card, view));
    sheet.line(&card.at_deadline);
    sheet.row("digest", 9, &card.digest.to_string());
    sheet.page("Why it was judged so")
}
