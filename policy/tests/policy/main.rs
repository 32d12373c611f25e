//! The policy, command by command: which category each one gets, and that no dangerous one is a read.

mod corpus;
mod differential;
mod properties;
mod support;
mod user_file;
