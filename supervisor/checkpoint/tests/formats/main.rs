//! Formats: real files stay whole, damaged ones are refused, dangerous ones are named, and nothing panics.

mod arbitrary;
mod build;
mod malice;
mod mutations;
mod plain;
mod real;
mod sources;
mod torn;
