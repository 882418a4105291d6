//! Being process 1: file systems, modules, the serial line, the power button, and the end.
//!
//! Nothing here may end the process by accident: that is a kernel panic. What fails is said on the serial line, and the rest goes on.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot, set_cad_enabled};
use nix::sys::signal::{SigSet, Signal};
use serde_json::json;

use crate::options::Options;
use crate::serial::Serial;
use crate::{Guest, Power, control, network, services};

/// In the order of their names.
const MODULES: &str = "/modules";
/// The kernel unpacks it (CONFIG_MODULE_DECOMPRESS); nix does not know the flag.
const MODULE_INIT_COMPRESSED_FILE: u32 = 4;

/// Runs the machine; comes back only if it could not even be ended.
pub fn run() -> ExitCode {
    let file_systems = mount_file_systems();
    // Before any thread is there, so that all of them have it blocked, and the wait below gets it.
    let end_signals = SigSet::from_iter([Signal::SIGINT]);
    let ready = end_signals.thread_block().and_then(|()| set_cad_enabled(false));
    let guest = Guest::new(open_console(), Power::Machine);
    let problems = [("mount", file_systems), ("catch ctrl-alt-del", ready.map_err(io::Error::from))];
    for (what, result) in problems {
        if let Err(cause) = result {
            guest.serial.complain(&format!("cannot {what}: {cause}"));
        }
    }
    load_modules(&guest.serial);
    let (options, bad) = Options::read(&std::fs::read_to_string("/proc/cmdline").unwrap_or_default());
    for bad in bad {
        guest.serial.complain(&bad.to_string());
    }
    watch_power_button(&guest);
    // Said when all of it works: who reads it may press the button, or connect.
    match services::start(&guest, services::PORTS) {
        Ok(ports) => guest.serial.say("boot", &json!({ "uptime_ms": guest.uptime_ms(), "ports": ports })),
        Err(cause) => guest.serial.complain(&cause.to_string()),
    }
    if options.poweroff {
        end(&guest, RebootMode::RB_POWER_OFF, "command line");
    }
    network::start(&guest);
    follow(&guest, options);
    loop {
        if end_signals.wait().is_ok() {
            end(&guest, RebootMode::RB_AUTOBOOT, "ctrl-alt-del");
        }
    }
}

/// Ends the machine. There is nothing to save: only what is on its way to the serial line.
pub fn end(guest: &Guest, how: RebootMode, why: &str) {
    let event = if how == RebootMode::RB_AUTOBOOT { "reboot" } else { "poweroff" };
    guest.serial.say(event, &json!({ "uptime_ms": guest.uptime_ms(), "why": why }));
    guest.serial.flush();
    let Err(cause) = reboot(how);
    guest.serial.complain(&format!("cannot {event}: {cause}"));
}

fn mount_file_systems() -> io::Result<()> {
    for (kind, target) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        std::fs::create_dir_all(target)?;
        mount(Some(kind), target, Some(kind), MsFlags::empty(), None::<&str>)
            .map_err(|cause| io::Error::new(io::Error::from(cause).kind(), format!("{target}: {cause}")))?;
    }
    Ok(())
}

fn open_console() -> Serial {
    match OpenOptions::new().write(true).open("/dev/console") {
        Ok(console) => Serial::new(console),
        // A machine without a serial line has nobody to tell.
        Err(_) => Serial::new(io::sink()),
    }
}

fn load_modules(serial: &Serial) {
    for path in files(Path::new(MODULES), "") {
        let flags = match path.extension() {
            Some(extension) if extension == "xz" => {
                ModuleInitFlags::from_bits_retain(MODULE_INIT_COMPRESSED_FILE)
            }
            _ => ModuleInitFlags::empty(),
        };
        let loaded = File::open(&path).and_then(|file| Ok(finit_module(file, c"", flags)?));
        if let Err(cause) = loaded {
            serial.complain(&format!("cannot load {}: {cause}", path.display()));
        }
    }
}

/// The files of a directory whose names begin with `prefix`, by name; none if the directory is not there.
fn files(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

/// What the command line asks for, in its own time: a connection may have to wait for the network.
fn follow(guest: &Arc<Guest>, options: Options) {
    let guest = Arc::clone(guest);
    std::thread::spawn(move || {
        if let Some(dirty) = options.dirty
            && let Err(cause) = guest.memory.dirty(Some(dirty))
        {
            guest.serial.complain(&cause.to_string());
        }
        if let Some(fill) = options.fill
            && let Err(cause) = guest.memory.fill(fill)
        {
            guest.serial.complain(&cause.to_string());
        }
        for to in options.connect {
            let asked = control::Connect { to, every_ms: control::every_ms() };
            while guest.outgoing.open(&asked).is_err() {
                // No route yet, or nobody listens yet: neither can be waited for but by trying.
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    });
}

/// The ACPI power button is an input device; pressing it is how a machine is asked to shut down.
fn watch_power_button(guest: &Arc<Guest>) {
    for path in files(Path::new("/dev/input"), "event") {
        let guest = Arc::clone(guest);
        // Opened here and not in the thread: a press before that would be lost.
        let device = File::open(&path);
        std::thread::spawn(move || match device.and_then(wait_for_power_key) {
            Ok(()) => end(&guest, RebootMode::RB_POWER_OFF, "power button"),
            Err(cause) => guest.serial.complain(&format!("cannot read {}: {cause}", path.display())),
        });
    }
}

fn wait_for_power_key(mut device: File) -> io::Result<()> {
    let mut event = [0; 24];
    loop {
        device.read_exact(&mut event)?;
        if is_power_key(&event) {
            return Ok(());
        }
    }
}

/// `struct input_event` after its two words of time: type, code, value.
fn is_power_key(event: &[u8; 24]) -> bool {
    const EV_KEY: [u8; 2] = 1_u16.to_ne_bytes();
    const KEY_POWER: [u8; 2] = 116_u16.to_ne_bytes();
    const PRESSED: [u8; 4] = 1_i32.to_ne_bytes();
    event[16..18] == EV_KEY && event[18..20] == KEY_POWER && event[20..24] == PRESSED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_press_of_the_power_key_counts() {
        let event = |kind: u16, code: u16, value: i32| {
            let mut event = [0; 24];
            event[16..18].copy_from_slice(&kind.to_ne_bytes());
            event[18..20].copy_from_slice(&code.to_ne_bytes());
            event[20..24].copy_from_slice(&value.to_ne_bytes());
            event
        };
        assert!(is_power_key(&event(1, 116, 1)));
        for (kind, code, value) in [(0, 116, 1), (1, 117, 1), (1, 116, 0), (0, 0, 0)] {
            assert!(!is_power_key(&event(kind, code, value)), "{kind} {code} {value}");
        }
    }
}
