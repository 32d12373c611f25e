//! Withdraws what waits for an executor that goes elsewhere: people approve a command for the place
//! that its card shows.

use pvp_protocol::ParticipantId;
use pvp_protocol::payload::{ExecutorInfo, GateOutcome, GateResolve, ResolutionCause};

use super::DecisionBuilder;

/// What an agent reads of a proposal that was withdrawn for this.
const MOVED: &str = "what would run it has announced another directory or runner since it was \
                     proposed; propose it again there";

impl DecisionBuilder<'_> {
    /// What a participant has announced as an executor.
    pub(super) fn executor_of(&self, participant: &ParticipantId) -> Option<ExecutorInfo> {
        let member = self.session.members.get(participant)?;
        member.announce.executor.clone()
    }

    /// Withdraws what waits for an executor, if it was in another place `before`. An announcement
    /// without an executor says nothing about its place.
    pub(super) fn withdraw_where_moved(
        &mut self,
        executor: &ParticipantId,
        before: Option<&ExecutorInfo>,
    ) {
        let now = self.executor_of(executor);
        let places = before.map(place_of).zip(now.as_ref().map(place_of));
        if places.is_none_or(|(before, now)| before == now) {
            return;
        }
        let gates = self.session.open_gates().into_iter();
        let waiting: Vec<_> = gates
            .filter(|(proposal, _)| proposal.executor == *executor)
            .map(|(proposal, _)| proposal.id.clone())
            .collect();
        for proposal in waiting {
            let resolve = GateResolve {
                reason: Some(MOVED.to_owned()),
                ..self.build_resolution(
                    &proposal,
                    GateOutcome::Cancelled,
                    ResolutionCause::Cancel,
                    None,
                )
            };
            self.close_gate(resolve);
        }
    }
}

/// Where an executor runs commands, and what it puts before them.
fn place_of(executor: &ExecutorInfo) -> (Option<&str>, &[String]) {
    (executor.working_directory.as_deref(), &executor.runner)
}
