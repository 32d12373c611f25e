//! Handles the dialogs: reject, edit, allow, interrupt and search.

use pvp_protocol::payload::{GateAmend, GateReject, PolicyAllow};
use pvp_protocol::{ExtraFields, MessageId};

use super::{App, NoticeLevel, PendingRequest};
use crate::dialog::{Dialog, GateVersion};
use crate::keys::KeyAction;

impl App {
    #[expect(clippy::wildcard_enum_match_arm, reason = "handles only its own keys")]
    pub(super) fn on_dialog_action(&mut self, action: KeyAction) {
        let Some(dialog) = &mut self.dialog else {
            return;
        };
        match action {
            KeyAction::Cancel => self.dialog = None,
            KeyAction::Toggle => dialog.cycle_urgency(),
            KeyAction::NewLine if dialog.is_multiline() => dialog.editor_mut().insert("\n"),
            KeyAction::Confirm => self.confirm_dialog(),
            action => super::composer::apply_edit(dialog.editor_mut(), action),
        }
    }

    fn confirm_dialog(&mut self) {
        let Some(dialog) = self.dialog.take() else {
            return;
        };
        let reopened = dialog.clone();
        if let Err(problem) = self.submit_dialog(dialog) {
            self.dialog = Some(reopened);
            self.show_notice(NoticeLevel::Error, problem);
        }
    }

    /// Performs what the dialog is for, or says what is missing.
    fn submit_dialog(&mut self, dialog: Dialog) -> Result<(), String> {
        match dialog {
            Dialog::Reject {
                gate_version,
                reason,
            } => self.send_rejection(&gate_version, reason.text().trim()),
            Dialog::Edit {
                gate_version,
                command: line,
                ..
            } => self.send_amendment(&gate_version, line.text()),
            Dialog::Allow { prefix: words, .. } => self.send_allow_rule(words.text()),
            Dialog::AllowReading { directories } => self.send_read_roots(directories.text()),
            Dialog::Interrupt { urgency, message } => {
                self.send_interrupt(None, urgency, message.text().trim());
                Ok(())
            }
            Dialog::Search { needle } => {
                self.start_search(needle.text());
                Ok(())
            }
        }
    }

    fn ensure_gate_open(&self, gate: &MessageId) -> Result<(), String> {
        match self.view.card(gate) {
            Some(_) => Ok(()),
            None => Err("this one was decided in the meantime; esc closes this".to_owned()),
        }
    }

    pub(crate) fn send_rejection(
        &mut self,
        gate_version: &GateVersion,
        reason: &str,
    ) -> Result<(), String> {
        if reason.is_empty() {
            return Err("give a reason; the agent reads it".to_owned());
        }
        self.ensure_gate_open(&gate_version.gate)?;
        let Some(rejector) = self.my_id() else {
            return Ok(());
        };
        let gate = gate_version.gate.clone();
        self.card_state
            .pending_votes
            .insert(gate.clone(), "sending your rejection");
        let request = PendingRequest::Vote {
            gate: gate.clone(),
            success_notice: "rejected",
        };
        let message = GateReject {
            gate,
            rejector,
            reason: reason.to_owned(),
            digest: Some(gate_version.digest),
            gate_request: None,
            extra: ExtraFields::new(),
        };
        self.send(request, message);
        Ok(())
    }

    pub(crate) fn send_amendment(
        &mut self,
        gate_version: &GateVersion,
        line: &str,
    ) -> Result<(), String> {
        if line.trim().is_empty() {
            return Err("a command cannot be empty; reject it if it should not run".to_owned());
        }
        self.ensure_gate_open(&gate_version.gate)?;
        let card = self.view.card(&gate_version.gate);
        let Some(arguments) = card.and_then(|card| card.requested.amend_arguments(line)) else {
            return Err("only shell commands can be edited".to_owned());
        };
        let request = PendingRequest::WithNotice {
            success_notice: "edited; everyone votes again",
        };
        let message = GateAmend {
            gate: gate_version.gate.clone(),
            arguments,
            digest: gate_version.digest,
            reason: None,
            assessment: None,
            quorum: None,
            deadline: None,
            voters: None,
            extra: ExtraFields::new(),
        };
        self.send(request, message);
        Ok(())
    }

    /// Allows a command prefix; the text may end with a place such as `in web` or `anywhere`, and a
    /// duration such as `for 30m`.
    pub(super) fn send_allow_rule(&mut self, text: &str) -> Result<(), String> {
        let RequestedRule {
            prefix,
            directory,
            seconds,
        } = parse_allow_rule(text)?;
        let request = PendingRequest::WithNotice {
            success_notice: "allowed; /rules lists the allow rules",
        };
        let message = PolicyAllow {
            prefix,
            read_root: None,
            directory,
            expires_at: self.now.plus_seconds(seconds),
            reason: None,
            extra: ExtraFields::new(),
        };
        self.send(request, message);
        Ok(())
    }

    /// Allows reading below directories; the text may end with a duration such as `for 30m`.
    pub(super) fn send_read_roots(&mut self, text: &str) -> Result<(), String> {
        let (directories, seconds) = parse_life(text)?;
        if directories.is_empty() {
            return Err("name the directory to allow, such as /data/sets".to_owned());
        }
        if let Some(relative) = directories.iter().find(|it| !it.starts_with('/')) {
            return Err(format!("`{relative}` is not an absolute path"));
        }
        for directory in directories {
            let request = PendingRequest::WithNotice {
                success_notice: "reading there is allowed",
            };
            let message = PolicyAllow {
                prefix: Vec::new(),
                read_root: Some(directory.to_owned()),
                directory: None,
                expires_at: self.now.plus_seconds(seconds),
                reason: None,
                extra: ExtraFields::new(),
            };
            self.send(request, message);
        }
        Ok(())
    }
}

/// Seconds that a prefix is allowed for if the text has no duration.
const DEFAULT_ALLOW_SECONDS: u64 = 3600;

/// What a person has typed to allow commands.
#[derive(Debug, PartialEq)]
struct RequestedRule {
    prefix: Vec<String>,
    /// `None` for the agent's own directory, `*` for anywhere.
    directory: Option<String>,
    seconds: u64,
}

/// Parses words that may end with a duration; returns the others, and the seconds.
fn parse_life(text: &str) -> Result<(Vec<&str>, u64), String> {
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let mut seconds = DEFAULT_ALLOW_SECONDS;
    if let [.., "for", time] = words.as_slice() {
        seconds = parse_duration_seconds(time)
            .ok_or_else(|| format!("`{time}` is not a duration; use 30m, 2h or 1d"))?;
        words.truncate(words.len() - 2);
    }
    Ok((words, seconds))
}

/// Parses the words of a prefix, the place and the number of seconds it is allowed for.
fn parse_allow_rule(text: &str) -> Result<RequestedRule, String> {
    let (mut words, seconds) = parse_life(text)?;
    let mut directory = None;
    if let [.., "in", place] = words.as_slice() {
        directory = Some((*place).to_owned());
        words.truncate(words.len() - 2);
    } else if let [.., "anywhere"] = words.as_slice() {
        directory = Some("*".to_owned());
        words.pop();
    }
    if words.is_empty() {
        return Err("a rule needs the words that commands begin with".to_owned());
    }
    if let Some(word) = words
        .iter()
        .find(|word| word.contains(is_shell_metacharacter))
    {
        return Err(format!(
            "`{word}` has characters that a shell interprets; use plain words"
        ));
    }
    Ok(RequestedRule {
        prefix: words.into_iter().map(str::to_owned).collect(),
        directory,
        seconds,
    })
}

fn is_shell_metacharacter(c: char) -> bool {
    ";|&$`<>(){}'\"\\*?!#~".contains(c)
}

/// Parses a duration such as `30m` into seconds, up to one year.
pub(super) fn parse_duration_seconds(text: &str) -> Option<u64> {
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
    fn an_allow_rule_is_words_an_optional_place_and_an_optional_duration() {
        let words = |text| {
            parse_allow_rule(text).map(|rule| (rule.prefix.join(" "), rule.directory, rule.seconds))
        };
        let expected = |prefix: &str, directory: Option<&str>, seconds| {
            Ok((prefix.to_owned(), directory.map(str::to_owned), seconds))
        };
        assert_eq!(
            words("npm run build"),
            expected("npm run build", None, 3600)
        );
        assert_eq!(words(" make  for 30m "), expected("make", None, 1800));
        assert_eq!(words("make in web"), expected("make", Some("web"), 3600));
        assert_eq!(
            words("make anywhere for 2h"),
            expected("make", Some("*"), 7200)
        );
        for bad in [
            "",
            "for 1h",
            "in web for 1h",
            "anywhere",
            "make for ever",
            "make; rm",
            "make for 0m",
            "make for 99999999999999999999d",
        ] {
            assert!(words(bad).is_err(), "{bad}");
        }
    }
}
