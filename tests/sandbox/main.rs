//! The sandbox holds: what runs in it damages nothing, and can still read.

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "whatever is not as expected ends the test"
)]

mod damage;
mod place;
mod profiles;
mod reads;
mod together;

use damage::{Damage, Proof};
use place::{Output, Place, Who};
use pvp_agent::reaper::SpawnSpec;
use pvp_protocol::SandboxProfile;

/// What a command did that the test sees: from outside, or by its own admission.
async fn effects(place: &Place, damage: &Damage, profile: SandboxProfile) -> Vec<String> {
    let errand = place.errand(&damage.script, profile);
    effects_of(place, &errand).await.0
}

/// The same, and what it printed.
async fn effects_of(place: &Place, errand: &SpawnSpec) -> (Vec<String>, Output) {
    let before = place.state();
    let (finish, output) = place.run(errand).await;
    let mut effects = before.changes(&place.state());
    effects.extend(place.heard().iter().map(|it| format!("{it} was reached")));
    effects.extend(output.admissions());
    if let Err(error) = finish {
        effects.push(error.to_string());
    }
    if output.err.contains("cannot confine") {
        effects.push(format!("nothing ran: {}", output.err));
    }
    place.sweep();
    (effects, output)
}

#[tokio::test]
async fn a_read_damages_nothing_as_root() {
    a_read_damages_nothing(Who::Root).await;
}

#[tokio::test]
async fn a_read_damages_nothing_as_an_ordinary_user() {
    a_read_damages_nothing(Who::Nobody).await;
}

async fn a_read_damages_nothing(who: Who) {
    if !Who::all().contains(&who) {
        return;
    }
    let all = damage::all();
    assert!(all.len() >= 100, "{} commands", all.len());
    let every: Vec<_> = all.iter().collect();
    let failures = together::failures(who, &every, SandboxProfile::Read).await;
    let (many, count) = (failures.len(), all.len());
    place::say(&format!(
        "{who:?}: {count} damaging commands, {many} with effects"
    ));
    assert!(failures.is_empty(), "as {who:?}: {}", failures.join("\n"));
}

/// The commands above are worth running: without the sandbox the test sees what they do.
#[tokio::test]
async fn without_the_sandbox_the_damage_is_seen() {
    let (mut seen, mut unseen) = (0, Vec::new());
    // Each needs a place of its own, so not all are tried unless `make soak` asks for more.
    let every = std::env::var("PVP_ROUNDS").map_or(5, |_| 1);
    for damage in damage::all().into_iter().step_by(every) {
        let who = match damage.proof {
            Proof::Untried => continue,
            Proof::AsNobody => Who::Nobody,
            Proof::AsRoot => Who::Root,
            Proof::Sure | Proof::Maybe => Who::all()[0],
        };
        if !place::is_root() && matches!(damage.proof, Proof::AsRoot | Proof::AsNobody) {
            continue;
        }
        let effects = effects(&Place::new(who), &damage, SandboxProfile::None).await;
        match (effects.is_empty(), damage.proof) {
            (false, _) => seen += 1,
            (true, Proof::Maybe) => {
                place::say(&format!("{who:?}: {} has no effect here", damage.name));
            }
            (true, _) => unseen.push(damage.name),
        }
    }
    place::say(&format!("{seen} commands do damage that is seen"));
    assert!(unseen.is_empty(), "{unseen:#?}");
}

/// It is seen among others too, and named.
#[tokio::test]
async fn damage_among_other_commands_is_named() {
    let all = damage::all();
    let named = |name: &str| all.iter().find(|damage| damage.name == name).unwrap();
    let damaging = [named("appending in $OUT"), named("TCP")];
    for who in Who::all() {
        let failures = together::failures(who, &damaging, SandboxProfile::None).await;
        assert_eq!(failures.len(), 3, "{failures:#?}");
        assert!(failures[0].contains("was reached") && failures[0].contains("keep"));
        assert!(failures[1].starts_with("appending in $OUT: "));
        assert!(failures[2].starts_with("TCP: "));
    }
}

/// Whether a command ends well and prints this.
async fn works(place: &Place, (line, printed): reads::Read) -> Result<(), String> {
    let (finish, output) = place.line(line, SandboxProfile::Read).await;
    place.sweep();
    match finish.exit_code == Some(0) && output.out.contains(printed) {
        true => Ok(()),
        false => Err(format!("{line}: {:?} {output:#?}", finish.exit_code)),
    }
}

#[tokio::test]
async fn everyday_reads_work_as_root() {
    everyday_reads_work(Who::Root).await;
}

#[tokio::test]
async fn everyday_reads_work_as_an_ordinary_user() {
    everyday_reads_work(Who::Nobody).await;
}

async fn everyday_reads_work(who: Who) {
    if Who::all().contains(&who) {
        let place = Place::new(who);
        let before = place.state();
        let (mut worked, mut failures) = (0, Vec::new());
        let mut note = |outcome| match outcome {
            Ok(()) => worked += 1,
            Err(why) => failures.push(why),
        };
        for read in reads::EVERYWHERE {
            note(works(&place, *read).await);
        }
        for (tool, read) in reads::WITH_A_TOOL {
            let find = format!("command -v {tool} && {tool} --version");
            let (found, _) = place.line(&find, SandboxProfile::None).await;
            match found.exit_code {
                Some(0) => note(works(&place, *read).await),
                _ => place::say(&format!("{who:?}: skipped `{}`: no {tool} here", read.0)),
            }
        }
        place::say(&format!("{who:?}: {worked} everyday reads worked"));
        assert!(failures.is_empty(), "as {who:?}: {}", failures.join("\n"));
        assert!(worked >= 40, "{worked} worked");
        assert_eq!(before.changes(&place.state()), Vec::<String>::new());
    }
}
