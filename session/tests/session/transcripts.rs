//! Replays transcripts that were written by hand or printed by a failing random run.

use crate::support::simulation::SessionSimulation;
use crate::support::simulation_step::SimulationStep;

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the stories are files; the session under test sees none"
)]
fn every_transcript_keeps_every_invariant() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");
    let mut transcripts: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    transcripts.sort();
    assert!(transcripts.len() >= 2, "there are stories in {folder}");
    for path in transcripts {
        println!("{}", path.display());
        let transcript = std::fs::read_to_string(&path).unwrap();
        let lines = transcript.lines().filter(|line| !line.is_empty());
        SessionSimulation::replay(lines.map(SimulationStep::from_json));
    }
}
