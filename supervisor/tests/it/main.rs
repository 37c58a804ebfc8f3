//! The program as a person uses it: its real binary in a world of its own.

mod bad_input;
mod checkpoints;
mod commands;
mod render;
mod world;
