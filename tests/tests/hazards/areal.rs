//! AReaL's hazards, one file for each section of the page.

mod configurations;
mod crashes;
mod lines;
mod resumes;
mod sets;
