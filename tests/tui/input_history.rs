//! The input history survives a restart of the screen.

use serde_json::json;

use crate::fixture::{TestScreen, TuiFixture};
use crate::support::cli::CliEnv;

#[tokio::test(flavor = "multi_thread")]
async fn sent_texts_can_be_recalled_on_the_next_screen() {
    let fixture = TuiFixture::new(json!({})).await;
    let ann = fixture.invite("ann", &["driver", "admin"]);
    let link = fixture.server.link(&ann, Some("owl"));
    let cli = CliEnv::new();
    let state = cli.workdir().join("state");
    let environment = [("XDG_STATE_HOME", state.to_str().unwrap())];
    let begin = |more: &[&str]| {
        let arguments = [&[link.as_str()], more].concat();
        let screen = TestScreen::start_with(&arguments, &environment, 100, 30);
        screen.wait_for_text("● connected");
        screen
    };
    let mut first = begin(&[]);
    let mut second = begin(&[]);
    first.send_keys("!echo 'from the first'\r");
    first.wait_for_text("your command finished");
    second.send_keys("!echo 'from the second'\r");
    second.wait_for_text("your command finished");
    second.send_keys(" !echo 'a secret'\r");
    second.wait_for_text("out│ a secret");
    for mut screen in [first, second] {
        screen.send_keys("/quit\r");
        assert!(screen.wait_exit().0);
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
    third.wait_for_text("1 line of the input history could not be read");
    third.send_keys("\u{12}first");
    third.wait_for_text("│ !echo 'from the first'");
    third.send_keys("\r\u{15}\u{3}\u{3}");
    assert!(third.wait_exit().0);

    let off = cli.workdir().join("off.toml");
    std::fs::write(&off, "history = false\n").unwrap();
    let mut fourth = begin(&["--config", off.to_str().unwrap()]);
    fourth.send_keys("!echo unkept\r");
    fourth.wait_for_text("your command finished");
    fourth.send_keys("\u{12}first");
    fourth.wait_for_text("No match in the input history for: first");
    fourth.send_keys("\u{7}/quit\r");
    assert!(fourth.wait_exit().0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}
