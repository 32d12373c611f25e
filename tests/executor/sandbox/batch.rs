//! Many damaging commands in one confined run, because most of what one costs is the way in.

use pvp_protocol::SandboxProfile;

use super::attacks::Attack;
use super::effects;
use super::fixture::{RunAsUser, SandboxFixture};

/// Commands of one run; enough that the way in does not count.
const BATCH_SIZE: usize = 12;

/// Runs each in a shell of its own and a temporary directory that is empty again, and says so when
/// that has ended.
const BATCH_SCRIPT: &str = r#"
shopt -s nullglob dotglob
number=0
for script; do
    "$BASH" --noprofile --norc -c "$script"
    rm -rf -- "$TMPDIR"/*
    echo; echo "ended: $((number++))"
done
"#;

/// What commands do that they must not, each named.
pub async fn failed_attacks(
    user: RunAsUser,
    attacks: &[&Attack],
    profile: SandboxProfile,
) -> Vec<String> {
    let mut failures = Vec::new();
    let mut fixture = SandboxFixture::new(user);
    // Of several, the parent is the shell that runs them, and not the reaper.
    let (mut alone, together): (Vec<&Attack>, Vec<&Attack>) =
        attacks.iter().partition(|it| it.script.contains("PPID"));
    for several in together.chunks(BATCH_SIZE) {
        let (ended, effects) = run_batch(&fixture, several, profile).await;
        if !effects.is_empty() {
            let names: Vec<_> = several.iter().map(|attack| attack.name.as_str()).collect();
            failures.push(format!("one of {names:?}: {effects:#?}"));
            fixture = SandboxFixture::new(user);
        }
        // Some end whatever they can reach, and so the others; and what had an effect is named.
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

/// Runs several; gives which have ended, and what all of them together did.
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
