//! Real commands, run, streamed, bounded and ended with everything that they started.

mod cleanup;
mod executor_process;
mod fixture;
mod output;
mod prestarted_reaper;
mod pty;
mod starting;
