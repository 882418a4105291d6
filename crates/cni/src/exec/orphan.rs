//! Plugins that outlived the runtime that started them.
//!
//! A runtime that is killed leaves its plugins running. One that still works on an interface would make it again after our DEL.
//! They are known by their environment, which names container and interface; nothing else is touched.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::ExecError;

const DEADLINE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(10);

/// Kills them and waits until they are gone.
pub(super) fn end(container_id: &str, interface: &str) -> Result<(), ExecError> {
    let marks = [format!("CNI_CONTAINERID={container_id}"), format!("CNI_IFNAME={interface}")];
    let started = Instant::now();
    loop {
        let Some(process) = find(&marks) else { return Ok(()) };
        if started.elapsed() > DEADLINE {
            return Err(ExecError::Orphan { process: process.as_raw_nonzero().get() });
        }
        // The descriptor first, then a second look: the number may be another's by now, the descriptor may not.
        if let Ok(descriptor) = pidfd_open(process, PidfdFlags::empty())
            && is_marked(process, &marks)
        {
            tracing::warn!(process = process.as_raw_nonzero(), "ending a CNI plugin of an earlier runtime");
            let _ = pidfd_send_signal(&descriptor, Signal::KILL);
        }
        thread::sleep(PAUSE);
    }
}

fn find(marks: &[String; 2]) -> Option<Pid> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).find(|process| is_marked(*process, marks))
}

/// Whether its environment has all the marks. One that has ended has no environment.
fn is_marked(process: Pid, marks: &[String; 2]) -> bool {
    let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).unwrap_or_default();
    marks.iter().all(|mark| environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()))
}
