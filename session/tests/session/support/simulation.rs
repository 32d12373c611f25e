//! Simulates a session with a log that may fail, and checks the invariants of both.

use std::collections::{BTreeMap, VecDeque};

use pvp_protocol::{MessageId, SessionId, Timestamp};
use pvp_session::{Answer, Decision, DecisionContext, Entry, Session, SessionSettings, Stamped};

use super::auditor::{self, LogAuditor};
use super::simulation_step::SimulationStep;
use super::{POLICY, at, entry_format, seed};

/// The metadata and body of a stored entry.
type StoredEntry = (Vec<u8>, Vec<u8>);

/// The decision on one input, waiting to be durable.
struct PendingBatch {
    entries: Vec<Entry>,
    id: Option<MessageId>,
    answer: Answer,
}

pub struct SessionSimulation {
    /// The server's settings.
    settings: SessionSettings,
    /// The session with all decisions, durable or not.
    pub live: Session,
    /// Checks the entries of `live`.
    live_audit: LogAuditor,
    /// A second session, folded from the stored form of the same entries.
    live_replayed: Session,
    /// Batches that are not durable yet.
    pending: VecDeque<PendingBatch>,
    /// The durable entries.
    log: Vec<StoredEntry>,
    /// The session with the durable entries only.
    durable: Session,
    /// Checks the durable entries.
    durable_audit: LogAuditor,
    /// How many entries of the log have been published.
    published_entries: usize,
    /// The answer to the last message.
    last_answer: Option<Answer>,
    /// The sequence numbers that senders were given, by message.
    acknowledged: BTreeMap<MessageId, u64>,
    /// The current time.
    now: Timestamp,
    /// How many seeds have been used.
    seeds: u64,
    /// The steps so far.
    steps: Vec<SimulationStep>,
    /// Whether to print the steps on a failure.
    failure_printing: FailurePrinting,
}

/// Whether a run that violates an invariant is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePrinting {
    Off,
    On,
}

/// Prints the steps so far if a panic follows.
struct TranscriptGuard<'a>(&'a [SimulationStep], FailurePrinting);

impl Drop for TranscriptGuard<'_> {
    fn drop(&mut self) {
        if self.1 == FailurePrinting::On && std::thread::panicking() {
            println!("--- keep this as session/tests/transcripts/NAME.jsonl");
            for step in self.0 {
                println!("{}", step.to_json());
            }
            println!("---");
        }
    }
}

impl SessionSimulation {
    pub fn new(settings: SessionSettings, failure_printing: FailurePrinting) -> Self {
        let session = Session::new(SessionId::parse("world").unwrap());
        let audit = LogAuditor::new(settings.clone());
        Self {
            settings,
            live: session.clone(),
            live_audit: audit.clone(),
            live_replayed: session.clone(),
            pending: VecDeque::new(),
            log: Vec::new(),
            durable: session,
            durable_audit: audit,
            published_entries: 0,
            last_answer: None,
            acknowledged: BTreeMap::new(),
            now: at(0),
            seeds: 0,
            steps: Vec::new(),
            failure_printing,
        }
    }

    /// Runs all steps and checks every invariant after each.
    pub fn replay(steps: impl IntoIterator<Item = SimulationStep>) -> Self {
        let mut steps = steps.into_iter().peekable();
        let settings = steps
            .peek()
            .map(SimulationStep::settings)
            .unwrap_or_default();
        let mut simulation = Self::new(settings, FailurePrinting::On);
        for step in steps {
            simulation.step(step);
        }
        simulation.finish();
        simulation
    }

    /// Does one step. Returns the answer to a message, which its sender gets if the append
    /// succeeds.
    pub fn step(&mut self, step: SimulationStep) -> Option<Answer> {
        self.steps.push(step.clone());
        let steps = std::mem::take(&mut self.steps);
        let guard = TranscriptGuard(&steps, self.failure_printing);
        let answer = self.run_step(&step);
        drop(guard);
        self.steps = steps;
        answer
    }

    fn run_step(&mut self, step: &SimulationStep) -> Option<Answer> {
        let answer = match step {
            SimulationStep::Wait { ms } => {
                self.now = self.now.plus_millis(*ms);
                None
            }
            SimulationStep::Durable { batches } => {
                for _ in 0..*batches {
                    self.append();
                }
                None
            }
            SimulationStep::Lost => {
                self.crash();
                None
            }
            SimulationStep::Expect { answer } => {
                let received = self
                    .last_answer
                    .as_ref()
                    .map(entry_format::format_answer)
                    .unwrap_or_default();
                assert!(
                    received.starts_with(&format!("= {answer}")),
                    "received {received}"
                );
                None
            }
            SimulationStep::Create { .. }
            | SimulationStep::Join { .. }
            | SimulationStep::Say { .. }
            | SimulationStep::Quiet { .. }
            | SimulationStep::Back { .. }
            | SimulationStep::LeaseEnds { .. }
            | SimulationStep::Tick => Some(self.decide(step)),
        };
        self.invariant_published_is_durable();
        answer
    }

    fn decide(&mut self, step: &SimulationStep) -> Answer {
        let input = step.input(self.now).unwrap();
        // The count continues after a crash, because a seed is used only once.
        self.seeds += 1;
        let decision_context = DecisionContext {
            policy: &POLICY,
            settings: &self.settings,
        };
        let stamped = Stamped {
            at: self.now,
            seed: seed(self.seeds),
            input,
        };
        let before = self.live.clone();
        let lease = if let SimulationStep::LeaseEnds { proposal } = step {
            let id = super::message_id(proposal);
            let had_lease = self.live_audit.leased().any(|leased| *leased == id);
            Some((id, had_lease))
        } else {
            None
        };
        let decision = self.live.apply(decision_context, stamped);
        self.invariant_decision(&before, &decision);
        if let Some((id, had_lease)) = lease {
            self.invariant_lease_end(&id, had_lease, &decision);
        }
        let id = if let SimulationStep::Say { id, .. } = step {
            Some(super::message_id(id))
        } else {
            None
        };
        let answer = decision.answer.clone();
        self.last_answer = Some(answer.clone());
        self.pending.push_back(PendingBatch {
            entries: decision.entries,
            id,
            answer: decision.answer,
        });
        answer
    }

    fn invariant_decision(&mut self, before: &Session, decision: &Decision) {
        if decision.entries.is_empty() {
            assert_eq!(
                &self.live, before,
                "nothing was recorded, so nothing changed"
            );
        }
        for entry in &decision.entries {
            self.live_audit.invariant_entry(entry);
            auditor::invariant_stored_form(&mut self.live_replayed, entry);
        }
        self.live_audit.invariant_nothing_half_done();
        assert!(
            self.live.leased_proposals().eq(self.live_audit.leased()),
            "another proposal has a lease"
        );
        assert_eq!(self.live_replayed, self.live, "replay equals live");
        auditor::invariant_snapshot(&self.live);
    }

    /// With its lease a call of a client is over, whatever it waits for. Nothing else has a lease.
    fn invariant_lease_end(&self, id: &MessageId, had_lease: bool, decision: &Decision) {
        match had_lease {
            true => assert_eq!(
                self.live.proposal(id),
                None,
                "it lives on without its client"
            ),
            false => assert_eq!(decision.entries, [], "the end of a lease that nobody has"),
        }
    }

    /// Makes the oldest batch durable and then publishes it.
    fn append(&mut self) {
        let Some(batch) = self.pending.pop_front() else {
            return;
        };
        for entry in &batch.entries {
            self.log.push((entry.meta(), entry.body()));
            self.durable_audit.invariant_entry(entry);
            self.durable.replay(entry).unwrap();
        }
        self.published_entries = self.log.len();
        if let (Some(id), Answer::Accepted(Some(seq))) = (batch.id, &batch.answer) {
            self.acknowledged.insert(id, *seq);
        }
    }

    /// Drops everything that is not durable; its senders are refused.
    fn crash(&mut self) {
        self.pending.clear();
        self.live = self.replay_log();
        assert_eq!(self.live, self.durable, "the log alone gives the state");
        self.live_audit = self.durable_audit.clone();
        self.live_replayed = self.live.clone();
    }

    fn replay_log(&self) -> Session {
        let mut session = Session::new(self.live.id().clone());
        for (meta, body) in &self.log {
            let entry = Entry::decode(meta, body).unwrap();
            session.replay(&entry).unwrap();
        }
        session
    }

    /// Only durable entries are published, and acknowledged messages have their sequence number.
    fn invariant_published_is_durable(&self) {
        assert!(self.published_entries <= self.log.len());
        assert_eq!(self.durable.head() as usize, self.log.len());
        let waiting: usize = self.pending.iter().map(|batch| batch.entries.len()).sum();
        assert_eq!(self.live.head() as usize, self.log.len() + waiting);
        if self.pending.is_empty() {
            assert_eq!(self.live, self.durable);
        }
    }

    /// Checks at the end that every acknowledged message is in the log, and that the log folds to
    /// the live state.
    pub fn finish(&mut self) {
        let steps = self.steps.clone();
        let _guard = TranscriptGuard(&steps, self.failure_printing);
        while !self.pending.is_empty() {
            self.append();
        }
        assert_eq!(self.replay_log(), self.live);
        for (id, seq) in &self.acknowledged {
            let (meta, body) = &self.log[*seq as usize - 1];
            let entry = Entry::decode(meta, body).unwrap();
            assert_eq!(
                (entry.id(), entry.seq()),
                (id, *seq),
                "an acknowledged message is lost"
            );
        }
    }
}

impl SessionSimulation {
    /// The types of the entries in the log, with the outcome of those that have one.
    pub fn entry_kinds(&self) -> Vec<String> {
        use pvp_protocol::ServerMessage as M;
        use pvp_protocol::WireMessage;
        fn outcome_word(value: impl serde::Serialize) -> String {
            let value = serde_json::to_value(value).unwrap();
            format!(" {}", value.as_str().unwrap_or_default())
        }
        let entries = self
            .log
            .iter()
            .map(|(meta, body)| Entry::decode(meta, body).unwrap());
        entries
            .map(|entry| {
                let message = &entry.envelope.message;
                let how = if let M::ToolExecute(execute) = message {
                    outcome_word(execute.grant.cleared_by)
                } else if let M::GateResolve(resolve) = message {
                    outcome_word(resolve.outcome)
                } else if let M::GateTimeout(timeout) = message {
                    outcome_word(timeout.resolution)
                } else if let M::ToolResult(result) = message {
                    let word = outcome_word(result.outcome);
                    match result.attested {
                        true => format!("{word} attested"),
                        false => word,
                    }
                } else {
                    String::new()
                };
                format!("{}{how}", message.kind())
            })
            .collect()
    }
}
