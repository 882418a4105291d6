//! todo
pub fn agent() {}
