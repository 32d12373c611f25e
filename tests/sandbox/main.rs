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

use damage::{Damage, Proof};
use place::{Place, Who};
use pvp_protocol::Profile;

/// What a command did that the test sees: from outside, or by its own admission.
async fn effects(place: &Place, damage: &Damage, profile: Profile) -> Vec<String> {
    let before = place.state();
    let (finish, output) = place.run(&place.errand(&damage.script, profile)).await;
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
    effects
}

#[tokio::test]
async fn a_read_damages_nothing() {
    let all = damage::all();
    assert!(all.len() >= 100, "{} commands", all.len());
    for who in Who::all() {
        let mut failures = Vec::new();
        let mut place = Place::new(who);
        for damage in &all {
            let effects = effects(&place, damage, Profile::Read).await;
            if !effects.is_empty() {
                failures.push(format!("{}: {effects:#?}", damage.name));
                place = Place::new(who);
            }
        }
        let (many, count) = (failures.len(), all.len());
        place::say(&format!(
            "{who:?}: {count} damaging commands, {many} with effects"
        ));
        assert!(failures.is_empty(), "as {who:?}: {}", failures.join("\n"));
    }
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
        let effects = effects(&Place::new(who), &damage, Profile::None).await;
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

/// Whether a command ends well and prints this.
async fn works(place: &Place, (line, printed): reads::Read) -> Result<(), String> {
    let (finish, output) = place.line(line, Profile::Read).await;
    place.sweep();
    match finish.code == Some(0) && output.out.contains(printed) {
        true => Ok(()),
        false => Err(format!("{line}: {:?} {output:#?}", finish.code)),
    }
}

#[tokio::test]
async fn everyday_reads_work() {
    for who in Who::all() {
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
            let (found, _) = place.line(&find, Profile::None).await;
            match found.code {
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
