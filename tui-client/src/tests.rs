//! Screens as text, and what keys do on them.

mod composing;
mod deciding;
mod interactive;
mod reading;
mod screens;
mod stories;
