//! verl's hazards, one file for each section of the page.

mod combinations;
mod crashes;
mod edges;
mod exits;
mod facts;
mod failures;
mod layouts;
mod patterns;
mod proofs;
mod resume;
mod switches;
