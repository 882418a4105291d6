//! Who has gigabytes makes way for who has a page.
//!
//! A thread that moves much is always ready to run, and the kernel is fair: one that was just woken with a small message may wait
//! behind it for hundreds of microseconds, at every step of its way, and a guest that waits for a page waits with it. So threads with
//! small messages say on which processor they are, and those that move much keep off that one for as long as this is news, and are
//! a little nicer meanwhile: so much that whoever they send to and receive from finds more room beside them than beside the messages.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use rustix::process::{getpriority_process, setpriority_process};

/// A call that moves so much is not a message that somebody waits for.
const MUCH: usize = 16 << 10;
/// How long a message is news.
const NEWS: Duration = Duration::from_millis(20);
/// How long a thread stays where it went: going costs more than a moment of waiting.
const STAY: Duration = Duration::from_millis(10);
/// How long a direction that moved much is believed to do so: its last bytes, or a slow moment, are no message.
const MOVES_MUCH: Duration = Duration::from_millis(100);

/// How much nicer: each step is a tenth of a processor's share. With twice as many, messages come over, too (measured on two processors).
const NICER: i32 = 4;

/// Where the last small message was. Processors are the machine's: one for all lines of this process.
static BOARD: Board = Board(AtomicU64::new(0));

/// The time in milliseconds, and behind it [`PROCESSOR_BITS`] for the processor: read and written at once. 0 is nothing.
struct Board(AtomicU64);

const PROCESSOR_BITS: u32 = 16;

impl Board {
    fn write(&self, processor: usize, now: Duration) {
        let text = (milliseconds(now) << PROCESSOR_BITS) | processor as u64;
        self.0.store(text, Ordering::Relaxed);
    }

    /// The processor to keep off.
    fn news(&self, now: Duration) -> Option<usize> {
        let text = self.0.load(Ordering::Relaxed);
        let age = milliseconds(now).saturating_sub(text >> PROCESSOR_BITS);
        let processor = usize::try_from(text & ((1 << PROCESSOR_BITS) - 1)).ok();
        processor.filter(|_| text != 0 && age < milliseconds(NEWS))
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How the thread of one direction behaves. Threads are used again: they are free to go anywhere when this is dropped.
pub(crate) struct Courtesy {
    board: &'static Board,
    /// When much was moved last.
    much: Option<Duration>,
    /// The processor that this thread keeps off, and all that it may use otherwise.
    off: Option<(usize, CpuSet)>,
    /// When that was changed last.
    since: Option<Duration>,
}

impl Default for Courtesy {
    fn default() -> Self {
        Self { board: &BOARD, much: None, off: None, since: None }
    }
}

impl Courtesy {
    /// Takes note of how much one call has moved.
    pub(crate) fn moved(&mut self, length: usize) {
        // By the coarse clock: read without a call of the kernel on every machine.
        let Ok(now) = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map(Duration::from) else { return };
        let done = if length >= MUCH {
            self.much = Some(now);
            self.make_way(now)
        } else if self.much.is_none_or(|much| now.saturating_sub(much) > MOVES_MUCH) {
            sched_getcpu().map(|processor| self.board.write(processor, now))
        } else {
            Ok(())
        };
        if let Err(error) = done {
            // Forbidden by a sandbox, perhaps. Bytes move all the same.
            tracing::debug!(%error, "the thread stays on its processor");
        }
    }

    fn make_way(&mut self, now: Duration) -> Result<(), Errno> {
        let news = self.board.news(now);
        let settled = self.since.is_none_or(|since| now.saturating_sub(since) >= STAY);
        if news == self.off.as_ref().map(|(processor, _)| *processor) || !settled {
            return Ok(());
        }
        self.since = Some(now);
        self.come_back()?;
        let Some(processor) = news else { return Ok(()) };
        let all = sched_getaffinity(Pid::from_raw(0))?;
        let mut others = all;
        others.unset(processor)?;
        let is_one = |processor| others.is_set(processor).unwrap_or(false);
        if (0..CpuSet::count()).any(is_one) {
            sched_setaffinity(Pid::from_raw(0), &others)?;
            self.off = Some((processor, all));
            be_nicer_by(NICER)?;
        }
        Ok(())
    }

    fn come_back(&mut self) -> Result<(), Errno> {
        let Some((_, all)) = self.off.take() else { return Ok(()) };
        sched_setaffinity(Pid::from_raw(0), &all)?;
        match be_nicer_by(0) {
            // To be less nice again takes a privilege. Without it the thread stays so, as do all others like it.
            Err(Errno::EACCES | Errno::EPERM) => Ok(()),
            done => done,
        }
    }
}

/// Than this process' threads are usually.
fn be_nicer_by(steps: i32) -> Result<(), Errno> {
    static USUAL: OnceLock<i32> = OnceLock::new();
    let set = || {
        let now = getpriority_process(None)?;
        setpriority_process(None, USUAL.get_or_init(|| now) + steps)
    };
    set().map_err(|errno| Errno::from_raw(errno.raw_os_error()))
}

impl Drop for Courtesy {
    fn drop(&mut self) {
        if let Err(error) = self.come_back() {
            tracing::debug!(%error, "the thread keeps off a processor");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_board() -> Courtesy {
        Courtesy { board: Box::leak(Box::new(Board(AtomicU64::new(0)))), ..Courtesy::default() }
    }

    fn now() -> Duration {
        clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).unwrap().into()
    }

    fn may_use() -> Vec<usize> {
        let set = sched_getaffinity(Pid::from_raw(0)).unwrap();
        (0..CpuSet::count()).filter(|processor| set.is_set(*processor).unwrap()).collect()
    }

    #[test]
    fn a_small_message_is_news_for_a_while() {
        let board = Board(AtomicU64::new(0));
        let begin = Duration::from_secs(5);
        assert_eq!(board.news(Duration::ZERO), None);
        board.write(3, begin);
        assert_eq!(board.news(begin), Some(3));
        assert_eq!(board.news(begin + NEWS), None);
    }

    #[test]
    fn who_moves_much_keeps_off_the_processor_of_a_message_and_comes_back() {
        let (all, usual) = (may_use(), getpriority_process(None).unwrap());
        let mut courtesy = own_board();
        courtesy.moved(MUCH);
        assert_eq!(may_use(), all, "there is no message to make way for");

        let busy = all[0];
        courtesy.board.write(busy, now());
        courtesy.moved(MUCH);
        let others: Vec<_> = all.iter().copied().filter(|processor| *processor != busy).collect();
        // With a single processor there is nowhere to go.
        let nicer = if others.is_empty() { 0 } else { NICER };
        assert_eq!(may_use(), if others.is_empty() { all.clone() } else { others });
        assert_eq!(getpriority_process(None).unwrap() - usual, nicer);

        drop(courtesy);
        assert_eq!(may_use(), all, "the thread is used again, for something else");
        let still = getpriority_process(None).unwrap() - usual;
        let without_privilege = setpriority_process(None, usual).is_err();
        assert_eq!(still, if without_privilege { nicer } else { 0 });
    }

    #[test]
    fn it_comes_back_when_the_news_is_old_but_not_at_once() {
        let all = may_use();
        let mut courtesy = own_board();
        let begin = Duration::from_secs(5);
        courtesy.board.write(all[0], begin);
        courtesy.make_way(begin).unwrap();
        let away = may_use();
        courtesy.board.write(all[all.len() - 1], begin);
        courtesy.make_way(begin + STAY / 2).unwrap();
        assert_eq!(may_use(), away);
        courtesy.make_way(begin + NEWS).unwrap();
        assert_eq!(may_use(), all);
    }

    #[test]
    fn the_last_bytes_of_much_are_no_message() {
        let mut courtesy = own_board();
        courtesy.moved(100);
        assert!(courtesy.board.news(now()).is_some());
        let mut courtesy = own_board();
        courtesy.moved(MUCH);
        courtesy.moved(100);
        assert_eq!(courtesy.board.news(now()), None);
    }
}
