//! The smallest approver: shows each card that waits and asks for a yes on standard input.
//!
//!     cargo run --example watch_and_approve -- 'http://127.0.0.1:3000/?token=…&session=…'

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::collections::BTreeSet;

use anyhow::Context;
use pvp_client::view::Card;
use pvp_client::{Connection, Event, Link, Options, View};
use pvp_protocol::{Digest, MessageId};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let link = std::env::args()
        .nth(1)
        .context("give a link into a session")?;
    let (connection, mut events) =
        Connection::open(Link::parse(&link)?, Options::default()).await?;
    let mut answers = BufReader::new(tokio::io::stdin()).lines();
    let mut view = View::default();
    // What was asked already, as it was shown: an edited command is asked again.
    let mut asked: BTreeSet<(MessageId, Digest)> = BTreeSet::new();
    let mut open: Option<Card> = None;
    println!("watching as {}", connection.participant());
    loop {
        if open.is_none() {
            open = view
                .waiting_for_me()
                .find(|card| !asked.contains(&(card.gate.clone(), card.digest)))
                .cloned();
            if let Some(card) = &open {
                asked.insert((card.gate.clone(), card.digest));
                show(card);
            }
        }
        tokio::select! {
            event = events.next() => match event.context("the connection ended")? {
                Event::Up { resumed: false } => view = View::default(),
                Event::Told { envelope: Some(envelope), .. } => view.fold(&envelope),
                Event::Down { why } => println!("lost the connection ({why}), coming back"),
                Event::Ended(_) => return Ok(()),
                Event::Up { resumed: true } | Event::Told { envelope: None, .. } => {}
            },
            answer = answers.next_line(), if open.is_some() => {
                let Some(answer) = answer? else { return Ok(()) };
                if let Some(card) = open.take() {
                    decide(&connection, &card, answer.trim()).await?;
                }
            }
        }
        // Somebody else may have decided meanwhile.
        if open
            .as_ref()
            .is_some_and(|card| view.card(&card.gate).is_none())
        {
            println!("decided already");
            open = None;
        }
    }
}

fn show(card: &Card) {
    println!("\n{}", card.asked.shown);
    println!("{:?}: {}", card.category, card.message);
    println!(
        "{} of {}; {}",
        card.received, card.required, card.at_deadline
    );
    println!("y to approve, anything else is the reason why not:");
}

async fn decide(connection: &Connection, card: &Card, answer: &str) -> anyhow::Result<()> {
    let receipt = match answer {
        "" => return Ok(()),
        "y" => connection.approve(&card.gate, card.digest, None).await?,
        reason => connection.reject(&card.gate, card.digest, reason).await?,
    };
    // Answers come among the events, so this does not wait for one.
    tokio::spawn(async move {
        match receipt.answer().await {
            Ok(_) => println!("counted"),
            Err(error) => println!("not counted: {error}"),
        }
    });
    Ok(())
}
