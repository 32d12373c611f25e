//! The screen stays responsive during heavy output, and its memory stays bounded.

use serde_json::json;

use crate::fixture::{TestScreen, propose_read};
use crate::support::TestServer;

/// The limit for the program's memory during heavy output.
const MAX_MEMORY_BYTES: u64 = 256 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn keys_work_during_heavy_output_and_memory_is_bounded() {
    let server = TestServer::start(&[]).await;
    let mut agent = server.create_session_with_agent("owl", json!({})).await;
    let ann = server.invite("ann", &["driver", "admin"], &[]);
    let mut screen = TestScreen::start(&server.link(&ann, Some("owl")), 100, 30);
    screen.wait_for_text("● connected");
    let id = propose_read(&mut agent, "cat everything").await;
    let text: String = (0..600)
        .map(|line| format!("line {line} of something long\n"))
        .collect();
    let mut offset = 0;
    let mut typed = String::new();
    for round in 0..200 {
        let output = json!({ "tool_proposal": id, "stream": "stdout", "text": text, "complete": false, "offset": offset });
        agent.send_and_ack("tool.output", output).await;
        offset += text.len();
        if round % 20 == 19 {
            // The command is still printing; typed text appears on the screen before it ends.
            typed.push(char::from(b'a' + round / 20));
            screen.send_keys(&typed[typed.len() - 1..]);
            screen.wait_for_text(&format!("│ {typed} "));
        }
    }
    assert_eq!(typed, "abcdefghij");
    screen.wait_for_text("running");
    let folded = 200 * 600 - 20;
    screen.wait_for_text(&format!("{folded} lines"));
    let used = screen.peak_memory();
    assert!(used < MAX_MEMORY_BYTES, "{used} bytes");
}
