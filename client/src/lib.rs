//! A participant's side of a PVP session: the connection, and the pure view that any screen folds.

pub mod view;

pub use view::View;
