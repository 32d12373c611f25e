//! The tables of what passed, in docs/bridges.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::clients::{self, Client};
use crate::scenarios::{BROKEN, Scenario};
use crate::support::skip::is_ci;

/// A table: what it is called in its markers, and whose columns it has.
struct ResultTable {
    name: &'static str,
    clients: &'static [&'static Client],
}

/// Every table. Each client is in one of them.
const TABLES: [ResultTable; 2] = [
    ResultTable {
        name: "results",
        clients: clients::UNDER_RUN,
    },
    ResultTable {
        name: "routes",
        clients: clients::OTHER_ROUTES,
    },
];

/// What came of a scenario with a client that failed none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    Passed,
    /// It passed in its own way.
    PassedWith(&'static str),
    /// What it must not run may run, as the scenario expects of it.
    FailsOpen(&'static str),
    Cannot(&'static str),
}

impl Cell {
    /// The word in the table, and what is said below it.
    fn text(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Passed => ("passed", None),
            Self::PassedWith(note) => ("passed", Some(note)),
            Self::FailsOpen(note) => ("fails open", Some(note)),
            Self::Cannot(reason) => ("cannot", Some(reason)),
        }
    }
}

type Cells = BTreeMap<Scenario, Cell>;

/// What is known so far, by the keys of the clients.
static KNOWN: Mutex<BTreeMap<&'static str, Cells>> = Mutex::new(BTreeMap::new());

/// Adds what came of a client. The last one of a table writes it.
pub fn add(client: &'static Client, cells: Vec<(Scenario, Cell)>) {
    // Both tables are in one file.
    let mut known = KNOWN.lock().unwrap();
    known.insert(client.key, cells.into_iter().collect());
    let has = |table: &&ResultTable| table.clients.iter().any(|it| it.key == client.key);
    let table = TABLES.iter().find(has).expect("each client is in one");
    if table.clients.iter().all(|it| known.contains_key(it.key)) {
        table.write(&table.text(&known, |client| client.version()));
    }
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/bridges.md")
}

impl ResultTable {
    /// The page before the table, the table, and the page after it.
    fn split<'a>(&self, page: &'a str) -> [&'a str; 3] {
        let begin = format!(
            "<!-- {}: begin; written by `make test-bridges` -->\n",
            self.name
        );
        let start = page.find(&begin).expect("the page has the markers") + begin.len();
        let end = format!("<!-- {}: end -->", self.name);
        let end = page.find(&end).expect("the page has the markers");
        [&page[..start], &page[start..end], &page[end..]]
    }

    fn write(&self, table: &str) {
        let text = std::fs::read_to_string(page()).unwrap();
        let [before, found, after] = self.split(&text);
        if found == table {
            return;
        }
        std::fs::write(page(), format!("{before}{table}{after}")).unwrap();
        let ci = is_ci(std::env::var("CI").ok().as_deref());
        assert!(
            !ci,
            "docs/bridges.md does not say what was found; run `make test-bridges` and commit it"
        );
    }

    /// What its clients must do.
    fn scenarios(&self) -> &'static [Scenario] {
        Scenario::all_of(self.clients[0])
    }

    /// A column for each client, a row for each promise, and below it what is not simply so, and why.
    fn text(
        &self,
        known: &BTreeMap<&'static str, Cells>,
        version: impl Fn(&Client) -> String,
    ) -> String {
        let row = |first: &str, cell: &mut dyn FnMut(&'static Client) -> String| {
            let cells = self.clients.iter().map(|client| cell(client));
            let cells: Vec<_> = std::iter::once(first.to_owned()).chain(cells).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut notes = Notes::default();
        let mut table = row("", &mut |client| {
            format!("{} {}", client.title, version(client))
        });
        table += &row("---", &mut |_| "---".to_owned()).replace(' ', "");
        table += &row("route", &mut |client| client.route.to_owned());
        table += &row("degree", &mut |client| client.degree.to_owned());
        for scenario in self.scenarios().iter().copied() {
            let cell = |client: &Client| known[client.key][&scenario];
            table += &row(scenario.promise(), &mut |client| notes.cell(cell(client)));
            if scenario == Scenario::Doctor {
                for (hook, promise) in BROKEN {
                    let cell = |client: &Client| broken_cell(client, cell(client), hook);
                    table += &row(promise, &mut |client| notes.cell(cell(client)));
                }
            }
        }
        for (index, note) in notes.0.iter().enumerate() {
            table += &format!("\n({}) {note}\n", index + 1);
        }
        table
    }
}

/// What `pvp doctor` has found of a client whose hook is broken, if it found what was expected.
fn broken_cell(client: &Client, found: Cell, hook: &str) -> Cell {
    let open = client.fails_open.iter().find(|open| open.hook == hook);
    match (found, open) {
        (Cell::Passed | Cell::PassedWith(_), Some(open)) => Cell::FailsOpen(open.note),
        (Cell::Passed | Cell::PassedWith(_), None) => Cell::Passed,
        (Cell::FailsOpen(_) | Cell::Cannot(_), _) => found,
    }
}

/// What is said below the table, each once, in the order in which it is referred to.
#[derive(Default)]
struct Notes(Vec<&'static str>);

impl Notes {
    fn cell(&mut self, cell: Cell) -> String {
        let (word, note) = cell.text();
        let Some(note) = note else {
            return word.to_owned();
        };
        let index = self.0.iter().position(|it| *it == note);
        let index = index.unwrap_or_else(|| {
            self.0.push(note);
            self.0.len() - 1
        });
        format!("{word} ({})", index + 1)
    }
}

#[test]
fn the_page_has_every_client_and_scenario() {
    if std::env::var(crate::RUN).is_ok() {
        // The run writes the table when it has ended.
        return;
    }
    let text = std::fs::read_to_string(page()).unwrap();
    for expected in &TABLES {
        let [_, table, _] = expected.split(&text);
        let promises = expected.scenarios().iter().map(|it| it.promise());
        let columns = expected.clients.iter().flat_map(|it| [it.title, it.route]);
        let notes = expected.clients.iter().flat_map(|it| it.all_notes());
        for said in promises.chain(columns).chain(notes) {
            assert!(table.contains(said), "{}: {said}", expected.name);
        }
    }
}

#[test]
fn the_table_says_what_is_not_simply_so_and_why() {
    let cell = |client: &Client, scenario| match (client.name, scenario) {
        ("claude", Scenario::Edit) => Cell::Cannot("nothing can be edited"),
        (_, Scenario::Reject) => Cell::PassedWith("slowly"),
        _ => Cell::Passed,
    };
    let cells = |client| {
        let all = Scenario::ALL.into_iter();
        all.map(move |it| (it, cell(client, it)))
    };
    let [table, _] = &TABLES;
    let known = table.clients.iter();
    let known = known.map(|it| (it.key, cells(it).collect()));
    let table = table.text(&known.collect(), |_| "1.0".to_owned());
    assert!(table.starts_with("|  | Claude Code 1.0 | "), "{table}");
    let cells_of = |promise: &str| {
        let row = table.lines().find(|line| line.contains(promise));
        let cells: Vec<_> = row.unwrap().trim_matches('|').split('|').collect();
        cells[1..]
            .iter()
            .map(|cell| cell.trim().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(cells_of(Scenario::Approve.promise()), ["passed"; 5]);
    assert_eq!(cells_of(Scenario::Reject.promise()), ["passed (1)"; 5]);
    assert_eq!(
        cells_of(Scenario::Edit.promise())[..2],
        ["cannot (2)", "passed"]
    );
    assert_eq!(
        cells_of("prints garbage")[..2],
        ["fails open (4)", "passed"]
    );
    assert!(
        table.contains("\n(1) slowly\n\n(2) nothing can be edited\n\n(3) "),
        "{table}"
    );
}
