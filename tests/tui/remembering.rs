//! What was sent is there again in the next screen.

use serde_json::json;

use crate::kit::desk::Desk;
use crate::screen::{Screen, Stage};

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_on_one_screen_is_had_again_on_the_next() {
    let stage = Stage::new(json!({})).await;
    let ann = stage.invite("ann", &["driver", "admin"]);
    let link = stage.server.link(&ann, Some("owl"));
    let desk = Desk::new();
    let state = desk.here().join("state");
    let environment = [("XDG_STATE_HOME", state.to_str().unwrap())];
    let begin = |more: &[&str]| {
        let arguments = [&[link.as_str()], more].concat();
        let screen = Screen::start_with(&arguments, &environment, 100, 30);
        screen.sees("● connected");
        screen
    };
    let mut first = begin(&[]);
    let mut second = begin(&[]);
    first.keys("!echo 'from the first'\r");
    first.sees("bang exec done");
    second.keys("!echo 'from the second'\r");
    second.sees("bang exec done");
    second.keys(" !echo 'a secret'\r");
    second.sees("out│ a secret");
    for mut screen in [first, second] {
        screen.keys("/quit\r");
        assert!(screen.ended().0);
    }
    let path = state.join("pvp/history");
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.dedup();
    assert_eq!(
        lines,
        [
            r#""!echo 'from the first'""#,
            r#""!echo 'from the second'""#,
            r#""/quit""#
        ]
    );

    std::fs::write(&path, format!("{text}garbage\n")).unwrap();
    let mut third = begin(&[]);
    third.sees("1 line of your history could not be read");
    third.keys("\u{12}first");
    third.sees("│ !echo 'from the first'");
    third.keys("\r\u{15}\u{3}\u{3}");
    assert!(third.ended().0);

    let off = desk.here().join("off.toml");
    std::fs::write(&off, "history = false\n").unwrap();
    let mut fourth = begin(&["--config", off.to_str().unwrap()]);
    fourth.keys("!echo unkept\r");
    fourth.sees("bang exec done");
    fourth.keys("\u{12}first");
    fourth.sees("Nothing sent before has: first");
    fourth.keys("\u{7}/quit\r");
    assert!(fourth.ended().0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}
