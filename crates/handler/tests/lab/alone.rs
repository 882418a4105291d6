//! Tests of how long something takes, or of what a person waits for: no other lab takes their time.

mod console;
mod crowd;
mod life;
mod vnics;
