//! Typing: prompts, own commands, slash commands, history and completion.

use serde_json::{Value, json};

use crate::app::{Effect, Focus, Input, Link, Main};
use crate::config::Config;
use crate::history::Past;
use crate::scene::Scene;

fn submit(scene: &mut Scene, text: &str) {
    scene.input(Input::Paste(text.to_owned()));
    scene.press(&["enter"]);
}

fn last(scene: &Scene) -> Value {
    scene.sent().pop().expect("something was sent")
}

fn notice(scene: &Scene) -> String {
    scene
        .app
        .notice
        .as_ref()
        .map(|notice| notice.text.clone())
        .unwrap_or_default()
}

/// The only block before a prompt, and the prompt.
fn injected(content: &Value) -> (Value, String) {
    let content = content.as_str().unwrap();
    let (block, text) = content.split_once("</shell_result>\n").unwrap();
    let json = block.strip_prefix("<shell_result>").unwrap();
    (serde_json::from_str(json).unwrap(), text.to_owned())
}

/// Runs an own command to its end.
fn bang(scene: &mut Scene, typed: &str, printed: &str) {
    submit(scene, typed);
    let line = last(scene)["payload"]["command"]
        .as_str()
        .unwrap()
        .to_owned();
    let exec = scene.tell(
        "ann",
        "shell.exec",
        json!({ "command": line, "executor": "bot" }),
    );
    scene.answer(Ok(&exec));
    let login = json!({ "command": { "form": "login_shell", "line": line } });
    scene.execute(&exec, &line, "direct", login);
    scene.output(&exec, "stdout", printed);
    scene.result(&exec, 0);
}

#[test]
fn a_prompt_of_several_lines_goes_to_the_only_agent() {
    let mut scene = Scene::new(80, 24);
    scene.type_text("first");
    scene.press(&["alt+enter"]);
    scene.type_text("second");
    scene.press(&["enter"]);
    assert_eq!(
        scene.sent(),
        [json!({ "type": "prompt.submit", "payload": {
            "content": "first\nsecond", "target_agent": "bot", "contributors": ["ann"], "context_keys": [],
        } })]
    );
    assert!(scene.app.composer.editor.is_empty());
}

#[test]
fn with_several_agents_one_says_which() {
    let mut scene = Scene::new(80, 24);
    let announce = json!({ "id": "bit", "name": "Bit Two", "type": "agent", "roles": [], "transport": "websocket" });
    scene.tell("bit", "participant.announce", announce);
    submit(&mut scene, "hello");
    assert_eq!(scene.sent(), [Value::Null; 0]);
    assert_eq!(
        notice(&scene),
        "say which agent before the text: @Bit-Two, @bot"
    );
    assert_eq!(scene.app.composer.editor.text(), "hello");
    scene.press(&["ctrl+u"]);
    submit(&mut scene, "@Bit-Two hello");
    assert_eq!(last(&scene)["payload"]["target_agent"], "bit");
    submit(&mut scene, "/to bot");
    submit(&mut scene, "and you");
    assert_eq!(last(&scene)["payload"]["target_agent"], "bot");
}

#[test]
fn the_result_of_an_own_command_goes_with_the_next_prompt_once() {
    let mut scene = Scene::new(80, 24);
    bang(&mut scene, "!make test", "all good </shell_result>\n");
    assert_eq!(notice(&scene), "bang exec done (exit 0)");
    assert!(
        scene.draw().contains("[!make test → 0]"),
        "{}",
        scene.draw()
    );
    submit(&mut scene, "what now?");
    let (block, text) = injected(&last(&scene)["payload"]["content"]);
    assert_eq!(
        (&block["command_preview"], &block["stdout"]),
        (&json!("make test"), &json!("all good </shell_result>\n"))
    );
    assert_eq!(text, "what now?");
    scene.answer(Ok("prompt-1"));
    assert!(scene.app.results.is_empty());
    submit(&mut scene, "and then?");
    assert_eq!(last(&scene)["payload"]["content"], "and then?");
}

#[test]
fn a_prompt_that_was_not_taken_comes_back_with_its_results() {
    let mut scene = Scene::new(80, 24);
    bang(&mut scene, "!ls", "x\n");
    submit(&mut scene, "look");
    scene.answer(Err("the disk is full"));
    assert_eq!(scene.app.composer.editor.text(), "look");
    assert_eq!(notice(&scene), "not sent: the disk is full");
    scene.press(&["enter"]);
    assert_eq!(injected(&last(&scene)["payload"]["content"]).1, "look");
}

#[test]
fn two_marks_give_the_result_to_the_agent_at_once() {
    let mut scene = Scene::new(80, 24);
    bang(&mut scene, "!!git status", "clean\n");
    let (block, text) = injected(&last(&scene)["payload"]["content"]);
    assert_eq!((&block["stdout"], text.as_str()), (&json!("clean\n"), ""));
}

#[test]
fn an_own_command_that_is_refused_can_be_corrected() {
    let mut scene = Scene::new(80, 24);
    submit(&mut scene, "!");
    assert_eq!(notice(&scene), "bang command is empty");
    scene.press(&["ctrl+u"]);
    submit(&mut scene, "!rm -rf /");
    scene.answer(Err("blocked"));
    assert_eq!(
        (notice(&scene).as_str(), scene.app.composer.editor.text()),
        ("not run: blocked", "!rm -rf /")
    );
}

#[test]
fn what_was_sent_can_be_had_again_and_what_was_typed_is_kept() {
    let mut scene = Scene::new(80, 24);
    submit(&mut scene, "one");
    submit(&mut scene, "two");
    scene.type_text("thr");
    let mut seen = Vec::new();
    for key in ["up", "up", "up", "down", "down"] {
        scene.press(&[key]);
        seen.push(scene.app.composer.editor.text().to_owned());
    }
    assert_eq!(seen, ["two", "one", "one", "two", "thr"]);
}

#[test]
fn what_earlier_screens_sent_can_be_had_again() {
    let mut scene = Scene::new(80, 24);
    submit(&mut scene, "own");
    let past = Past {
        entries: vec!["old".to_owned(), "older\nlines".to_owned()],
        problem: Some("a line could not be read".to_owned()),
    };
    scene.input(Input::Past(past));
    assert_eq!(notice(&scene), "a line could not be read");
    let mut seen = Vec::new();
    for key in ["up", "up", "up", "up"] {
        scene.press(&[key]);
        seen.push(scene.app.composer.editor.text().to_owned());
    }
    // The third press moves between the lines of what is there.
    assert_eq!(seen, ["own", "older\nlines", "older\nlines", "old"]);
}

#[test]
fn what_is_sent_is_kept_unless_it_begins_with_a_space_or_was_thrown_away() {
    let mut scene = Scene::new(80, 24);
    submit(&mut scene, "!ls");
    submit(&mut scene, "!ls");
    submit(&mut scene, " !cat secret");
    submit(&mut scene, "/people");
    submit(&mut scene, "/nonsense");
    scene.press(&["ctrl+c"]);
    scene.type_text("a draft");
    scene.press(&["ctrl+c", "up"]);
    assert_eq!(scene.app.composer.editor.text(), "a draft");
    scene.press(&["up", "up", "up"]);
    assert_eq!(scene.app.composer.editor.text(), "!ls");
    assert_eq!(kept(&scene), ["!ls", "/people"]);

    let config = Config {
        history: false,
        ..Config::default()
    };
    let mut scene = Scene::with(config, 80, 24);
    submit(&mut scene, "!ls");
    assert_eq!(kept(&scene), [""; 0]);
    scene.press(&["up"]);
    assert_eq!(scene.app.composer.editor.text(), "!ls");
}

/// What is to be kept for the next time.
fn kept(scene: &Scene) -> Vec<&str> {
    let kept = scene.effects.iter().filter_map(|effect| match effect {
        Effect::Keep(text) => Some(text.as_str()),
        Effect::Send(..)
        | Effect::Copy(_)
        | Effect::Fetch { .. }
        | Effect::Find { .. }
        | Effect::Invite(_)
        | Effect::Call
        | Effect::Redraw
        | Effect::Suspend
        | Effect::Quit => None,
    });
    kept.collect()
}

#[test]
fn what_was_sent_is_found_by_a_part_of_it() {
    let mut scene = Scene::new(80, 24);
    for text in ["!make test", "!make Build", "look at the build", "hello"] {
        submit(&mut scene, text);
    }
    scene.type_text("draft");
    scene.press(&["ctrl+r"]);
    assert_eq!(scene.app.composer.editor.text(), "draft");
    scene.type_text("buil");
    assert_eq!(scene.app.composer.editor.text(), "look at the build");
    let shown = scene.draw();
    assert!(shown.contains("▶ Sent before, with: buil"), "{shown}");
    assert!(shown.contains("ctrl+r earlier"), "{shown}");
    scene.press(&["ctrl+r"]);
    assert_eq!(scene.app.composer.editor.text(), "!make Build");
    scene.press(&["ctrl+r"]);
    assert_eq!(notice(&scene), "nothing earlier has it");
    scene.press(&["ctrl+s"]);
    assert_eq!(scene.app.composer.editor.text(), "look at the build");
    scene.press(&["ctrl+s"]);
    assert_eq!(notice(&scene), "nothing later has it");
    // A capital means itself.
    scene.press(&["ctrl+u"]);
    scene.type_text("Build");
    assert_eq!(scene.app.composer.editor.text(), "!make Build");
    // What is not there leaves what was typed.
    scene.type_text("x");
    assert_eq!(scene.app.composer.editor.text(), "draft");
    assert!(scene.draw().contains("Nothing sent before has: Buildx"));
    scene.press(&["backspace", "enter"]);
    assert_eq!(scene.sent().len(), 4, "taking it does not send it");
    scene.type_text("!");
    assert_eq!(scene.app.composer.editor.text(), "!make Build!");
    scene.press(&["ctrl+r"]);
    scene.type_text("hello");
    scene.press(&["esc"]);
    assert_eq!(
        (scene.app.composer.editor.text(), scene.app.focus),
        ("!make Build!", Focus::Composer)
    );
}

#[test]
fn a_paste_while_looking_back_is_what_is_looked_for() {
    let mut scene = Scene::new(40, 12);
    submit(&mut scene, "one two");
    scene.press(&["ctrl+r"]);
    scene.input(Input::Paste("one\ntwo".to_owned()));
    assert_eq!(scene.app.composer.editor.text(), "one two");
    assert!(scene.draw().contains("Sent before, with: one two"));
}

#[test]
fn slash_commands_are_completed() {
    let mut scene = Scene::new(80, 24);
    scene.type_text("/peo");
    scene.press(&["tab"]);
    assert_eq!(scene.app.composer.editor.text(), "/people ");
    scene.press(&["ctrl+u"]);
    scene.type_text("/r");
    scene.press(&["tab"]);
    assert_eq!(scene.app.composer.editor.text(), "/r");
    assert!(
        scene.draw().ends_with("/role  /rules  /revoke"),
        "{}",
        scene.draw()
    );
    scene.press(&["tab", "tab"]);
    assert_eq!(scene.app.composer.editor.text(), "/rules");
    scene.press(&["ctrl+u"]);
    scene.type_text("/role bo");
    scene.press(&["tab", "tab"]);
    assert_eq!(scene.app.composer.editor.text(), "/role bob");
}

#[test]
fn own_commands_are_completed_from_the_history_and_the_path() {
    let mut scene = Scene::new(80, 24);
    scene.input(Input::Programs(vec![
        "git".to_owned(),
        "gitk".to_owned(),
        "grep".to_owned(),
    ]));
    scene.type_text("!gr");
    scene.press(&["tab"]);
    assert_eq!(scene.app.composer.editor.text(), "!grep ");
    scene.press(&["ctrl+u"]);
    submit(&mut scene, "!git log --oneline");
    scene.type_text("!git l");
    scene.press(&["tab"]);
    assert_eq!(scene.app.composer.editor.text(), "!git log --oneline ");
    scene.press(&["ctrl+u"]);
    scene.type_text("!ls | gitk");
    scene.press(&["tab"]);
    assert_eq!(scene.app.composer.editor.text(), "!ls | gitk");
}

#[test]
fn slash_commands_say_what_the_protocol_says() {
    for (line, kind, payload) in [
        (
            "/interrupt stop enough",
            "interrupt.raise",
            json!({ "urgency": "stop", "message": "enough" }),
        ),
        (
            "/interrupt wait a bit",
            "interrupt.raise",
            json!({ "urgency": "pause", "message": "wait a bit" }),
        ),
        (
            "/role bob admin,driver",
            "participant.role_change",
            json!({
                "participant": "bob", "old_roles": ["approver"], "new_roles": ["driver", "admin"], "changed_by": "ann",
            }),
        ),
        (
            "/cancel 1 too slow",
            "tool.cancel",
            json!({ "tool_proposal": "m1", "reason": "too slow" }),
        ),
        ("/cancel", "tool.cancel", json!({ "tool_proposal": "m1" })),
        (
            "/allow npm run for 1d",
            "policy.allow",
            json!({ "prefix": ["npm", "run"], "expires_at": "2026-01-02T12:00:00.000Z" }),
        ),
    ] {
        let mut scene = Scene::new(80, 24);
        scene.gate("make", "write");
        submit(&mut scene, line);
        assert_eq!(
            scene.sent(),
            [json!({ "type": kind, "payload": payload })],
            "{line}"
        );
    }
}

#[test]
fn a_slash_command_that_makes_no_sense_is_told_and_kept() {
    for (line, problem) in [
        (
            "/nonsense",
            "no command is called /nonsense; /help lists them",
        ),
        (
            "/role nobody admin",
            "nobody called `nobody` is here; /people lists them",
        ),
        (
            "/role bob king",
            "`king` is no role; there are driver, navigator, adversary, approver, admin, observer",
        ),
        ("/cancel 7", "there is no number 7"),
        ("/revoke", "say the number of a rule of /rules"),
        (
            "/allow make; rm",
            "`make;` would act in a shell; a prefix is plain words",
        ),
        (
            "/invite ann",
            "say a name, a role and perhaps a time: /invite ann approver 8h",
        ),
        ("/to nobody", "no agent `nobody` is here; there is @bot"),
    ] {
        let mut scene = Scene::new(80, 24);
        submit(&mut scene, line);
        assert_eq!(
            (notice(&scene).as_str(), scene.app.composer.editor.text()),
            (problem, line)
        );
        assert_eq!(scene.sent(), [Value::Null; 0]);
    }
}

#[test]
fn an_invitation_is_for_this_session_and_for_a_time() {
    let mut scene = Scene::new(80, 24);
    submit(&mut scene, "/invite cid approver 2h");
    let mut effects = scene.effects.iter();
    let asked = effects.find(|effect| matches!(effect, Effect::Invite(_)));
    let Some(Effect::Invite(invite)) = asked else {
        panic!("nothing is asked for");
    };
    let invite = serde_json::to_value(invite).unwrap();
    assert_eq!(
        invite,
        json!({ "name": "cid", "roles": ["approver"], "kind": "human", "capabilities": [], "session": "shop", "expires_seconds": 7200 })
    );
}

#[test]
fn every_page_opens_and_closes() {
    for page in [
        "help", "keys", "tools", "people", "rules", "jobs", "context", "history", "audit",
    ] {
        let mut scene = Scene::new(80, 24);
        scene.gate("make", "write");
        submit(&mut scene, &format!("/{page}"));
        assert!(matches!(scene.app.main, Main::Page(_)), "{page}");
        scene.draw();
        scene.press(&["q"]);
        assert_eq!(
            (&scene.app.main, scene.app.focus),
            (&Main::Stream, Focus::Composer),
            "{page}"
        );
    }
}

#[test]
fn what_is_typed_survives_a_lost_connection_and_quitting_warns() {
    let mut scene = Scene::new(80, 24);
    submit(&mut scene, "under way");
    scene.type_text("draft");
    scene.input(Input::Down {
        why: "gone".to_owned(),
    });
    scene.input(Input::Up { resumed: false });
    scene.welcome(&["driver", "admin"]);
    assert_eq!(
        (scene.app.composer.editor.text(), &scene.app.link),
        ("draft", &Link::Up)
    );
    scene.press(&["ctrl+q"]);
    assert!(!scene.effects.contains(&Effect::Quit));
    assert_eq!(
        notice(&scene),
        "1 message of yours not sent yet; it quits after that, or once more to quit now"
    );
    scene.press(&["ctrl+q"]);
    assert!(scene.effects.contains(&Effect::Quit));
}

#[test]
fn whoever_quits_with_something_under_way_leaves_once_it_is_sent() {
    for stays in [false, true] {
        let mut scene = Scene::new(80, 24);
        submit(&mut scene, "under way");
        scene.press(&["ctrl+q"]);
        assert!(!scene.effects.contains(&Effect::Quit));
        if stays {
            scene.type_text("no, one more thing");
        }
        scene.answer(Ok("m1"));
        assert_eq!(scene.effects.contains(&Effect::Quit), !stays);
    }
}

#[test]
fn drafts_are_shared_only_when_that_is_wanted() {
    let mut scene = Scene::new(80, 24);
    scene.type_text("hel");
    scene.wait(500);
    assert_eq!(scene.sent(), [Value::Null; 0]);
    let config = Config {
        share_drafts: true,
        ..Config::default()
    };
    let mut scene = Scene::with(config, 80, 24);
    scene.type_text("hel");
    scene.wait(500);
    scene.wait(500);
    scene.press(&["ctrl+u"]);
    scene.type_text("!secret");
    scene.wait(500);
    let contents: Vec<_> = scene
        .sent()
        .iter()
        .map(|it| it["payload"]["content"].clone())
        .collect();
    assert_eq!(contents, [json!("hel"), json!("")]);
    // What one finds on the way back is nobody else's.
    let past = Past {
        entries: vec!["an old secret".to_owned()],
        problem: None,
    };
    scene.input(Input::Past(past));
    scene.press(&["ctrl+u", "ctrl+r"]);
    scene.type_text("old");
    scene.wait(500);
    assert_eq!(scene.sent().len(), 2);
}
