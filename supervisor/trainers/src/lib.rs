//! One adapter per trainer framework.
