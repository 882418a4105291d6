//! Whole-schema tests.
