//! Builds lines from the grammar of every read rule, runs those that are assessed as reads, and
//! compares what was believed with what happened.
//!
//! `PVP_SEED` and `PVP_ROUNDS` choose other lines and more of them. With `PVP_KEEP_GOING=1` a test
//! goes on after a failure and prints every distinct one in the end, and with `PVP_PROGRAM=awk` it
//! only builds lines of that program.

mod commands;
mod every_flag;
mod failures;
mod grammar;
mod hostile;
mod lines;
mod mutations;
mod random;
mod real_runs;
mod received;
mod recorded_runs;
mod runner;
mod scripts;
mod words;
mod world;

use std::panic::catch_unwind;

use pvp_policy::Explanation;
use pvp_protocol::Category;

use self::grammar::ReadGrammar;
use self::lines::LineBuilder;
use self::random::Random;
use crate::support::{corpus_cases, env_text, explain};

/// An endless supply of random lines.
struct Lines {
    grammars: Vec<ReadGrammar>,
    /// Lines that are reads, to be changed.
    known_reads: Vec<String>,
    /// Lines that come before the random ones.
    first: std::vec::IntoIter<String>,
    next_rule: usize,
    random: Random,
}

impl Lines {
    /// Lines of the commands with these grammars.
    fn new(seed: u64, mut grammars: Vec<ReadGrammar>) -> Self {
        if let Some(program) = env_text("PVP_PROGRAM") {
            grammars.retain(|grammar| grammar.program() == program);
        }
        let corpus = corpus_cases().into_iter();
        let corpus = corpus.filter(|case| case.expected == Category::Read);
        let mut known_reads: Vec<String> = corpus.map(|case| case.line).collect();
        known_reads.extend(examples(&grammars));
        Self {
            grammars,
            known_reads,
            first: Vec::new().into_iter(),
            next_rule: 0,
            random: Random::from_environment(seed),
        }
    }

    /// The same after every example of every rule, so that no rule is left out.
    fn after_examples(mut self) -> Self {
        self.first = examples(&self.grammars).into_iter();
        self
    }

    fn next(&mut self) -> String {
        if let Some(line) = self.first.next() {
            return line;
        }
        let random = &mut self.random;
        if random.percent(30) {
            let line = random.pick_string(&self.known_reads);
            let other = random.pick_string(&self.known_reads);
            return mutations::mutate(random, &line, &other);
        }
        let mut builder = LineBuilder {
            grammars: &self.grammars,
            next: self.next_rule,
        };
        let line = builder.line(random);
        self.next_rule = builder.next;
        line
    }
}

fn examples(grammars: &[ReadGrammar]) -> Vec<String> {
    let examples = grammars.iter().map(|grammar| grammar.matches.clone());
    examples.flatten().collect()
}

/// The explanation of a line, or `None` if there is none because assessing it panicked.
fn try_explain(line: &str) -> Option<Explanation> {
    catch_unwind(|| explain(line)).ok()
}

/// The explanation of a line that is a read.
fn explain_read(line: &str) -> Option<Explanation> {
    try_explain(line).filter(|explanation| explanation.assessment.category == Category::Read)
}
