//! Runs many attacks in one sandbox, because setting up the sandbox takes most of the time.

use pvp_protocol::SandboxProfile;

use super::attacks::Attack;
use super::effects;
use super::fixture::{RunAsUser, SandboxFixture};

/// Attacks per run; enough that the setup does not matter.
const BATCH_SIZE: usize = 12;

/// Runs each script in its own shell, empties the temporary directory after it, and prints that it
/// has ended.
const BATCH_SCRIPT: &str = r#"
shopt -s nullglob dotglob
number=0
for script; do
    "$BASH" --noprofile --norc -c "$script"
    rm -rf -- "$TMPDIR"/*
    echo; echo "ended: $((number++))"
done
"#;

/// Runs attacks; returns those that had an effect, by name.
pub async fn failed_attacks(
    user: RunAsUser,
    attacks: &[&Attack],
    profile: SandboxProfile,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut fixture = SandboxFixture::new(user);
    // In a batch, the parent process is the shell of the batch and not the reaper.
    let (mut alone, together): (Vec<&Attack>, Vec<&Attack>) =
        attacks.iter().partition(|it| it.script.contains("PPID"));
    for several in together.chunks(BATCH_SIZE) {
        let (ended, effects) = run_batch(&fixture, several, profile).await;
        if !effects.is_empty() {
            let names: Vec<_> = several.iter().map(|attack| attack.name.as_str()).collect();
            failures.push(format!("one of {names:?}: {effects:#?}"));
            fixture = SandboxFixture::new(user);
        }
        // Some kill everything they can reach, and so the rest of the batch. Those that did not
        // finish, and all of a batch that had an effect, run alone.
        let unsure = several.iter().enumerate();
        let unsure = unsure.filter(|(number, _)| !effects.is_empty() || !ended.contains(number));
        alone.extend(unsure.map(|(_, attack)| *attack));
    }
    for attack in alone {
        let effects = effects(&fixture, attack, profile).await;
        if !effects.is_empty() {
            failures.push(format!("{}: {effects:#?}", attack.name));
            fixture = SandboxFixture::new(user);
        }
    }
    failures
}

/// Runs several attacks; returns which have ended, and the effects of all of them together.
async fn run_batch(
    fixture: &SandboxFixture,
    several: &[&Attack],
    profile: SandboxProfile,
) -> (Vec<usize>, Vec<String>) {
    let mut spawn_spec = fixture.spawn_spec(BATCH_SCRIPT, profile);
    let scripts = several.iter().map(|attack| attack.script.clone());
    spawn_spec.arguments.push("together".to_owned());
    spawn_spec.arguments.extend(scripts);
    let (effects, output) = super::run_and_diff(fixture, &spawn_spec).await;
    let ended = output.out.lines().filter_map(|line| {
        let number = line.strip_prefix("ended: ")?;
        number.parse().ok()
    });
    (ended.collect(), effects)
}
