//! The pure core of supervise: nouns, state, decisions.
