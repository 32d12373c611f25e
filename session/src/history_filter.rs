//! What the history leaves out for an agent that takes whatever it is sent as new.

use std::collections::BTreeSet;

use pvp_protocol::ParticipantId;

use crate::state::Session;

/// Which entries of the past an agent of the published protocol is not sent again when it joins: it
/// cannot say how far it had read, and would act on them a second time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryFilter {
    /// The prompts that it has begun to answer.
    taken_prompts: BTreeSet<u64>,
    /// The grants that it has not reported on, and the interrupts that it has not acknowledged.
    open: BTreeSet<u64>,
}

impl Session {
    /// The filter for a participant who joins; `None` if they know what is past.
    pub fn history_filter(&self, participant: &ParticipantId) -> Option<HistoryFilter> {
        let member = self.members.get(participant)?;
        if !member.is_published_agent() {
            return None;
        }
        let prompts = self.prompts.iter();
        let taken = prompts.filter(|(_, prompt)| prompt.target == *participant && prompt.taken);
        let running = self.running();
        let own = running.filter(|(proposal, _)| proposal.executor == *participant);
        let grants = own.filter_map(|(proposal, _)| proposal.seqs.granted);
        let interrupts = self.interrupts.values();
        let awaited = interrupts.filter(|open| open.awaited.contains(participant));
        Some(HistoryFilter {
            taken_prompts: taken.map(|(seq, _)| *seq).collect(),
            open: grants.chain(awaited.map(|open| open.raised_seq)).collect(),
        })
    }
}

impl HistoryFilter {
    /// Whether an entry of this type is sent.
    pub fn includes(&self, seq: u64, kind: &str) -> bool {
        match kind {
            "prompt.submit" => !self.taken_prompts.contains(&seq),
            "tool.execute" | "interrupt.raise" => self.open.contains(&seq),
            _ => true,
        }
    }
}
