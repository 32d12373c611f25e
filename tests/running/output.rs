//! What commands print: exact, in order, and never more than there is room for.

use pvp_agent::run::{Bounds, Overflow, Stopped};
use pvp_protocol::payload::Stream;

use crate::place::{Place, ample, text};

#[tokio::test(flavor = "multi_thread")]
async fn output_is_cut_at_exactly_the_cap_and_the_command_is_ended() {
    let place = Place::new();
    let bounds = Bounds {
        output_bytes: 1_000_003,
        ..ample()
    };
    let line = "yes out & yes err >&2 & wait";
    let (finish, pieces) = place.run(&place.errand(line), bounds).await;
    let finish = finish.unwrap();
    let told: usize = pieces.iter().map(|piece| piece.text.len()).sum();
    assert_eq!(told, 1_000_003);
    assert_eq!(finish.stdout.bytes + finish.stderr.bytes, 1_000_003);
    assert_eq!(finish.stopped, Some(Stopped::PrintedTooMuch));
    assert_eq!(place.alive(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn output_may_be_truncated_while_the_command_goes_on() {
    let place = Place::new();
    let bounds = Bounds {
        output_bytes: 100_003,
        on_overflow: Overflow::Truncate,
        ..ample()
    };
    let line = "seq 1 200000; echo done >&2; touch finished; exit 4";
    let (finish, pieces) = place.run(&place.errand(line), bounds).await;
    let finish = finish.unwrap();
    assert_eq!((finish.code, finish.stopped), (Some(4), None));
    assert!(place.workspace.path().join("finished").exists());
    let whole: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert_eq!(text(&pieces, Stream::Stdout), whole[..100_003]);
    assert_eq!(text(&pieces, Stream::Stderr), "");
    let (out, err) = (finish.stdout, finish.stderr);
    assert_eq!((out.bytes, out.cut), (100_003, true));
    assert_eq!(out.bytes + out.untold, whole.len() as u64);
    assert!(whole.starts_with(&out.head) && whole.ends_with(&out.tail) && out.tail.len() > 10_000);
    // There was no room left for what came last, but it is in the summary.
    assert_eq!((err.bytes, err.cut, err.tail.as_str()), (0, true, "done\n"));
}
