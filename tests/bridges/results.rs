//! The table of what passed, in docs/bridges.md.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use crate::clients::{self, Client};
use crate::scenarios::Scenario;
use crate::support::skip::is_ci;

const BEGIN: &str = "<!-- results: begin; written by `make test-bridges` -->\n";
const END: &str = "<!-- results: end -->";

/// What came of a scenario with a client that failed none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    Passed,
    Cannot(&'static str),
}

type Cells = BTreeMap<Scenario, Cell>;

/// What is known so far, by the names of the clients.
static KNOWN: Mutex<BTreeMap<&'static str, Cells>> = Mutex::new(BTreeMap::new());

/// Adds what came of a client. The last of them writes the table.
pub fn add(client: &'static Client, cells: Vec<(Scenario, Cell)>) {
    let mut known = KNOWN.lock().unwrap();
    known.insert(client.name, cells.into_iter().collect());
    if known.len() == clients::ALL.len() {
        write(&table(&known, |client| client.version()));
    }
}

fn write(table: &str) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/bridges.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("the page has the markers");
    let (found, after) = rest.split_once(END).expect("the page has the markers");
    if found == table {
        return;
    }
    std::fs::write(&page, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    let ci = is_ci(std::env::var("CI").ok().as_deref());
    assert!(
        !ci,
        "docs/bridges.md does not say what was found; run `make test-bridges` and commit it"
    );
}

/// A column for each client, a row for each scenario, and below it what cannot be, and why.
fn table(known: &BTreeMap<&'static str, Cells>, version: impl Fn(&Client) -> String) -> String {
    let row = |first: &str, cell: &dyn Fn(&Client) -> String| {
        let cells = clients::ALL.iter().map(|client| cell(client));
        let cells: Vec<_> = std::iter::once(first.to_owned()).chain(cells).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut reasons: Vec<&'static str> = Vec::new();
    let mut table = row("", &|client| {
        format!("{} {}", client.title, version(client))
    });
    table += &row("---", &|_| "---".to_owned()).replace(' ', "");
    table += &row("route", &|client| client.route.to_owned());
    table += &row("degree", &|client| client.degree.to_owned());
    for scenario in Scenario::ALL {
        for client in clients::ALL {
            if let Some(Cell::Cannot(reason)) = known[client.name].get(&scenario)
                && !reasons.contains(reason)
            {
                reasons.push(reason);
            }
        }
        table += &row(
            scenario.promise(),
            &|client| match &known[client.name][&scenario] {
                Cell::Passed => "passed".to_owned(),
                Cell::Cannot(reason) => {
                    let number = reasons.iter().position(|it| it == reason).unwrap() + 1;
                    format!("cannot ({number})")
                }
            },
        );
    }
    for (index, reason) in reasons.iter().enumerate() {
        table += &format!("\n({}) {reason}\n", index + 1);
    }
    table
}

#[test]
fn the_page_has_every_client_and_scenario() {
    if std::env::var(crate::RUN).is_ok() {
        // The run writes the table when it has ended.
        return;
    }
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/bridges.md");
    let text = std::fs::read_to_string(page).unwrap();
    let (_, rest) = text.split_once(BEGIN).unwrap();
    let (table, _) = rest.split_once(END).unwrap();
    for client in clients::ALL {
        assert!(table.contains(client.title), "{}", client.title);
    }
    for scenario in Scenario::ALL {
        assert!(table.contains(scenario.promise()), "{scenario:?}");
    }
}

#[test]
fn the_table_says_what_cannot_be_and_why() {
    let cell = |scenario| match scenario == Scenario::Edit {
        true => Cell::Cannot("nothing can be edited"),
        false => Cell::Passed,
    };
    let cells = || Scenario::ALL.into_iter().map(|it| (it, cell(it))).collect();
    let known = clients::ALL.iter().map(|it| (it.name, cells())).collect();
    let table = table(&known, |_| "1.0".to_owned());
    assert!(table.starts_with("|  | Claude Code 1.0 | "), "{table}");
    assert!(table.contains("| cannot (1) |"), "{table}");
    assert!(table.ends_with("\n(1) nothing can be edited\n"), "{table}");
}
