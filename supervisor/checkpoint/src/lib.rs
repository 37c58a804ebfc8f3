//! Checkpoint formats read from bytes, never trusted.
