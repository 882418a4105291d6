//! Whether a guest really boots on the processor.
//!
//! That `/dev/kvm` opens says little: in a machine that is itself virtual, a guest may hang at its first instruction. So a
//! boot sector of seven instructions' length is run, which tells QEMU's debug device to end with a number that nothing else ends with.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use wire::Accelerator;

const QEMU: &str = "/usr/bin/qemu-system-x86_64";
const DEVICE: &str = "/dev/kvm";
/// A guest of seven instructions needs a fraction of it.
const DEADLINE: Duration = Duration::from_secs(10);
/// What is written to the debug device; QEMU ends with twice that, plus one.
const WORD: u8 = 0x31;

/// `mov dx, 0xf4; mov al, WORD; out dx, al; halt: hlt; jmp halt`
const CODE: [u8; 9] = [0xba, 0xf4, 0x00, 0xb0, WORD, 0xee, 0xf4, 0xeb, 0xfd];

/// The processor if a guest boots on it, else QEMU and the reason.
pub fn accelerator(directory: &Path) -> (Accelerator, Option<String>) {
    if !Path::new(DEVICE).exists() {
        return (Accelerator::Tcg, Some(format!("there is no {DEVICE}")));
    }
    match boots(Path::new(QEMU), directory, Accelerator::Kvm, DEADLINE) {
        Ok(()) => (Accelerator::Kvm, None),
        Err(reason) => (Accelerator::Tcg, Some(format!("a test guest does not boot with KVM: {reason}"))),
    }
}

/// Lets QEMU's user open the device, which belongs to the pod.
pub fn grant_device() -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(DEVICE, fs::Permissions::from_mode(0o666))
}

/// Boots the sector; says why it did not.
pub fn boots(qemu: &Path, directory: &Path, accelerator: Accelerator, deadline: Duration) -> Result<(), String> {
    let mut sector = [0; 512];
    sector[..CODE.len()].copy_from_slice(&CODE);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let (disk, log) = (directory.join("probe.img"), directory.join("probe.log"));
    let ended = run(qemu, &disk, &sector, &log, accelerator, deadline);
    let said = fs::read_to_string(&log).unwrap_or_default();
    for file in [&disk, &log] {
        let _ = fs::remove_file(file); // the directory goes with the pod
    }
    match ended.map_err(|error| error.to_string())? {
        Some(status) if status.code() == Some(i32::from(WORD) * 2 + 1) => Ok(()),
        Some(status) => Err(format!("{status} {}", said.lines().next().unwrap_or_default()).trim().to_owned()),
        None => Err(format!("it hangs: nothing came within {} s", deadline.as_secs())),
    }
}

fn run(
    qemu: &Path,
    disk: &PathBuf,
    sector: &[u8],
    log: &Path,
    accelerator: Accelerator,
    deadline: Duration,
) -> io::Result<Option<ExitStatus>> {
    fs::write(disk, sector)?;
    let drive = format!("file={},format=raw,if=ide,snapshot=on", disk.display());
    let machine = format!("pc,accel={}", accelerator.as_str());
    let child = Command::new(qemu)
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "16"])
        .args(["-machine", &machine, "-drive", &drive])
        .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(log)?)
        .spawn()?;
    wait(child, deadline)
}

/// The end of a process; none: it did not end in time, and was killed.
fn wait(mut child: Child, deadline: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begun.elapsed() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        // The standard library cannot wait for a process with a deadline.
        std::thread::sleep(Duration::from_millis(10));
    }
}
