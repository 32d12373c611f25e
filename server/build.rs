//! Embeds the built page, `web-client/dist`, into the server. Without it the server still builds, and
//! shows a page that says how to build it.
//!
//! `PVP_PAGE_DIR` names another directory, for packagers who build the page elsewhere.

#[path = "build/page_files.rs"]
mod page_files;

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from);
    let required =
        |name: &str| variable(name).ok_or(io::Error::other(format!("{name} is not set")));
    let directory = match variable("PVP_PAGE_DIR") {
        Some(directory) => directory,
        None => {
            let directory = required("CARGO_MANIFEST_DIR")?.join("../web-client/dist");
            // Cargo builds everything again and again while a path that it watches does not exist.
            // Where it cannot be made, that is all that happens.
            let _ = fs::create_dir_all(&directory);
            directory
        }
    };
    println!("cargo::rerun-if-env-changed=PVP_PAGE_DIR");
    println!("cargo::rerun-if-changed={}", directory.display());
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    // An absolute path, because what is generated lies elsewhere.
    let directory = directory.canonicalize().unwrap_or(directory);
    let table = page_files::rust_table(&page_files::find_files(&directory)?);
    fs::write(required("OUT_DIR")?.join("page_files.rs"), table)
}
