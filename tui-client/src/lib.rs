//! The terminal screen of a PVP session.

mod ansi;
mod app;
mod card;
mod clock;
mod complete;
pub mod config;
mod dialog;
mod draw;
mod editor;
mod errands;
mod history;
pub mod keys;
mod markdown;
mod notify;
mod offscreen;
mod page;
mod pager;
mod pages;
mod pane;
mod plain;
mod printed;
mod run;
#[cfg(test)]
mod scene;
mod screen;
mod scroll;
mod signals;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod theme;
mod words;

pub use app::slash_manual;
pub use clock::Clock;
pub use offscreen::Offscreen;
pub use plain::plain;
pub use run::{Start, run};
pub use theme::Palette;
