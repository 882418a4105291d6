//! How many clusters the tests of one process have at a time. Guests are emulated: each takes a
//! processor's time while it boots or moves.

use std::sync::{Condvar, Mutex, PoisonError};

/// Clusters wait more than they work, so two have room.
const LABS: usize = 2;

static FREE: Mutex<usize> = Mutex::new(LABS);
static GIVEN_BACK: Condvar = Condvar::new();

/// A place for a cluster, as long as this is kept.
pub struct Turn(());

impl Turn {
    pub fn take() -> Self {
        // A test that failed is no reason for the next not to run.
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let free = GIVEN_BACK.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        GIVEN_BACK.notify_one();
    }
}
