//! Stories that were written down, by hand or by a random run that failed.

mod kit;

use kit::step::Step;
use kit::world::World;

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the stories are files; the session under test sees none"
)]
fn every_story_keeps_every_promise() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");
    let mut stories: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
        .collect();
    stories.sort();
    assert!(stories.len() >= 2, "there are stories in {folder}");
    for path in stories {
        println!("{}", path.display());
        let story = std::fs::read_to_string(&path).unwrap();
        let lines = story.lines().filter(|line| !line.is_empty());
        World::replay(lines.map(Step::read));
    }
}
