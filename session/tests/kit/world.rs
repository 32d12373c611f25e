//! Decide, append, tell: a session with a log that may fail, and the promises about both.

use std::collections::{BTreeMap, VecDeque};

use pvp_protocol::{MessageId, SessionId, Timestamp};
use pvp_session::{Answer, Entry, Outcome, Session, Settings, Stamped, Terms};

use super::audit::{self, Audit};
use super::step::Step;
use super::{POLICY, at, line, seed};

/// An entry as the store has it.
type Stored = (Vec<u8>, Vec<u8>);

/// What was decided from one input and waits for the disk.
struct Batch {
    entries: Vec<Entry>,
    id: Option<MessageId>,
    answer: Answer,
}

pub struct World {
    settings: Settings,
    pub live: Session,
    live_audit: Audit,
    live_shadow: Session,
    pending: VecDeque<Batch>,
    log: Vec<Stored>,
    durable: Session,
    durable_audit: Audit,
    /// How much of the log anyone has heard of.
    told: usize,
    /// The answer to the last message.
    heard: Option<Answer>,
    /// What senders were told about their messages.
    answers: BTreeMap<MessageId, u64>,
    now: Timestamp,
    seeds: u64,
    steps: Vec<Step>,
    telling: Telling,
}

/// Whether a story that breaks a promise is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    Quiet,
    Loud,
}

/// Prints the story so far if what follows panics.
struct Story<'a>(&'a [Step], Telling);

impl Drop for Story<'_> {
    fn drop(&mut self) {
        if self.1 == Telling::Loud && std::thread::panicking() {
            println!("--- keep this as session/tests/transcripts/NAME.jsonl");
            for step in self.0 {
                println!("{}", step.line());
            }
            println!("---");
        }
    }
}

impl World {
    pub fn new(settings: Settings, telling: Telling) -> Self {
        let session = Session::new(SessionId::parse("world").unwrap());
        let audit = Audit::new(settings.clone());
        Self {
            settings,
            live: session.clone(),
            live_audit: audit.clone(),
            live_shadow: session.clone(),
            pending: VecDeque::new(),
            log: Vec::new(),
            durable: session,
            durable_audit: audit,
            told: 0,
            heard: None,
            answers: BTreeMap::new(),
            now: at(0),
            seeds: 0,
            steps: Vec::new(),
            telling,
        }
    }

    /// Runs a whole story, every promise checked after every step.
    pub fn replay(steps: impl IntoIterator<Item = Step>) -> Self {
        let mut steps = steps.into_iter().peekable();
        let settings = steps.peek().map(Step::settings).unwrap_or_default();
        let mut world = Self::new(settings, Telling::Loud);
        for step in steps {
            world.step(step);
        }
        world.finish();
        world
    }

    /// Does one step. The answer, if something was said, is what the sender would hear if the
    /// append succeeds.
    pub fn step(&mut self, step: Step) -> Option<Answer> {
        self.steps.push(step.clone());
        let steps = std::mem::take(&mut self.steps);
        let story = Story(&steps, self.telling);
        let answer = self.take(&step);
        drop(story);
        self.steps = steps;
        answer
    }

    fn take(&mut self, step: &Step) -> Option<Answer> {
        let answer = match step {
            Step::Wait { ms } => {
                self.now = self.now.plus_millis(*ms);
                None
            }
            Step::Durable { batches } => {
                for _ in 0..*batches {
                    self.append();
                }
                None
            }
            Step::Lost => {
                self.lose();
                None
            }
            Step::Expect { answer } => {
                let heard = self.heard.as_ref().map(line::answer).unwrap_or_default();
                assert!(heard.starts_with(&format!("= {answer}")), "heard {heard}");
                None
            }
            Step::Create { .. }
            | Step::Join { .. }
            | Step::Say { .. }
            | Step::Quiet { .. }
            | Step::Back { .. }
            | Step::Tick => Some(self.decide(step)),
        };
        self.invariant_told_is_durable();
        answer
    }

    fn decide(&mut self, step: &Step) -> Answer {
        let input = step.input(self.now).unwrap();
        // Counted on through a crash: a seed is used once.
        self.seeds += 1;
        let terms = Terms {
            policy: &POLICY,
            settings: &self.settings,
        };
        let stamped = Stamped {
            at: self.now,
            seed: seed(self.seeds),
            input,
        };
        let before = self.live.clone();
        let outcome = self.live.apply(terms, stamped);
        self.invariant_decision(&before, &outcome);
        let id = if let Step::Say { id, .. } = step {
            Some(super::id(id))
        } else {
            None
        };
        let answer = outcome.answer.clone();
        self.heard = Some(answer.clone());
        self.pending.push_back(Batch {
            entries: outcome.entries,
            id,
            answer: outcome.answer,
        });
        answer
    }

    fn invariant_decision(&mut self, before: &Session, outcome: &Outcome) {
        if outcome.entries.is_empty() {
            assert_eq!(
                &self.live, before,
                "nothing was recorded, so nothing changed"
            );
        }
        for entry in &outcome.entries {
            self.live_audit.invariant_entry(entry);
            audit::invariant_stored_form(&mut self.live_shadow, entry);
        }
        self.live_audit.invariant_nothing_half_done();
        assert_eq!(self.live_shadow, self.live, "replay equals live");
    }

    /// The oldest batch reaches the disk; then, and only then, someone hears of it.
    fn append(&mut self) {
        let Some(batch) = self.pending.pop_front() else {
            return;
        };
        for entry in &batch.entries {
            self.log.push((entry.meta(), entry.body()));
            self.durable_audit.invariant_entry(entry);
            self.durable.replay(entry).unwrap();
        }
        self.told = self.log.len();
        if let (Some(id), Answer::Accepted(Some(seq))) = (batch.id, &batch.answer) {
            self.answers.insert(id, *seq);
        }
    }

    /// What was not durable is forgotten, and its senders are refused.
    fn lose(&mut self) {
        self.pending.clear();
        self.live = self.refold();
        assert_eq!(self.live, self.durable, "the log alone gives the state");
        self.live_audit = self.durable_audit.clone();
        self.live_shadow = self.live.clone();
    }

    fn refold(&self) -> Session {
        let mut session = Session::new(self.live.id().clone());
        for (meta, body) in &self.log {
            let entry = Entry::read(meta, body).unwrap();
            session.replay(&entry).unwrap();
        }
        session
    }

    /// Nothing is told that is not durable, and what was acknowledged is in the log as that seq.
    fn invariant_told_is_durable(&self) {
        assert!(self.told <= self.log.len());
        assert_eq!(self.durable.head() as usize, self.log.len());
        let waiting: usize = self.pending.iter().map(|batch| batch.entries.len()).sum();
        assert_eq!(self.live.head() as usize, self.log.len() + waiting);
        if self.pending.is_empty() {
            assert_eq!(self.live, self.durable);
        }
    }

    /// At the end everything acknowledged is found, and the log folds to what is live.
    pub fn finish(&mut self) {
        let steps = self.steps.clone();
        let _story = Story(&steps, self.telling);
        while !self.pending.is_empty() {
            self.append();
        }
        assert_eq!(self.refold(), self.live);
        for (id, seq) in &self.answers {
            let (meta, body) = &self.log[*seq as usize - 1];
            let entry = Entry::read(meta, body).unwrap();
            assert_eq!(
                (entry.id(), entry.seq()),
                (id, *seq),
                "an acknowledged message is lost"
            );
        }
    }
}

impl World {
    /// The kinds of entries in the log, with how those that decide something decided it.
    pub fn words(&self) -> Vec<String> {
        use pvp_protocol::ServerMessage as M;
        use pvp_protocol::Vocabulary;
        fn word(value: impl serde::Serialize) -> String {
            let value = serde_json::to_value(value).unwrap();
            format!(" {}", value.as_str().unwrap_or_default())
        }
        let entries = self
            .log
            .iter()
            .map(|(meta, body)| Entry::read(meta, body).unwrap());
        entries
            .map(|entry| {
                let message = &entry.envelope.message;
                let how = if let M::ToolExecute(execute) = message {
                    word(execute.grant.cleared_by)
                } else if let M::GateResolve(resolve) = message {
                    word(resolve.outcome)
                } else if let M::GateTimeout(timeout) = message {
                    word(timeout.resolution)
                } else if let M::ToolResult(result) = message {
                    word(result.outcome)
                } else {
                    String::new()
                };
                format!("{}{how}", message.kind())
            })
            .collect()
    }
}
