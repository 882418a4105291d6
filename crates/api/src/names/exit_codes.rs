//! Exit codes by which one part tells another what happened; any other but 0 is a failure without a name.

/// The guest's serial console is in use by another. Told by the launcher's `console`; read by `godwit console`.
pub const CONSOLE_IN_USE: u8 = 3;
/// The guest has no serial console, or does not run yet. Told by the launcher's `console`; read by `godwit console`.
pub const CONSOLE_MISSING: u8 = 4;
