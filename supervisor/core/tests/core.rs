//! Tests of the core from outside: a simulated world in virtual time, scenario scripts, tables, real logs.

mod choose;
mod logs;
mod machine;
mod scenarios;
mod world;
