//! A minimal approver: shows each card that waits for a vote and reads the decision from standard
//! input.
//!
//!     read -rs PVP_LINK && export PVP_LINK   # paste it: http://127.0.0.1:3000/?token=…&session=…
//!     cargo run --example watch_and_approve

#![allow(clippy::print_stdout, reason = "an example prints what it does")]

use std::collections::BTreeSet;

use anyhow::Context;
use pvp_client::view::GateCard;
use pvp_client::{ConnectOptions, Connection, ConnectionEvent, Link, View};
use pvp_protocol::{Digest, MessageId};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let link = std::env::var("PVP_LINK").context("set PVP_LINK to a link into a session")?;
    let (connection, mut events) =
        Connection::open(Link::parse(&link)?, ConnectOptions::default()).await?;
    let mut answers = BufReader::new(tokio::io::stdin()).lines();
    let mut view = View::default();
    // Cards already shown, with the digest of the action; an amended command is shown again.
    let mut shown: BTreeSet<(MessageId, Digest)> = BTreeSet::new();
    let mut open: Option<GateCard> = None;
    println!("watching as {}", connection.participant());
    loop {
        if open.is_none() {
            open = view
                .awaiting_my_vote()
                .find(|card| !shown.contains(&(card.gate.clone(), card.digest)))
                .cloned();
            if let Some(card) = &open {
                shown.insert((card.gate.clone(), card.digest));
                print_card(card);
            }
        }
        tokio::select! {
            event = events.next() => match event.context("the connection ended")? {
                ConnectionEvent::Connected { resumed: false } => view = View::default(),
                ConnectionEvent::Message { envelope: Some(envelope), .. } => view.fold(&envelope),
                ConnectionEvent::Disconnected { why } => println!("lost the connection ({why}), coming back"),
                ConnectionEvent::RecordWarning(warning) => println!("{warning}"),
                ConnectionEvent::Ended(_) => return Ok(()),
                ConnectionEvent::Connected { resumed: true } | ConnectionEvent::Message { envelope: None, .. } => {}
            },
            answer = answers.next_line(), if open.is_some() => {
                let Some(answer) = answer? else { return Ok(()) };
                if let Some(card) = open.take() {
                    vote(&connection, &card, answer.trim()).await?;
                }
            }
        }
        // Somebody else may have decided in the meantime.
        if open
            .as_ref()
            .is_some_and(|card| view.card(&card.gate).is_none())
        {
            println!("decided already");
            open = None;
        }
    }
}

fn print_card(card: &GateCard) {
    println!("\n{}", card.requested.shown);
    println!("{:?}: {}", card.category, card.message);
    println!(
        "{} of {}; {}",
        card.received, card.required, card.at_deadline
    );
    println!("y to approve, anything else is the reason why not:");
}

async fn vote(connection: &Connection, card: &GateCard, answer: &str) -> anyhow::Result<()> {
    let receipt = match answer {
        "" => return Ok(()),
        "y" => connection.approve(&card.gate, card.digest, None).await?,
        reason => connection.reject(&card.gate, card.digest, reason).await?,
    };
    // The acknowledgement arrives while events are read, so waiting for it here would block.
    tokio::spawn(async move {
        match receipt.ack().await {
            Ok(_) => println!("counted"),
            Err(error) => println!("not counted: {error}"),
        }
    });
    Ok(())
}
