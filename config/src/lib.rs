//! Layers, provenance and the trainers' YAML dialect.
