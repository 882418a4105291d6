//! The terminal that a person sits at, while every key goes to the guest.

use std::io::{IsTerminal as _, Stdin};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};

/// A terminal in raw mode; dropped, it is as it was.
pub struct Terminal {
    stdin: Stdin,
    before: Termios,
}

impl Terminal {
    /// None if standard input is no terminal.
    pub fn raw() -> std::io::Result<Option<Self>> {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(&stdin)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Drain, &raw)?;
        Ok(Some(Self { stdin, before }))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // One that is gone needs nothing. What was typed and not read was for the guest, not for the shell.
        let _ = tcsetattr(&self.stdin, OptionalActions::Flush, &self.before);
        if std::io::stderr().is_terminal() {
            // The guest may have left the cursor anywhere.
            eprintln!();
        }
    }
}
