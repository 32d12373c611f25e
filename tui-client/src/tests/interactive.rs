//! Interactive commands: a screen in the screen, and keys for it.

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::app::{Input, Main};
use crate::scene::Scene;

/// An interactive command that runs, with this driver.
fn running(scene: &mut Scene, driver: &str) -> String {
    let propose = json!({
        "tool_name": "shell", "arguments": { "full_command": "vi list", "mode": "pty", "driver": driver },
        "agent": "bot", "risk_level": "safe", "description": "", "requires_approval": true,
        "category": "shell_execute", "assessment": Scene::assessment("vi list", "write"),
    });
    let id = scene.tell("bot", "tool.propose", propose);
    scene.execute(
        &id,
        "vi list",
        "quorum",
        json!({ "mode": "pty", "driver": driver }),
    );
    scene.output(
        &id,
        "stdout",
        "\u{1b}[2J\u{1b}[1;1Hmilk\r\neggs\u{1b}]0;evil\u{7}\u{1b}[5;3H~",
    );
    id
}

fn payloads(scene: &Scene) -> Vec<Value> {
    scene
        .sent()
        .iter()
        .map(|it| it["payload"].clone())
        .collect()
}

#[test]
fn the_driver_types_into_it_and_leaves_with_one_key() {
    let mut scene = Scene::new(80, 24);
    let id = running(&mut scene, "ann");
    assert!(scene.draw().contains("/open shows its screen"));
    scene.type_text("/open");
    scene.press(&["enter"]);
    scene.wait(10_000);
    assert_snapshot!(scene.draw());
    scene.type_text("ia");
    scene.press(&["tab", "ctrl+c", "esc"]);
    scene.input(Input::Paste("two\nlines".to_owned()));
    let resize = json!({ "tool_proposal": id, "resize": { "columns": 78, "rows": 16 } });
    let typed = ["i", "a", "\t", "\u{3}", "\u{1b}", "two\rlines"];
    let typed = typed.map(|data| json!({ "tool_proposal": id, "data": data }));
    let mut expected = vec![resize];
    expected.extend(typed);
    assert_eq!(payloads(&scene), expected);
    scene.press(&["ctrl+]"]);
    assert_eq!(scene.app.main, Main::Stream);
}

#[test]
fn others_watch_the_same_screen_and_their_keys_go_nowhere() {
    let mut scene = Scene::new(80, 24);
    let id = running(&mut scene, "bob");
    scene.tell(
        "bob",
        "tool.input",
        json!({ "tool_proposal": id, "resize": { "columns": 20, "rows": 5 } }),
    );
    scene.output(&id, "stdout", "\u{1b}[1;1Hbread");
    scene.press(&["esc", "up", "enter"]);
    assert!(scene.draw().contains("bread"), "{}", scene.draw());
    scene.type_text("ia");
    assert_eq!(payloads(&scene), [Value::Null; 0]);
    scene.press(&["esc"]);
    assert_eq!(scene.app.main, Main::Stream);
}

#[test]
fn a_gate_that_arrives_while_one_types_there_takes_no_key() {
    let mut scene = Scene::new(80, 24);
    running(&mut scene, "ann");
    scene.press(&["esc", "up", "enter"]);
    scene.gate("rm -rf build", "destructive");
    scene.type_text("aA");
    let kinds: Vec<_> = scene.sent().iter().map(|it| it["type"].clone()).collect();
    assert!(kinds.iter().all(|kind| kind == "tool.input"), "{kinds:?}");
}

#[test]
fn the_command_is_told_when_its_screen_changes_and_only_then() {
    let mut scene = Scene::new(80, 24);
    running(&mut scene, "ann");
    scene.press(&["esc", "up", "enter"]);
    scene.wait(500);
    scene.input(Input::Resize(ratatui::layout::Size::new(100, 30)));
    scene.wait(500);
    // A card takes a part of the room.
    scene.gate("make", "write");
    scene.wait(500);
    let rows: Vec<_> = payloads(&scene)
        .iter()
        .map(|it| it["resize"]["rows"].clone())
        .collect();
    assert_eq!(rows, [16, 22, 15]);
}
