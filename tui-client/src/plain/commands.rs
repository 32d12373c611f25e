//! The commands of plain mode.

use pvp_client::view::GateCard;

use super::PlainClient;
use crate::app::{AppInput, CurrentCard, Focus};
use crate::dialog::GateVersion;

/// The commands of plain mode besides the slash commands, and what each does.
const PLAIN_COMMANDS: &[(&str, &str)] = &[
    ("say TEXT", "asks the agent"),
    (
        "!COMMAND",
        "runs your own command; its result goes with your next prompt",
    ),
    (
        "gates",
        "lists the commands that are waiting for a decision",
    ),
    ("show N", "shows everything about gate N"),
    ("approve N", "approves gate N as it was last printed"),
    ("reject N WHY", "rejects gate N; the agent reads the reason"),
    (
        "edit N COMMAND",
        "replaces the command at gate N; everyone votes again",
    ),
    (
        "help",
        "lists these commands; slash commands work without the slash too",
    ),
];

impl PlainClient {
    /// Runs a typed command.
    pub(super) fn run_command(&mut self, line: &str) -> anyhow::Result<()> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "" => Ok(()),
            "help" | "/help" => self.print_help(),
            "gates" => self.list_gates(),
            "show" => self.show_gate(rest),
            "approve" => self.decide_gate(rest, |client, gate_version, _| {
                client.check_may_approve(gate_version)?;
                let GateVersion { gate, digest } = gate_version;
                client.app.send_approval(gate, *digest);
                Ok(())
            }),
            "reject" => self.decide_gate(rest, |client, gate_version, why| {
                client.app.send_rejection(gate_version, why)
            }),
            "edit" => self.decide_gate(rest, |client, gate_version, line| {
                client.app.send_amendment(gate_version, line)
            }),
            "say" => {
                self.app.notice = None;
                self.app.send_prompt(rest);
                self.perform_pending_effects()
            }
            _ if word.starts_with(['!', '/']) => self.submit_line(line),
            _ => self.submit_line(&format!("/{line}")),
        }
    }

    /// Whether a gate may be approved. The line of a gate has room for a command, and only for the
    /// headline of a tool call.
    fn check_may_approve(&self, gate_version: &GateVersion) -> Result<(), String> {
        let GateVersion { gate, digest } = gate_version;
        let Some(card) = self.app.view.card(gate) else {
            return Ok(());
        };
        if !card.standing.may_vote() {
            return Err(card.standing.description().to_owned());
        }
        if card.requested.call.is_some() && self.read_gates.get(gate) != Some(digest) {
            return Err("read all of it first, with `show`".to_owned());
        }
        Ok(())
    }

    fn print_help(&self) -> anyhow::Result<()> {
        for (word, does) in PLAIN_COMMANDS {
            self.print_line(&format!("{word}: {does}"))?;
        }
        for command in crate::app::SLASH_COMMANDS {
            let usage = format!("{} {}", command.name, command.args);
            self.print_line(&format!("{}: {}", usage.trim_end(), command.help))?;
        }
        Ok(())
    }

    fn list_gates(&mut self) -> anyhow::Result<()> {
        let cards = self.app.view.gates.clone();
        if cards.is_empty() {
            return self.print_line("no commands are waiting for a decision");
        }
        for card in cards {
            let number = self.number_gate(&card);
            let text = self.gate_line(number, &card);
            self.print_line(&text)?;
        }
        Ok(())
    }

    fn show_gate(&mut self, rest: &str) -> anyhow::Result<()> {
        let gate = rest
            .parse()
            .ok()
            .and_then(|number: usize| self.printed_gates.get(&number));
        let card = gate.and_then(|(gate, _)| self.app.view.card(gate)).cloned();
        let Some(card) = card else {
            return self.print_line("problem: give the number of a gate; `gates` lists them");
        };
        self.print_gate(&card)
    }

    /// Prints everything about a gate; a vote then binds to this.
    fn print_gate(&mut self, card: &GateCard) -> anyhow::Result<()> {
        self.number_gate(card);
        let theme = self.app.theme;
        let (view, now) = (&self.app.view, self.app.now);
        let rows = crate::gate_card::open_gate_rows(card, view, now, &theme, 10_000, None);
        for row in &rows.rows {
            self.print_line(crate::text::line_text(row).trim_end())?;
        }
        self.read_gates.insert(card.gate.clone(), card.digest);
        Ok(())
    }

    /// Acts on a gate by its number, as it was last printed.
    fn decide_gate(
        &mut self,
        rest: &str,
        action: impl FnOnce(&mut Self, &GateVersion, &str) -> Result<(), String>,
    ) -> anyhow::Result<()> {
        let (number, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let known = number
            .parse()
            .ok()
            .and_then(|number: usize| self.printed_gates.get(&number));
        let Some((gate, digest)) = known.cloned() else {
            return self.print_line("problem: give the number of a gate; `gates` lists them");
        };
        let gate_version = GateVersion { gate, digest };
        self.app.notice = None;
        if let Err(problem) = action(self, &gate_version, rest.trim()) {
            return self.print_line(&format!("problem: {problem}"));
        }
        self.perform_pending_effects()
    }

    /// Submits a text as the composer would.
    fn submit_line(&mut self, text: &str) -> anyhow::Result<()> {
        self.app.notice = None;
        self.app.submit_text(text);
        self.perform_pending_effects()?;
        // What opens a card on the full screen prints it here.
        match (self.app.focus, self.app.current_card()) {
            (Focus::Card, Some(CurrentCard::Open(card))) => {
                let card = card.clone();
                self.app.focus = Focus::Composer;
                self.print_gate(&card)
            }
            _ => Ok(()),
        }
    }

    fn perform_pending_effects(&mut self) -> anyhow::Result<()> {
        let effects = self.app.update(pvp_client::now(), AppInput::Tick);
        self.perform_effects(effects)
    }
}
