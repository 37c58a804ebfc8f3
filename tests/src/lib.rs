//! End to end tests, fake programs, scenarios, real trainers.
