//! The session core, input by input: what it records, answers and refuses.

mod agents;
mod client_runs;
mod context;
mod deadlines;
mod gates;
mod participants;
mod published;
mod quorum;
mod random;
mod read_roots;
mod refusals;
mod rules;
mod runs;
mod shell;
mod snapshots;
mod support;
mod tokens;
mod transcripts;
mod trials;
mod votes;
