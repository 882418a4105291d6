//! The move of a virtual machine from node to node, as decisions: facts in, what is to be done out.
//!
//! Nothing here waits, reads or writes. The controller looks at the API, asks [`decide`], does what it says and reports; the
//! handlers ask [`Role`] which pod of an instance is which. So every rule of a move is in one place, and every rule can be
//! tested without a cluster.
//!
//! | module | owns |
//! |---|---|
//! | `decide` | the phases of a move and what each step does |
//! | `queue` | whose turn it is, and why the others wait |
//! | `deadline` | how long each wait may last |
//! | `convergence` | what becomes of a transfer that does not come to an end |
//! | `pace` | how much may be left to send when the guest is stopped |
//! | `retry` | when a VM that could not be moved is moved again |
//! | `role` | which pod runs the guest, which waits for it |

mod convergence;
mod deadline;
mod decide;
mod pace;
mod queue;
mod retry;
mod role;

pub use convergence::{Convergence, Verdict};
pub use deadline::{Deadlines, completion_timeout, moved_bytes};
pub use decide::{Decision, Effect, Facts, Instance, Outcome, Record, Target, decide, texts};
pub use pace::Pace;
pub use queue::{Entry, Limits, Queue, Stage, Turn, Wait};
pub use retry::pause_after;
pub use role::{Role, arrived, over};
