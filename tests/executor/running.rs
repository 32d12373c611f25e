//! Running real commands: streaming, limits, and ending everything that they started.

mod cleanup;
mod executor_process;
mod fixture;
mod output;
mod prestarted_reaper;
mod pty;
mod starting;
