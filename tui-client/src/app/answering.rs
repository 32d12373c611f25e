//! Answers to questions: why not, what instead, which prefix, how urgent, what to look for.

use pvp_protocol::payload::{GateAmend, GateReject, PolicyAllow};
use pvp_protocol::{ExtraFields, MessageId};

use super::{App, Errand, Tone};
use crate::dialog::{Dialog, Matter};
use crate::keys::Act;

impl App {
    #[expect(clippy::wildcard_enum_match_arm, reason = "a pane minds its own keys")]
    pub(super) fn act_dialog(&mut self, act: Act) {
        let Some(dialog) = &mut self.dialog else {
            return;
        };
        match act {
            Act::Cancel => self.dialog = None,
            Act::Toggle => dialog.toggle(),
            Act::NewLine if dialog.takes_lines() => dialog.editor_mut().insert("\n"),
            Act::Confirm => self.confirm(),
            act => super::compose::edit(dialog.editor_mut(), act),
        }
    }

    fn confirm(&mut self) {
        let Some(dialog) = self.dialog.take() else {
            return;
        };
        let kept = dialog.clone();
        if let Err(problem) = self.answer(dialog) {
            self.dialog = Some(kept);
            self.tell(Tone::Bad, problem);
        }
    }

    /// Does what a question was about; or says what is missing, and asks on.
    fn answer(&mut self, dialog: Dialog) -> Result<(), String> {
        match dialog {
            Dialog::Reject { matter, reason } => self.reject(&matter, reason.text().trim()),
            Dialog::Edit { matter, line, .. } => self.amend(&matter, line.text()),
            Dialog::Allow { words } => self.allow(words.text()),
            Dialog::Interrupt { urgency, message } => {
                self.interrupt(None, urgency, message.text().trim());
                Ok(())
            }
            Dialog::Search { needle } => {
                self.search(needle.text());
                Ok(())
            }
        }
    }

    /// Whether a gate still waits.
    fn still_open(&self, gate: &MessageId) -> Result<(), String> {
        match self.view.card(gate) {
            Some(_) => Ok(()),
            None => Err("it was decided meanwhile; esc leaves".to_owned()),
        }
    }

    pub(crate) fn reject(&mut self, matter: &Matter, reason: &str) -> Result<(), String> {
        if reason.is_empty() {
            return Err("say why not; the agent reads the reason".to_owned());
        }
        self.still_open(&matter.gate)?;
        let Some(rejector) = self.me() else {
            return Ok(());
        };
        let gate = matter.gate.clone();
        self.cards
            .under_way
            .insert(gate.clone(), "your rejection is under way");
        let errand = Errand::Vote {
            gate: gate.clone(),
            done: "you rejected it",
        };
        let message = GateReject {
            gate,
            rejector,
            reason: reason.to_owned(),
            digest: Some(matter.digest),
            extra: ExtraFields::new(),
        };
        self.send(errand, message);
        Ok(())
    }

    pub(crate) fn amend(&mut self, matter: &Matter, line: &str) -> Result<(), String> {
        if line.trim().is_empty() {
            return Err("a command cannot be empty; reject it if it should not run".to_owned());
        }
        self.still_open(&matter.gate)?;
        let card = self.view.card(&matter.gate);
        let Some(arguments) = card.and_then(|card| card.requested.amend_arguments(line)) else {
            return Err("this cannot be edited".to_owned());
        };
        let errand = Errand::Plain {
            done: "edited; everyone votes on what it says now",
        };
        let message = GateAmend {
            gate: matter.gate.clone(),
            arguments,
            digest: matter.digest,
            reason: None,
            assessment: None,
            quorum: None,
            deadline: None,
            voters: None,
            extra: ExtraFields::new(),
        };
        self.send(errand, message);
        Ok(())
    }

    /// Allows a prefix; the words may end with `for 30m`.
    pub(super) fn allow(&mut self, text: &str) -> Result<(), String> {
        let (prefix, seconds) = allowed(text)?;
        let errand = Errand::Plain {
            done: "allowed for this session",
        };
        let message = PolicyAllow {
            prefix,
            expires_at: self.now.plus_seconds(seconds),
            reason: None,
            extra: ExtraFields::new(),
        };
        self.send(errand, message);
        Ok(())
    }
}

/// Seconds that a prefix is allowed for if nothing is said.
const ALLOWED_FOR: u64 = 3600;

/// The words of a prefix, and for how many seconds.
fn allowed(text: &str) -> Result<(Vec<String>, u64), String> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let mut seconds = ALLOWED_FOR;
    if let [.., "for", time] = words.as_slice() {
        seconds = span(time).ok_or_else(|| format!("`{time}` is no time; write 30m, 2h or 1d"))?;
        words.truncate(words.len() - 2);
    }
    if words.is_empty() {
        return Err("a rule needs the words that commands begin with".to_owned());
    }
    if let Some(word) = words.iter().find(|word| word.contains(acts_in_a_shell)) {
        return Err(format!(
            "`{word}` would act in a shell; a prefix is plain words"
        ));
    }
    Ok((words.into_iter().map(str::to_owned).collect(), seconds))
}

fn acts_in_a_shell(c: char) -> bool {
    ";|&$`<>(){}'\"\\*?!#~".contains(c)
}

/// Seconds of a time such as `30m`.
pub(super) fn span(text: &str) -> Option<u64> {
    let unit = match text.chars().next_back()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    let number: u64 = text[..text.len() - 1].parse().ok()?;
    number
        .checked_mul(unit)
        .filter(|seconds| (1..=31_536_000).contains(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_words_and_perhaps_a_time() {
        let words = |text| allowed(text).map(|(words, seconds)| (words.join(" "), seconds));
        assert_eq!(
            words("npm run build"),
            Ok(("npm run build".to_owned(), 3600))
        );
        assert_eq!(words(" make  for 30m "), Ok(("make".to_owned(), 1800)));
        for bad in [
            "",
            "for 1h",
            "make for ever",
            "make; rm",
            "make for 0m",
            "make for 99999999999999999999d",
        ] {
            assert!(words(bad).is_err(), "{bad}");
        }
    }
}
