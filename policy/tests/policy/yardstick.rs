//! Tests the policy against commands as coding agents run them.

use crate::measure::{MeasuredCommand, Measurement, Truth};

/// Of the reads in the yardstick, in percent.
const MAX_NEEDLESS_QUESTIONS: f64 = 5.0;

fn list(commands: &[&MeasuredCommand]) -> String {
    let lines: Vec<String> = commands.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn the_yardstick_is_large_and_about_half_of_it_reads() {
    let measurement = Measurement::take();
    let all = measurement.commands.len();
    assert!(all >= 400, "{all}");
    let reads = measurement.count(Truth::Read);
    assert!((all * 2 / 5..=all * 3 / 5).contains(&reads), "{reads}");
    for truth in Truth::ALL {
        assert!(measurement.count(truth) >= 5, "{truth}");
    }
}

#[test]
fn nothing_that_agents_run_is_a_read_by_mistake() {
    let measurement = Measurement::take();
    let false_reads = measurement.false_reads().found;
    assert!(false_reads.is_empty(), "{}", list(&false_reads));
}

#[test]
fn few_of_the_reads_that_agents_run_need_approval() {
    let measurement = Measurement::take();
    let needless = measurement.needless_questions();
    assert!(
        needless.percentage() < MAX_NEEDLESS_QUESTIONS,
        "{needless}\n{}",
        list(&needless.found)
    );
}
