//! A run under way, or about to be: what it is told by people while it runs.

use pvp_protocol::payload::ToolInput;
use pvp_protocol::{ParticipantId, RunMode, Sender};

use crate::reaper::Size;
use crate::run::{Asked, Keyboard, Stopper, stopping};

/// Keys that wait for an interactive command to begin.
const EARLY_KEYS: usize = 64;

pub(super) struct Active {
    stopper: Stopper,
    /// What it was asked for so far.
    wanted: Wanted,
    mode: RunMode,
    /// Who may type.
    driver: Option<ParticipantId>,
    keys: Keys,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    Run,
    End,
    Abort,
}

enum Keys {
    /// What was typed before the command began.
    Early(Vec<ToolInput>),
    Ready(Option<Keyboard>),
}

impl Active {
    pub(super) fn new(mode: RunMode, driver: Option<ParticipantId>) -> (Self, Asked) {
        let (stopper, asked) = stopping();
        let active = Self {
            stopper,
            wanted: Wanted::Run,
            mode,
            driver,
            keys: Keys::Early(Vec::new()),
        };
        (active, asked)
    }

    pub(super) fn mode(&self) -> RunMode {
        self.mode
    }

    /// Asks it to end. The first reason counts: an interrupt is followed by a cancel for each run,
    /// which neither knows better nor takes an emergency back.
    pub(super) fn stop(&mut self, why: &str) {
        if self.wanted < Wanted::End {
            self.wanted = Wanted::End;
            self.stopper.stop(why);
        }
    }

    /// Ends it without asking.
    pub(super) fn kill(&mut self, why: &str) {
        if self.wanted < Wanted::Abort {
            self.wanted = Wanted::Abort;
            self.stopper.kill(why);
        }
    }

    pub(super) fn begun(&mut self, keyboard: Option<Keyboard>) {
        if let Keys::Early(early) = std::mem::replace(&mut self.keys, Keys::Ready(keyboard)) {
            for input in &early {
                self.press(input);
            }
        }
    }

    /// Keys and sizes count only from the one whom the grant names; gives whether they do. The
    /// server lets nobody else type either.
    pub(super) fn typed(&mut self, sender: &Sender, input: &ToolInput) -> bool {
        let at_the_keys = match sender {
            Sender::Participant(by) => self.driver.as_ref() == Some(by),
            Sender::System => false,
        };
        if at_the_keys {
            self.press(input);
        }
        at_the_keys
    }

    fn press(&mut self, input: &ToolInput) {
        match &mut self.keys {
            Keys::Early(early) if early.len() < EARLY_KEYS => early.push(input.clone()),
            Keys::Early(_) => tracing::warn!("too many keys before the command began"),
            Keys::Ready(None) => {}
            Keys::Ready(Some(keyboard)) => {
                let size = input.resize.map(|size| Size {
                    columns: size.columns,
                    rows: size.rows,
                });
                let resized = size.map_or(Ok(()), |size| keyboard.resize(size));
                let keys = input.data.as_deref().unwrap_or_default();
                if let Err(error) = resized.and_then(|()| keyboard.press(keys.as_bytes())) {
                    tracing::warn!(%error, "keys were not taken");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_the_one_whom_the_grant_names_is_heard() {
        let person = |name: &str| ParticipantId::parse(name).unwrap();
        let keys = json!({ "tool_proposal": "p1", "data": "rm -rf /\r" });
        let keys: ToolInput = serde_json::from_value(keys).unwrap();
        let (mut driven, _asked) = Active::new(RunMode::Pty, Some(person("dee")));
        assert!(!driven.typed(&Sender::Participant(person("ann")), &keys));
        assert!(!driven.typed(&Sender::System, &keys));
        assert!(matches!(&driven.keys, Keys::Early(early) if early.is_empty()));
        assert!(driven.typed(&Sender::Participant(person("dee")), &keys));
        assert!(matches!(&driven.keys, Keys::Early(early) if *early == [keys.clone()]));
        let (mut nobodys, _asked) = Active::new(RunMode::Pty, None);
        assert!(!nobodys.typed(&Sender::Participant(person("dee")), &keys));
    }
}
