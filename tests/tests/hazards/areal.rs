//! AReaL's hazards, one file for each section of the page.

mod configurations;
mod crashes;
mod exports;
mod generations;
mod jobs;
mod lines;
mod megatron;
mod processes;
mod resumes;
mod sets;
