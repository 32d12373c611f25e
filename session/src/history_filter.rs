//! What the history leaves out for an agent that takes whatever it is sent as new.

use std::collections::BTreeSet;

use pvp_protocol::ParticipantId;

use crate::state::Session;

/// Which entries of the past an agent of the published protocol is not sent again when it joins: it
/// cannot say how far it had read, and would act on them a second time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryFilter {
    /// The oldest prompt that it has not begun to answer.
    oldest_prompt: Option<u64>,
    /// The prompts that it has begun to answer.
    taken_prompts: BTreeSet<u64>,
    /// The grants that it has not begun to report on, and the interrupts that it has not acknowledged.
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
        // What has begun to report was begun, and must not be begun again.
        let own = running.filter(|(proposal, execution)| {
            let begun = execution.has_result || execution.output_bytes() > 0;
            proposal.executor == *participant && !begun
        });
        let grants = own.filter_map(|(proposal, _)| proposal.seqs.granted);
        let interrupts = self.interrupts.values();
        let awaited = interrupts.filter(|open| open.awaited.contains(participant));
        let own_prompts = self.prompts.iter();
        let mut waiting = own_prompts.filter(|(_, it)| it.target == *participant && !it.taken);
        Some(HistoryFilter {
            taken_prompts: taken.map(|(seq, _)| *seq).collect(),
            oldest_prompt: waiting.next().map(|(seq, _)| *seq),
            open: grants.chain(awaited.map(|open| open.raised_seq)).collect(),
        })
    }
}

impl HistoryFilter {
    /// The oldest entry that the agent must be sent, if there is one.
    pub fn oldest_open(&self) -> Option<u64> {
        let oldest = self.open.first().copied();
        [oldest, self.oldest_prompt].into_iter().flatten().min()
    }

    /// Whether an entry of this type is sent.
    pub fn includes(&self, seq: u64, kind: &str) -> bool {
        match kind {
            "prompt.submit" => !self.taken_prompts.contains(&seq),
            "tool.execute" | "interrupt.raise" => self.open.contains(&seq),
            _ => true,
        }
    }
}
