//! The steps of the tour.

use std::path::Path;

use pvp_client::Link;
use pvp_protocol::ServerMessage;
use pvp_protocol::payload::{ClearedBy, GateOutcome};

use super::guide::{Guide, Happening, TourOutcome};
use super::second_person::SecondPerson;
use crate::cli::{one_line, print_line, shell_words};

pub(super) fn introduce(guide: &Guide) -> anyhow::Result<()> {
    print_line(format!(
        "
A tour of PVP, in seven short steps.

An agent has joined a session on this machine. It proposes shell commands, and
you decide. Everything is real: the commands run in a small project of the demo.

Type each command here, or in another shell in this directory. In another shell,
`{} tui` shows the same on one screen. Leave with Ctrl-C or `quit`.",
        guide.pvp
    ))
}

pub(super) async fn approve(guide: &mut Guide) -> anyhow::Result<()> {
    guide.begin_step("approve")?;
    loop {
        guide
            .propose("echo eggs >> notes.txt", "add eggs to the list")
            .await?;
        let why = "It changes a file, so it waits. Approve it:";
        match decide(guide, why, |handle| format!("approve {handle}")).await? {
            GateDecision::Ran { .. } => {
                return guide.say("You approved it, and it ran. Reads need no approval.");
            }
            GateDecision::NotRun(_) => {
                guide.say("It did not run. Rejecting comes next; please approve this one.")?;
            }
        }
    }
}

pub(super) async fn reject(guide: &mut Guide) -> anyhow::Result<()> {
    guide.begin_step("reject with a reason")?;
    loop {
        guide
            .propose("rm -rf old-notes", "delete old notes")
            .await?;
        let command = |handle: &str| format!("reject {handle} 'we still need them'");
        let reason = loop {
            match guide.next_happening().await? {
                Happening::GateOpened => {
                    let why =
                        "It cannot be undone. Reject it, and say why; the agent reads the reason:";
                    guide.show_gate(why, command).await?;
                }
                Happening::Approved { .. } => {
                    let why = "You approved it, but it needs two approvals here. Reject it instead; \
                               your last vote counts:";
                    guide.show_gate(why, command).await?;
                }
                Happening::Edited => {
                    guide
                        .show_gate("You edited it. Reject it all the same:", command)
                        .await?;
                }
                Happening::Started { .. } => {}
                Happening::Ended(TourOutcome::NotRun {
                    outcome: GateOutcome::Rejected,
                    reason,
                }) => break reason,
                Happening::Ended(_) => {
                    guide.say("That was no rejection. The agent proposes it again.")?;
                    break None;
                }
            }
        };
        if let Some(reason) = reason {
            return guide.say(&format!(
                "It did not run. The agent reads: {}",
                one_line(&reason)
            ));
        }
    }
}

pub(super) async fn edit(guide: &mut Guide) -> anyhow::Result<()> {
    guide.begin_step("edit")?;
    loop {
        guide
            .propose("echo 20 kg of chocolate >> notes.txt", "add chocolate")
            .await?;
        let edited = shell_words::quote("echo chocolate >> notes.txt");
        let why = "That is too much. Edit it before it runs:";
        match decide(guide, why, |handle| format!("amend {handle} {edited}")).await? {
            GateDecision::Ran { edited: true, .. } => {
                return guide
                    .say("Exactly what you approved ran, and the agent knows of the edit.");
            }
            GateDecision::Ran { .. } => {
                guide.say(
                    "It ran as it was. Try to edit this one first; the agent adds it again.",
                )?;
            }
            GateDecision::NotRun(_) => {
                guide.say("It did not run. Try to edit it; the agent proposes it again.")?;
            }
        }
    }
}

pub(super) async fn allow(guide: &mut Guide) -> anyhow::Result<()> {
    guide.begin_step("allow a prefix")?;
    guide.say(
        "The agent will make several files. Instead of approving each, allow commands that\n\
         begin with `touch`, for an hour:",
    )?;
    guide.show_command("rules allow touch")?;
    while !guide.is_allowed("touch") {
        let entry = guide.next_entry().await?;
        if matches!(entry.message, ServerMessage::PolicyAllow(_)) && !guide.is_allowed("touch") {
            guide.say("That allows something else. Allow `touch`:")?;
            guide.show_command("rules allow touch")?;
        }
    }
    guide.propose("touch monday.txt", "make a file").await?;
    let why = "The rule does not cover it. Approve it:";
    match decide(guide, why, |handle| format!("approve {handle}")).await? {
        GateDecision::Ran {
            cleared_by: Some(ClearedBy::AllowRule),
            ..
        } => guide.say("Your rule let it run without asking.")?,
        GateDecision::Ran { .. } | GateDecision::NotRun(_) => {}
    }
    guide.say(&format!(
        "`{pvp} rules` lists the rules, and `{pvp} rules revoke` takes one back. A rule never covers\n\
         destructive commands.",
        pvp = guide.pvp
    ))
}

pub(super) async fn interrupt(guide: &mut Guide) -> anyhow::Result<()> {
    guide.begin_step("interrupt")?;
    loop {
        guide.propose("tail -f notes.txt", "watch the list").await?;
        if interrupted(guide).await? {
            return guide.say("The command was stopped, and the agent was told why.");
        }
        guide.say("It ended without an interrupt. The agent starts it again.")?;
    }
}

/// Waits for the end of a command; false if nobody interrupted the agent before.
async fn interrupted(guide: &mut Guide) -> anyhow::Result<bool> {
    loop {
        match guide.next_happening().await? {
            Happening::GateOpened | Happening::Edited => {
                let why = "This machine cannot confine reads, so it waits. Approve it:";
                let command = |handle: &str| format!("approve {handle}");
                guide.show_gate(why, command).await?;
            }
            Happening::Approved { .. } => {}
            Happening::Started { .. } => {
                guide.say(
                    "It only reads, so it runs at once, and it would never end. Stop the agent:",
                )?;
                guide.show_command("interrupt 'that is enough'")?;
            }
            Happening::Ended(_) => return Ok(guide.was_interrupted()),
        }
    }
}

pub(super) async fn own_command(guide: &mut Guide) -> anyhow::Result<()> {
    guide.begin_step("run a command of your own")?;
    guide.say("Your own commands run where the agent's do, and everybody sees them:")?;
    guide.show_command("exec 'ls -l'")?;
    guide.say("Here and on the screen, `!ls -l` does the same.")?;
    let mut own = None;
    loop {
        let entry = guide.next_entry().await?;
        if matches!(entry.message, ServerMessage::ShellExec(_)) && guide.is_mine(&entry) {
            own = Some(entry.header.id);
        } else if let ServerMessage::ToolResult(result) = &entry.message
            && own.as_ref() == Some(&result.tool_proposal)
        {
            return guide.say("It ran without asking: reads and writes of your own do.");
        } else if let ServerMessage::GateRequest(request) = &entry.message
            && own.as_ref() == Some(&request.action_ref)
        {
            guide.say(
                "That is destructive, so it needs others' approval. Try one that only reads:",
            )?;
            guide.show_command("exec 'ls -l'")?;
        }
    }
}

pub(super) async fn quorum(guide: &mut Guide, second_person: Link) -> anyhow::Result<()> {
    guide.begin_step("decide together")?;
    guide.say(
        "In this session, destructive commands need two approvals. Robin joins: a participant\n\
         with a token and a connection of their own, whose votes are scripted.",
    )?;
    let robin = SecondPerson::join(second_person, guide.me.clone()).await?;
    guide.tells_votes = true;
    loop {
        guide
            .propose(
                "rm -rf old-notes",
                "delete old notes; nobody needs them any more",
            )
            .await?;
        let why = "Approve it. Nothing happens until Robin has approved it too:";
        match decide(guide, why, |handle| format!("approve {handle}")).await? {
            GateDecision::Ran { .. } => break,
            GateDecision::NotRun(reason) => guide.say(&format!(
                "It did not run{}. The agent proposes it again.",
                reason.map_or_else(String::new, |reason| format!(": {}", one_line(&reason)))
            ))?,
        }
    }
    drop(robin);
    guide.say("Both of you approved it, so it ran.")
}

pub(super) fn finish(guide: &Guide, data: &Path) -> anyhow::Result<()> {
    guide.say(
        "That was the tour. Every proposal, vote, edit and result is in a signed log.\n\
         Check it, and read it:",
    )?;
    let data = shell_words::quote(&data.to_string_lossy());
    guide.show_command(&format!("audit verify --data {data}"))?;
    guide.show_command(&format!(
        "audit show --data {data} --session {}",
        guide.session
    ))?;
    guide.say("Start your own session, in the directory where an agent should work:")?;
    guide.show_command("up")?;
    print_line("")
}

/// How a command of a step was decided.
enum GateDecision {
    Ran {
        edited: bool,
        cleared_by: Option<ClearedBy>,
    },
    /// With the reason, if there is one.
    NotRun(Option<String>),
}

/// Shows what to type when the gate opens, and waits for the end of the command.
async fn decide(
    guide: &mut Guide,
    why: &str,
    command: impl Fn(&str) -> String,
) -> anyhow::Result<GateDecision> {
    let (mut edited, mut cleared) = (false, None);
    loop {
        match guide.next_happening().await? {
            Happening::GateOpened => guide.show_gate(why, &command).await?,
            Happening::Approved { by } => {
                // Where one approval is enough, the end of the step says it.
                if guide.tells_votes {
                    let who = if by == guide.me { "You" } else { "Robin" };
                    guide.say(&format!("{who} approved it."))?;
                }
            }
            Happening::Edited => {
                edited = true;
                let why = "It is edited, so its handle is new and votes start over. Approve it:";
                let approve = |handle: &str| format!("approve {handle}");
                guide.show_gate(why, approve).await?;
            }
            Happening::Started { cleared_by } => cleared = Some(cleared_by),
            Happening::Ended(TourOutcome::Ran(_)) => {
                let cleared_by = cleared;
                return Ok(GateDecision::Ran { edited, cleared_by });
            }
            Happening::Ended(TourOutcome::NotRun { reason, .. }) => {
                return Ok(GateDecision::NotRun(reason));
            }
        }
    }
}
