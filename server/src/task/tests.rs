//! Tests of the session task and the directory on a store in memory.

mod faults;
mod joining;
