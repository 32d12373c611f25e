//! Many damaging commands in one confined run, because most of what one costs is the way in.

use pvp_protocol::SandboxProfile;

use crate::damage::Damage;
use crate::effects;
use crate::place::{Place, Who};

/// Commands of one run; enough that the way in does not count.
const AT_ONCE: usize = 12;

/// Runs each in a shell of its own and a temporary directory that is empty again, and says so when
/// that has ended.
const ONE_BY_ONE: &str = r#"
shopt -s nullglob dotglob
number=0
for script; do
    "$BASH" --noprofile --norc -c "$script"
    rm -rf -- "$TMPDIR"/*
    echo; echo "ended: $((number++))"
done
"#;

/// What commands do that they must not, each named.
pub async fn failures(who: Who, damages: &[&Damage], profile: SandboxProfile) -> Vec<String> {
    let mut failures = Vec::new();
    let mut place = Place::new(who);
    // Of several, the parent is the shell that runs them, and not the reaper.
    let (mut alone, together): (Vec<&Damage>, Vec<&Damage>) =
        damages.iter().partition(|it| it.script.contains("PPID"));
    for several in together.chunks(AT_ONCE) {
        let (ended, effects) = run(&place, several, profile).await;
        if !effects.is_empty() {
            let names: Vec<_> = several.iter().map(|damage| damage.name.as_str()).collect();
            failures.push(format!("one of {names:?}: {effects:#?}"));
            place = Place::new(who);
        }
        // Some end whatever they can reach, and so the others; and what had an effect is named.
        let unsure = several.iter().enumerate();
        let unsure = unsure.filter(|(number, _)| !effects.is_empty() || !ended.contains(number));
        alone.extend(unsure.map(|(_, damage)| *damage));
    }
    for damage in alone {
        let effects = effects(&place, damage, profile).await;
        if !effects.is_empty() {
            failures.push(format!("{}: {effects:#?}", damage.name));
            place = Place::new(who);
        }
    }
    failures
}

/// Runs several; gives which have ended, and what all of them together did.
async fn run(
    place: &Place,
    several: &[&Damage],
    profile: SandboxProfile,
) -> (Vec<usize>, Vec<String>) {
    let mut errand = place.errand(ONE_BY_ONE, profile);
    let scripts = several.iter().map(|damage| damage.script.clone());
    errand.arguments.push("together".to_owned());
    errand.arguments.extend(scripts);
    let (effects, output) = crate::effects_of(place, &errand).await;
    let ended = output.out.lines().filter_map(|line| {
        let number = line.strip_prefix("ended: ")?;
        number.parse().ok()
    });
    (ended.collect(), effects)
}
