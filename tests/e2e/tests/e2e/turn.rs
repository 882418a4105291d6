//! How many labs there are at a time. Guests are emulated: each takes a processor's time while it boots or moves.

use std::sync::{Condvar, Mutex, PoisonError};

/// Labs wait more than they work, so two have room.
const LABS: usize = 2;

static FREE: Mutex<usize> = Mutex::new(LABS);
static GIVEN_BACK: Condvar = Condvar::new();

/// A place for a lab, or all of them.
pub struct Turn(usize);

impl Turn {
    pub fn beside_another() -> Self {
        Self::take(1)
    }

    pub fn alone() -> Self {
        Self::take(LABS)
    }

    fn take(places: usize) -> Self {
        // A test that failed is no reason for the next not to run.
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = GIVEN_BACK.wait_while(free, |free| *free < places);
        *enough.unwrap_or_else(PoisonError::into_inner) -= places;
        Self(places)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *FREE.lock().unwrap_or_else(PoisonError::into_inner) += self.0;
        GIVEN_BACK.notify_all();
    }
}
