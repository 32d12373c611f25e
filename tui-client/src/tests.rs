//! Screens as text, and what keys do on them.

mod anything;
mod composing;
mod deciding;
mod edges;
mod interactive;
mod reading;
mod relied_on;
mod screens;
mod stories;
