//! The policy, command by command: which category each one gets, and that no dangerous one is a read.

mod client_tools;
mod corpus;
mod differential;
mod generator;
mod guards;
mod measure;
mod properties;
mod scratch;
mod sensitive_reads;
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod support;
mod tools;
mod user_file;
mod yardstick;
