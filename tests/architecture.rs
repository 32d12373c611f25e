//! Which crate may depend on what, and that names in the code and the docs agree.

#![allow(
    clippy::unwrap_used,
    reason = "whatever is not as expected ends the test"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The pure crates, and everything they may use.
const PURE_CRATES: &[(&str, &[&str])] = &[
    (
        "protocol",
        &[
            "data-encoding",
            "jiff",
            "schemars",
            "serde",
            "serde_json",
            "serde_path_to_error",
            "sha2",
            "strsim",
            "strum",
            "thiserror",
            "ts-rs",
            "uuid",
        ],
    ),
    (
        "policy",
        &[
            "pvp-protocol",
            "regex",
            "serde",
            "sha2",
            "thiserror",
            "toml",
            "tree-sitter",
            "tree-sitter-bash",
        ],
    ),
    (
        "session",
        &[
            "data-encoding",
            "hashbrown",
            "pvp-policy",
            "pvp-protocol",
            "serde",
            "serde_json",
            "thiserror",
        ],
    ),
];

/// The crates that do I/O, and which of ours they may use.
const IO_CRATES: &[(&str, &[&str])] = &[
    ("clock", &["pvp-protocol"]),
    ("notify", &["pvp-clock", "pvp-protocol"]),
    (
        "server",
        &[
            "pvp-clock",
            "pvp-notify",
            "pvp-policy",
            "pvp-protocol",
            "pvp-session",
        ],
    ),
    ("client", &["pvp-clock", "pvp-protocol"]),
    (
        "agent",
        &["pvp-client", "pvp-clock", "pvp-policy", "pvp-protocol"],
    ),
    (
        "bridge",
        &[
            "pvp-agent",
            "pvp-client",
            "pvp-clock",
            "pvp-policy",
            "pvp-protocol",
        ],
    ),
    ("tui-client", &["pvp-client", "pvp-protocol"]),
    (
        ".",
        &[
            "pvp-agent",
            "pvp-bridge",
            "pvp-client",
            "pvp-clock",
            "pvp-policy",
            "pvp-protocol",
            "pvp-server",
            "pvp-session",
            "pvp-tui",
        ],
    ),
];

/// Type names that may be defined more than once, each with the reason.
const SHARED_TYPE_NAMES: &[(&str, &str)] = &[];

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn manifest(directory: &str) -> toml::Table {
    let path = repository().join(directory).join("Cargo.toml");
    std::fs::read_to_string(path).unwrap().parse().unwrap()
}

fn dependencies(directory: &str) -> BTreeSet<String> {
    let manifest = manifest(directory);
    for section in ["build-dependencies", "target"] {
        assert!(!manifest.contains_key(section), "{directory} has {section}");
    }
    manifest["dependencies"]
        .as_table()
        .unwrap()
        .keys()
        .cloned()
        .collect()
}

#[test]
fn pure_crates_depend_on_no_io_crate() {
    for (directory, allowed) in PURE_CRATES {
        for dependency in dependencies(directory) {
            assert!(
                allowed.contains(&dependency.as_str()),
                "{directory} may not use {dependency}"
            );
        }
    }
}

#[test]
fn our_crates_depend_on_each_other_in_one_direction() {
    for (directory, allowed) in IO_CRATES {
        for dependency in dependencies(directory) {
            let ours = dependency.starts_with("pvp-");
            let permitted = allowed.contains(&dependency.as_str());
            assert!(!ours || permitted, "{directory} may not use {dependency}");
        }
    }
}

#[test]
fn every_crate_is_in_one_of_the_lists_and_keeps_the_lints() {
    let workspace = manifest(".");
    let members = workspace["workspace"]["members"].as_array().unwrap();
    let listed: Vec<_> = PURE_CRATES
        .iter()
        .chain(IO_CRATES)
        .map(|(directory, _)| *directory)
        .collect();
    for member in members {
        let member = member.as_str().unwrap();
        assert!(listed.contains(&member), "say what {member} may depend on");
        assert_eq!(
            manifest(member)["lints"]["workspace"].as_bool(),
            Some(true),
            "{member}"
        );
    }
}

#[test]
fn pure_crates_forbid_clocks_files_and_randomness() {
    for (directory, _) in PURE_CRATES {
        let path = repository().join(directory).join("clippy.toml");
        let fences: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        let fenced: BTreeSet<_> = fences["disallowed-methods"]
            .as_array()
            .unwrap()
            .iter()
            .map(|method| method["path"].as_str().unwrap().to_owned())
            .collect();
        for method in [
            "std::time::SystemTime::now",
            "std::time::Instant::now",
            "uuid::Uuid::new_v4",
            "std::env::var",
            "std::fs::read",
            "std::collections::HashMap::iter",
        ] {
            assert!(
                fenced.contains(method),
                "{directory} does not forbid {method}"
            );
        }
    }
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_word_char(c))
        .filter(|word| !word.is_empty())
}

/// Whether a line defines the function `name`.
fn defines_function(line: &str, name: &str) -> bool {
    line.split_once("fn ")
        .is_some_and(|(_, rest)| words(rest).next() == Some(name))
}

/// Whether an `impl` block of `type_name` defines `method`.
fn defines_method(source: &str, type_name: &str, method: &str) -> bool {
    let blocks = source.split("\nimpl").skip(1);
    let blocks = blocks.filter_map(|block| block.split("\n}").next()?.split_once('{'));
    blocks
        .filter(|(header, _)| words(header).any(|word| word == type_name))
        .any(|(_, body)| body.lines().any(|line| defines_function(line, method)))
}

/// What is wrong with an item such as `path/to/file.rs: name` or `path/to/file.rs: Type::method`.
fn problem_with_item(item: &str) -> Option<String> {
    let Some((path, name)) = item.split_once(".rs: ") else {
        return Some(format!("`{item}` is not of the form `path.rs: name`"));
    };
    let path = format!("{path}.rs");
    let Ok(source) = std::fs::read_to_string(repository().join(&path)) else {
        return Some(format!("{path} does not exist"));
    };
    let defined = match name.split_once("::") {
        Some((type_name, method)) => defines_method(&source, type_name, method),
        None => source
            .lines()
            .any(|line| !line.starts_with(' ') && defines_function(line, name)),
    };
    (!defined).then(|| format!("{path} does not define {name}"))
}

#[test]
fn every_item_of_follow_one_command_exists() {
    let page = std::fs::read_to_string(repository().join("docs/architecture.md")).unwrap();
    let (_, section) = page.split_once("\n## Follow one command\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let quoted = section.split('`').skip(1).step_by(2);
    let items: Vec<_> = quoted.filter(|text| text.contains(".rs")).collect();
    assert!(items.len() >= 20, "only {} items were found", items.len());
    let problems: Vec<_> = items.into_iter().filter_map(problem_with_item).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Where a type is defined.
struct TypeDefinition {
    name: String,
    /// Relative to the repository, with forward slashes.
    path: String,
    line: usize,
}

/// All Rust files below a directory, without build output and generated files.
fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            let skipped = matches!(name, "target" | "generated" | "node_modules");
            if !skipped && !name.starts_with('.') {
                files.extend(rust_files(&path));
            }
        } else if name.ends_with(".rs") {
            files.push(path);
        }
    }
    files
}

/// The files of the server above its store, without their tests, with their text.
fn server_files_above_the_store() -> Vec<(String, String)> {
    let server = repository().join("server/src");
    let mut files = Vec::new();
    for path in rust_files(&server) {
        let name = path.strip_prefix(&server).unwrap().to_str().unwrap();
        let is_test = name.ends_with("tests.rs") || name.contains("tests/");
        if name != "store.rs" && !name.starts_with("store/") && !is_test {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]").next().unwrap();
            files.push((name.to_owned(), code.to_owned()));
        }
    }
    assert!(files.len() > 30, "only {} files were found", files.len());
    files
}

#[test]
fn only_the_sqlite_store_knows_sqlite() {
    for directory in ["server", "session", "client", "agent", "tui-client", "src"] {
        for path in rust_files(&repository().join(directory)) {
            let relative = path.strip_prefix(repository()).unwrap().to_str().unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            let inside = relative.starts_with("server/src/store/sqlite");
            assert!(
                inside || !text.contains("rusqlite"),
                "{relative} names rusqlite; only server/src/store/sqlite/ may"
            );
        }
    }
    for directory in ["protocol", "clock", "policy", "session", "client", "agent"] {
        assert!(!dependencies(directory).contains("rusqlite"), "{directory}");
    }
}

#[test]
fn nothing_above_the_store_blocks() {
    let blocking = [
        "spawn_blocking",
        "block_in_place",
        "blocking_recv",
        "blocking_send",
        "block_on",
        "blocking_lock",
        "std::fs",
        "std::thread",
        "thread::sleep",
        "reqwest",
        "SqliteTokens",
    ];
    for (file, text) in server_files_above_the_store() {
        for word in blocking {
            assert!(!text.contains(word), "server/src/{file} uses {word}");
        }
    }
}

/// The keyword and the name of the type that a line defines.
fn defined_type(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1,
        Some(rest) => rest,
        None => line,
    };
    let (keyword, rest) = line.trim_start().split_once(' ')?;
    let name = words(rest).next()?;
    let is_name = rest.starts_with(name) && name.starts_with(|c: char| c.is_ascii_uppercase());
    let is_definition = matches!(keyword, "struct" | "enum" | "trait" | "union" | "type");
    (is_definition && is_name).then_some((keyword, name))
}

fn indentation(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Whether a `type` line belongs to an `impl` or `trait` block.
fn is_associated_type(lines: &[&str], number: usize) -> bool {
    let depth = indentation(lines[number]);
    let enclosing = lines[..number].iter().rev().find(|line| {
        let starts_item = line
            .trim_start()
            .starts_with(|c: char| c.is_ascii_lowercase());
        starts_item && indentation(line) < depth && line.trim() != "where"
    });
    enclosing.is_some_and(|line| words(line).any(|word| matches!(word, "impl" | "trait")))
}

fn type_definitions() -> Vec<TypeDefinition> {
    let mut definitions = Vec::new();
    for file in rust_files(repository()) {
        let source = std::fs::read_to_string(&file).unwrap();
        let path = file.strip_prefix(repository()).unwrap();
        let path = path.to_str().unwrap().replace('\\', "/");
        let lines: Vec<_> = source.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            match defined_type(line) {
                Some(("type", _)) if is_associated_type(&lines, number) => {}
                Some((_, name)) => definitions.push(TypeDefinition {
                    name: name.to_owned(),
                    path: path.clone(),
                    line: number + 1,
                }),
                None => {}
            }
        }
    }
    definitions
}

#[test]
fn no_type_name_is_defined_twice() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for TypeDefinition { name, path, line } in type_definitions() {
        places
            .entry(name)
            .or_default()
            .push(format!("{path}:{line}"));
    }
    assert!(places.len() > 500, "only {} types were found", places.len());
    places.retain(|_, places| places.len() > 1);
    for (name, reason) in SHARED_TYPE_NAMES {
        let needed = places.remove(*name).is_some();
        assert!(
            needed,
            "{name} is defined once ({reason}); remove it from the list"
        );
    }
    let places: Vec<_> = places
        .iter()
        .map(|(name, places)| format!("{name}: {}", places.join(", ")))
        .collect();
    assert!(places.is_empty(), "defined twice:\n{}", places.join("\n"));
}

#[test]
fn the_glossary_names_types_that_exist() {
    let page = std::fs::read_to_string(repository().join("docs/glossary.md")).unwrap();
    let rows: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>())
        .skip(1)
        .collect();
    assert!(rows.len() >= 30, "only {} words were found", rows.len());
    let definitions = type_definitions();
    let mut seen = BTreeSet::new();
    for row in rows {
        let (word, name) = (row[1], row[3].trim_matches('`'));
        assert!(seen.insert(word.to_owned()), "`{word}` is there twice");
        let (crate_name, type_name) = name.split_once("::").unwrap();
        let source = format!("{crate_name}/src/");
        let exists = definitions
            .iter()
            .any(|found| found.name == type_name && found.path.starts_with(&source));
        assert!(
            exists,
            "`{word}`: there is no type {type_name} in {crate_name}"
        );
    }
}

/// The most fields that a struct may have without a comment on each.
const MAX_FIELDS_WITHOUT_DOCS: usize = 5;

/// The name of the struct with named fields that begins on this line.
fn begun_struct(line: &str) -> Option<&str> {
    let body = line.strip_suffix(" {")?;
    let (before, after) = body.trim_start().split_once("struct ")?;
    let is_definition = before.is_empty() || before.starts_with("pub");
    is_definition.then(|| words(after).next())?
}

/// The name of the field that stands on this line.
fn field_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) => rest.split_once(' ')?.1,
        None => line,
    };
    let (name, _) = line.split_once(": ")?;
    name.chars().all(is_word_char).then_some(name)
}

/// The fields of the struct that begins on the first of these lines, and whether each has a
/// comment. What a command line flattens is documented where it is defined.
fn documented_fields<'a>(lines: &[&'a str]) -> Vec<(&'a str, bool)> {
    let outer = indentation(lines[0]);
    let inside = lines[1..].iter();
    let inside = inside.take_while(|line| line.trim().is_empty() || indentation(line) > outer);
    let (mut fields, mut documented) = (Vec::new(), false);
    for line in inside.filter(|line| indentation(line) == outer + 4) {
        let text = line.trim_start();
        if let Some(name) = field_name(line) {
            fields.push((name, std::mem::take(&mut documented)));
        } else {
            documented |= text.starts_with("///")
                || text.starts_with("#[command(flatten")
                || text.starts_with("#[command(subcommand");
        }
    }
    fields
}

#[test]
fn every_field_of_a_large_struct_says_what_it_is() {
    let (mut large, mut silent) = (0, Vec::new());
    for path in rust_files(repository()) {
        let source = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<_> = source.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let Some(name) = begun_struct(line) else {
                continue;
            };
            let fields = documented_fields(&lines[number..]);
            if fields.len() <= MAX_FIELDS_WITHOUT_DOCS {
                continue;
            }
            large += 1;
            let missing = fields.iter().filter(|(_, documented)| !documented);
            silent
                .extend(missing.map(|(field, _)| format!("{name}.{field} in {}", path.display())));
        }
    }
    assert!(large > 100, "only {large} large structs were found");
    assert_eq!(silent, Vec::<String>::new());
}
