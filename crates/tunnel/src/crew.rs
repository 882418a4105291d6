//! Threads for work that blocks. One that has done its work waits a while for more: to start a thread and to end it takes longer than
//! most of what a channel needs to open, and the parallel connections of a migration come together.
//!
//! A crew belongs to one listener or forward: a thread stays in the network namespace in which it was started.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Enough for a handshake in a debug build; what moves bytes needs far less.
const STACK: usize = 512 << 10;
/// How long a thread waits for more work.
const PATIENCE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

#[derive(Clone, Default)]
pub(crate) struct Crew(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    came: Condvar,
}

/// Invariant: there is never more work than threads that wait for it.
#[derive(Default)]
struct Queue {
    waiting: usize,
    work: VecDeque<Work>,
}

impl std::fmt::Debug for Crew {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Crew").field("waiting", &self.queue().waiting).finish()
    }
}

impl Crew {
    /// Does it on a thread that waits, or else on a new one.
    pub(crate) fn set_to(&self, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut queue = self.queue();
        if queue.waiting > queue.work.len() {
            queue.work.push_back(Box::new(work));
            drop(queue);
            self.0.came.notify_one();
            return Ok(());
        }
        drop(queue);
        let crew = self.clone();
        let thread = thread::Builder::new().name("tunnel".to_owned()).stack_size(STACK);
        thread.spawn(move || crew.work_on(Box::new(work))).map(drop)
    }

    fn work_on(&self, first: Work) {
        let mut next = Some(first);
        while let Some(work) = next {
            work();
            next = self.wait_for_work();
        }
    }

    fn wait_for_work(&self) -> Option<Work> {
        let mut queue = self.queue();
        queue.waiting += 1;
        let waited = self.0.came.wait_timeout_while(queue, PATIENCE, |queue| queue.work.is_empty());
        let (mut queue, _) = waited.unwrap_or_else(PoisonError::into_inner);
        queue.waiting -= 1;
        queue.work.pop_front()
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_that_waits_is_taken_and_work_never_waits_for_work() {
        let crew = Crew::default();
        let (said, heard) = mpsc::channel();
        let say = |said: &mpsc::Sender<_>| said.send(thread::current().id()).unwrap();
        let first = said.clone();
        crew.set_to(move || say(&first)).unwrap();
        let first = heard.recv().unwrap();
        while crew.queue().waiting == 0 {
            thread::yield_now();
        }
        let (go, told) = mpsc::channel::<()>();
        let second = said.clone();
        crew.set_to(move || {
            say(&second);
            told.recv().unwrap();
        })
        .unwrap();
        assert_eq!(heard.recv().unwrap(), first, "the one that waited");
        crew.set_to(move || say(&said)).unwrap();
        assert_ne!(heard.recv().unwrap(), first, "which is busy now");
        go.send(()).unwrap();
    }
}
