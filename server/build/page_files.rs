//! Which files of the built page are embedded, and the Rust table that includes them.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// One file of the page.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BuiltFile {
    /// Its path on the server, such as `/assets/page-1a2b.js`.
    pub(crate) path: String,
    /// Where it is.
    pub(crate) plain: PathBuf,
    /// The same, compressed with gzip.
    pub(crate) gzip: Option<PathBuf>,
    /// The same, compressed with brotli.
    pub(crate) brotli: Option<PathBuf>,
}

/// The files below a directory, sorted by path; none if it has no `index.html`.
///
/// Source maps, hidden files and links are left out: nothing is published that the page does not
/// load.
pub(crate) fn find_files(directory: &Path) -> io::Result<Vec<BuiltFile>> {
    if !directory.join("index.html").is_file() {
        return Ok(Vec::new());
    }
    let mut paths = Vec::new();
    collect(directory, "", &mut paths)?;
    paths.sort();
    let is_published = |path: &&String| {
        let compressed = [".gz", ".br"].iter().any(|end| path.ends_with(end));
        !compressed && !path.ends_with(".map")
    };
    let file = |path: &String| {
        let at = |end: &str| directory.join(format!("{}{end}", &path[1..]));
        let sibling = |end: &str| {
            let exists = paths.contains(&format!("{path}{end}"));
            exists.then(|| at(end))
        };
        BuiltFile {
            path: path.clone(),
            plain: at(""),
            gzip: sibling(".gz"),
            brotli: sibling(".br"),
        }
    };
    Ok(paths.iter().filter(is_published).map(file).collect())
}

fn collect(directory: &Path, prefix: &str, paths: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let kind = entry.file_type()?;
        let path = format!("{prefix}/{name}");
        if name.starts_with('.') {
            continue;
        } else if kind.is_dir() {
            collect(&entry.path(), &path, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

/// The table as a Rust expression, a slice of `PageFile`.
pub(crate) fn rust_table(files: &[BuiltFile]) -> String {
    let include = |path: &Path| format!("include_bytes!({path:?})");
    let optional = |path: &Option<PathBuf>| match path {
        Some(path) => format!("Some({})", include(path)),
        None => "None".to_owned(),
    };
    let mut table = "&[\n".to_owned();
    for file in files {
        let (plain, path) = (include(&file.plain), &file.path);
        let (gzip, brotli) = (optional(&file.gzip), optional(&file.brotli));
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "    PageFile {{ path: {path:?}, plain: {plain}, gzip: {gzip}, brotli: {brotli} }},"
        );
    }
    table + "]\n"
}
