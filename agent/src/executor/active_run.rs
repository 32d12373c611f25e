//! A run under way, or about to be: what it is told by people while it runs.

use pvp_protocol::payload::ToolInput;
use pvp_protocol::{ParticipantId, RunMode, Sender};

use crate::reaper::PtySize;
use crate::run::{PtyInput, StopReceiver, StopSender, stop_channel};

/// Keys that wait for an interactive command to begin.
const MAX_EARLY_INPUTS: usize = 64;

pub(super) struct ActiveRun {
    stop_sender: StopSender,
    /// What it was asked for so far.
    stop_level: StopLevel,
    mode: RunMode,
    /// Who may type.
    driver: Option<ParticipantId>,
    input: RunInput,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StopLevel {
    NotRequested,
    Stop,
    Kill,
}

enum RunInput {
    /// What was typed before the command began.
    Buffered(Vec<ToolInput>),
    Ready(Option<PtyInput>),
}

impl ActiveRun {
    pub(super) fn new(mode: RunMode, driver: Option<ParticipantId>) -> (Self, StopReceiver) {
        let (stop_sender, stop_receiver) = stop_channel();
        let active_run = Self {
            stop_sender,
            stop_level: StopLevel::NotRequested,
            mode,
            driver,
            input: RunInput::Buffered(Vec::new()),
        };
        (active_run, stop_receiver)
    }

    pub(super) fn mode(&self) -> RunMode {
        self.mode
    }

    /// Asks it to end. The first reason counts: an interrupt is followed by a cancel for each run,
    /// which neither knows better nor takes an emergency back.
    pub(super) fn stop(&mut self, why: &str) {
        if self.stop_level < StopLevel::Stop {
            self.stop_level = StopLevel::Stop;
            self.stop_sender.stop(why);
        }
    }

    /// Ends it without asking.
    pub(super) fn kill(&mut self, why: &str) {
        if self.stop_level < StopLevel::Kill {
            self.stop_level = StopLevel::Kill;
            self.stop_sender.kill(why);
        }
    }

    pub(super) fn on_started(&mut self, pty_input: Option<PtyInput>) {
        if let RunInput::Buffered(early) =
            std::mem::replace(&mut self.input, RunInput::Ready(pty_input))
        {
            for input in &early {
                self.write_input(input);
            }
        }
    }

    /// Keys and sizes count only from the one whom the grant names; gives whether they do. The
    /// server lets nobody else type either.
    pub(super) fn on_input(&mut self, sender: &Sender, input: &ToolInput) -> bool {
        let is_driver = match sender {
            Sender::Participant(by) => self.driver.as_ref() == Some(by),
            Sender::System => false,
        };
        if is_driver {
            self.write_input(input);
        }
        is_driver
    }

    fn write_input(&mut self, input: &ToolInput) {
        match &mut self.input {
            RunInput::Buffered(early) if early.len() < MAX_EARLY_INPUTS => {
                early.push(input.clone())
            }
            RunInput::Buffered(_) => tracing::warn!("too many keys before the command began"),
            RunInput::Ready(None) => {}
            RunInput::Ready(Some(pty_input)) => {
                let size = input.resize.map(|size| PtySize {
                    columns: size.columns,
                    rows: size.rows,
                });
                let resized = size.map_or(Ok(()), |size| pty_input.resize(size));
                let keys = input.data.as_deref().unwrap_or_default();
                if let Err(error) = resized.and_then(|()| pty_input.write(keys.as_bytes())) {
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
    fn only_the_driver_whom_the_grant_names_may_type() {
        let person = |name: &str| ParticipantId::parse(name).unwrap();
        let keys = json!({ "tool_proposal": "p1", "data": "rm -rf /\r" });
        let keys: ToolInput = serde_json::from_value(keys).unwrap();
        let (mut driven, _asked) = ActiveRun::new(RunMode::Pty, Some(person("dee")));
        assert!(!driven.on_input(&Sender::Participant(person("ann")), &keys));
        assert!(!driven.on_input(&Sender::System, &keys));
        assert!(matches!(&driven.input, RunInput::Buffered(early) if early.is_empty()));
        assert!(driven.on_input(&Sender::Participant(person("dee")), &keys));
        assert!(matches!(&driven.input, RunInput::Buffered(early) if *early == [keys.clone()]));
        let (mut nobodys, _asked) = ActiveRun::new(RunMode::Pty, None);
        assert!(!nobodys.on_input(&Sender::Participant(person("dee")), &keys));
    }
}
