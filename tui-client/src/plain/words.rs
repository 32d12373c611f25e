//! The words of plain mode.

use pvp_client::view::GateCard;

use super::Reader;
use crate::app::{Current, Focus, Input};
use crate::dialog::Matter;

/// The words, and what each does.
const WORDS: &[(&str, &str)] = &[
    ("say TEXT", "asks the agent"),
    (
        "!COMMAND",
        "runs a command of your own; its result goes with what you say next",
    ),
    ("gates", "what waits for a decision"),
    ("show N", "everything about gate N"),
    ("approve N", "approves gate N as it was last printed"),
    ("reject N WHY", "rejects it; the agent reads why"),
    (
        "edit N COMMAND",
        "puts another command in its place; everyone votes again",
    ),
    (
        "help",
        "these words; slash commands work without their slash too",
    ),
];

impl Reader {
    /// Does what was typed.
    pub(super) fn said(&mut self, line: &str) -> anyhow::Result<()> {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "" => Ok(()),
            "help" | "/help" => self.help(),
            "gates" => self.list(),
            "show" => self.show(rest),
            "approve" => self.decide(rest, |reader, matter, _| {
                let standing = reader.app.view.card(&matter.gate).map(|card| card.standing);
                match standing.filter(|standing| !standing.may_vote()) {
                    Some(standing) => return Err(standing.description().to_owned()),
                    None => reader.app.vote(&matter.gate, matter.digest),
                }
                Ok(())
            }),
            "reject" => self.decide(rest, |reader, matter, why| reader.app.reject(matter, why)),
            "edit" => self.decide(rest, |reader, matter, line| reader.app.amend(matter, line)),
            "say" => {
                self.app.notice = None;
                self.app.prompt(rest);
                self.settle()
            }
            _ if word.starts_with(['!', '/']) => self.submit(line),
            _ => self.submit(&format!("/{line}")),
        }
    }

    fn help(&self) -> anyhow::Result<()> {
        for (word, does) in WORDS {
            self.say(&format!("{word}: {does}"))?;
        }
        for command in crate::app::COMMANDS {
            let usage = format!("{} {}", command.name, command.args);
            self.say(&format!("{}: {}", usage.trim_end(), command.help))?;
        }
        Ok(())
    }

    fn list(&mut self) -> anyhow::Result<()> {
        let cards = self.app.view.gates.clone();
        if cards.is_empty() {
            return self.say("nothing waits");
        }
        for card in cards {
            let number = self.number(&card);
            let text = self.gate_line(number, &card);
            self.say(&text)?;
        }
        Ok(())
    }

    fn show(&mut self, rest: &str) -> anyhow::Result<()> {
        let gate = rest
            .parse()
            .ok()
            .and_then(|number: usize| self.printed.get(&number));
        let card = gate.and_then(|(gate, _)| self.app.view.card(gate)).cloned();
        let Some(card) = card else {
            return self.say("problem: say the number of a gate; `gates` lists them");
        };
        self.whole(&card)
    }

    /// Says everything about a gate, which a vote then binds.
    fn whole(&mut self, card: &GateCard) -> anyhow::Result<()> {
        self.number(card);
        let theme = self.app.theme;
        let rows = crate::card::open(card, &self.app.view, self.app.now, &theme, 10_000);
        for row in &rows.rows {
            self.say(crate::text::plain(row).trim_end())?;
        }
        Ok(())
    }

    /// Decides a gate by its number, as it was last printed.
    fn decide(
        &mut self,
        rest: &str,
        act: impl FnOnce(&mut Self, &Matter, &str) -> Result<(), String>,
    ) -> anyhow::Result<()> {
        let (number, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let known = number
            .parse()
            .ok()
            .and_then(|number: usize| self.printed.get(&number));
        let Some((gate, digest)) = known.cloned() else {
            return self.say("problem: say the number of a gate; `gates` lists them");
        };
        let matter = Matter { gate, digest };
        self.app.notice = None;
        if let Err(problem) = act(self, &matter, rest.trim()) {
            return self.say(&format!("problem: {problem}"));
        }
        self.settle()
    }

    /// Sends a text as the composer would.
    fn submit(&mut self, text: &str) -> anyhow::Result<()> {
        self.app.notice = None;
        self.app.submit_text(text);
        self.settle()?;
        // What opens a card on the screen says all of it here.
        match (self.app.focus, self.app.current()) {
            (Focus::Card, Some(Current::Open(card))) => {
                let card = card.clone();
                self.app.focus = Focus::Composer;
                self.whole(&card)
            }
            _ => Ok(()),
        }
    }

    fn settle(&mut self) -> anyhow::Result<()> {
        let effects = self.app.update(pvp_client::now(), Input::Tick);
        self.after(effects)
    }
}
