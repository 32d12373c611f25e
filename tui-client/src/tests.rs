//! Tests of the whole screen: keys and messages in, the drawn text and sent messages out.

mod composing;
mod deciding;
mod everyday_behaviour;
mod interactive;
mod random_steps;
mod reading;
mod screens;
mod small_screens;
mod tool_calls;
mod transcripts;
