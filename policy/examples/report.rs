//! Prints how the policy does on commands as coding agents run them: `make policy-report`.

#![expect(clippy::print_stdout, reason = "the numbers are the result")]

#[path = "../tests/policy/measure.rs"]
mod measure;

use measure::{Measurement, Share, Truth};

fn main() {
    let measurement = Measurement::take();
    print_counts(&measurement);
    let needless = measurement.needless_questions();
    let with_trying = measurement.needless_questions_with_trying();
    let false_reads = measurement.false_reads();
    let missed = measurement.missed_destructive();
    let over_severe = measurement.over_severe();
    println!("| measure | result | target |");
    println!("|---|---|---|");
    println!("| needless questions, among reads | {needless} | under 5% |");
    println!("| the same with `try_unknown`, among reads and tries | {with_trying} | |");
    println!("| false reads, among all that are not reads | {false_reads} | 0 |");
    let recognised = measurement.recognised_as_destructive();
    println!("| destructive and blocked commands recognised | {recognised} | at least 90% |");
    println!("| called destructive or blocked without being it | {over_severe} | |");
    print_list("Needless questions", &needless);
    print_list("Needless questions with `try_unknown`", &with_trying);
    print_list("False reads", &false_reads);
    print_list("Destructive commands that were missed", &missed);
    print_list("Called more severe than they are", &over_severe);
}

fn print_counts(measurement: &Measurement) {
    println!("| truth | commands |");
    println!("|---|---|");
    for truth in Truth::ALL {
        println!("| {truth} | {} |", measurement.count(truth));
    }
    println!("| all | {} |", measurement.commands.len());
    println!();
}

fn print_list(title: &str, share: &Share<'_>) {
    println!("\n{title}: {}", share.found.len());
    for command in &share.found {
        println!("  - {command}");
    }
}
