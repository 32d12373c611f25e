//! Screens as text, and what keys do on them.

mod composing;
mod deciding;
mod everyday_behaviour;
mod interactive;
mod random_steps;
mod reading;
mod screens;
mod small_screens;
mod transcripts;
