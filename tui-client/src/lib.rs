//! The terminal client: shows one PVP session in a terminal and lets a person take part in it.

mod ansi;
mod app;
mod call_rows;
pub mod client_terminal;
mod completion;
pub mod config;
mod dialog;
mod draw;
mod editor;
mod event_loop;
mod folded_output;
mod gate_card;
#[cfg(test)]
mod harness;
mod history;
mod host_terminal;
pub mod keys;
mod markdown;
mod notify;
mod offscreen;
mod pager;
mod pages;
mod plain;
mod pty_screen;
pub mod qr_code;
mod requests;
mod scroll;
mod signals;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod text_page;
mod theme;
mod time_zone;

pub use app::slash_manual;
pub use event_loop::{LaunchOptions, run};
pub use offscreen::OffscreenApp;
pub use plain::run_plain;
pub use theme::Palette;
pub use time_zone::DisplayTimeZone;
