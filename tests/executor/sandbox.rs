//! The sandbox: commands in it damage nothing, and can still read.

mod attacks;
mod batch;
mod fixture;
mod profiles;
mod reads;
mod secret_files;
mod trials;

use attacks::{Attack, UnconfinedEffect};
use fixture::{CapturedOutput, RunAsUser, SandboxFixture};
use pvp_agent::reaper::SpawnSpec;
use pvp_protocol::SandboxProfile;

use crate::support::skip::skip;

/// The effects of a command, from a snapshot of the system or from its own output.
async fn effects(
    fixture: &SandboxFixture,
    attack: &Attack,
    profile: SandboxProfile,
) -> Vec<String> {
    let spawn_spec = fixture.spawn_spec(&attack.script, profile);
    run_and_diff(fixture, &spawn_spec).await.0
}

/// As `effects`, with the output.
async fn run_and_diff(
    fixture: &SandboxFixture,
    spawn_spec: &SpawnSpec,
) -> (Vec<String>, CapturedOutput) {
    let before = fixture.snapshot();
    let (finish, output) = fixture.run(spawn_spec).await;
    let mut effects = before.diff(&fixture.snapshot());
    effects.extend(
        fixture
            .reached_listeners()
            .iter()
            .map(|it| format!("{it} was reached")),
    );
    effects.extend(output.reported_damage());
    if let Err(error) = finish {
        effects.push(error.to_string());
    }
    if output.err.contains("cannot confine") {
        effects.push(format!("nothing ran: {}", output.err));
    }
    fixture.clear_temp_dir();
    (effects, output)
}

#[tokio::test]
async fn a_read_damages_nothing_as_root() {
    a_read_damages_nothing(RunAsUser::Root).await;
}

#[tokio::test]
async fn a_read_damages_nothing_as_an_ordinary_user() {
    a_read_damages_nothing(RunAsUser::Nobody).await;
}

async fn a_read_damages_nothing(user: RunAsUser) {
    if !user.or_skip() {
        return;
    }
    let all = attacks::all_attacks();
    assert!(all.len() >= 100, "{} commands", all.len());
    let every: Vec<_> = all.iter().collect();
    let failures = batch::failed_attacks(user, &every, SandboxProfile::Read).await;
    let (many, count) = (failures.len(), all.len());
    fixture::report(&format!(
        "{user:?}: {count} damaging commands, {many} with effects"
    ));
    assert!(failures.is_empty(), "as {user:?}: {}", failures.join("\n"));
}

/// Proves the attacks: without the sandbox the test sees their damage.
#[tokio::test]
async fn without_the_sandbox_the_damage_is_seen() {
    let (mut seen, mut unseen) = (0, Vec::new());
    // Each needs its own fixture, so only every fifth is tried unless `PVP_ROUNDS` is set.
    let every = std::env::var("PVP_ROUNDS").map_or(5, |_| 1);
    for attack in attacks::all_attacks().into_iter().step_by(every) {
        let user = match attack.unconfined {
            UnconfinedEffect::NotRun => continue,
            UnconfinedEffect::AsNobody => RunAsUser::Nobody,
            UnconfinedEffect::AsRoot => RunAsUser::Root,
            UnconfinedEffect::Always | UnconfinedEffect::MachineDependent => RunAsUser::current(),
        };
        let needs_root = matches!(
            attack.unconfined,
            UnconfinedEffect::AsRoot | UnconfinedEffect::AsNobody
        );
        if needs_root && !RunAsUser::Root.or_skip() {
            continue;
        }
        let effects = effects(&SandboxFixture::new(user), &attack, SandboxProfile::None).await;
        match (effects.is_empty(), attack.unconfined) {
            (false, _) => seen += 1,
            (true, UnconfinedEffect::MachineDependent) => {
                fixture::report(&format!("{user:?}: {} has no effect here", attack.name));
            }
            (true, _) => unseen.push(attack.name),
        }
    }
    fixture::report(&format!("{seen} commands do damage that is seen"));
    assert!(unseen.is_empty(), "{unseen:#?}");
}

/// Damage is found in a batch too, and attributed to its command.
#[tokio::test]
async fn damage_in_a_batch_is_attributed_to_its_command() {
    let all = attacks::all_attacks();
    let named = |name: &str| all.iter().find(|attack| attack.name == name).unwrap();
    let damaging = [named("appending in $OUT"), named("TCP")];
    for user in RunAsUser::available() {
        let failures = batch::failed_attacks(user, &damaging, SandboxProfile::None).await;
        assert_eq!(failures.len(), 3, "{failures:#?}");
        assert!(failures[0].contains("was reached") && failures[0].contains("keep"));
        assert!(failures[1].starts_with("appending in $OUT: "));
        assert!(failures[2].starts_with("TCP: "));
    }
}

/// Whether a command succeeds and its output contains this text.
async fn read_succeeds(
    fixture: &SandboxFixture,
    (line, printed): reads::ReadCommand,
) -> Result<(), String> {
    let (finish, output) = fixture.run_line(line, SandboxProfile::Read).await;
    fixture.clear_temp_dir();
    match finish.exit_code == Some(0) && output.out.contains(printed) {
        true => Ok(()),
        false => Err(format!("{line}: {:?} {output:#?}", finish.exit_code)),
    }
}

#[tokio::test]
async fn everyday_reads_work_as_root() {
    everyday_reads_work(RunAsUser::Root).await;
}

#[tokio::test]
async fn everyday_reads_work_as_an_ordinary_user() {
    everyday_reads_work(RunAsUser::Nobody).await;
}

async fn everyday_reads_work(user: RunAsUser) {
    if user.or_skip() {
        let fixture = SandboxFixture::new(user);
        let before = fixture.snapshot();
        let (mut worked, mut failures) = (0, Vec::new());
        let mut note = |outcome| match outcome {
            Ok(()) => worked += 1,
            Err(why) => failures.push(why),
        };
        for read in reads::ALWAYS_AVAILABLE {
            note(read_succeeds(&fixture, *read).await);
        }
        let mut missing = Vec::new();
        for (tool, read) in reads::TOOL_DEPENDENT {
            let find = format!("command -v {tool} && {tool} --version");
            let (found, _) = fixture.run_line(&find, SandboxProfile::None).await;
            match found.exit_code {
                Some(0) => note(read_succeeds(&fixture, *read).await),
                _ => missing.push(*tool),
            }
        }
        if !missing.is_empty() {
            fixture::report(&format!("{user:?}: not installed: {missing:?}"));
            skip("some programs are not installed");
        }
        fixture::report(&format!("{user:?}: {worked} everyday reads worked"));
        assert!(failures.is_empty(), "as {user:?}: {}", failures.join("\n"));
        assert!(worked >= 40, "{worked} worked");
        assert_eq!(before.diff(&fixture.snapshot()), Vec::<String>::new());
    }
}
