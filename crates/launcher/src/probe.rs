//! Whether a guest really boots on the processor.
//!
//! That `/dev/kvm` opens says little, and that firmware runs says not much more: in a machine that is itself virtual, a guest may hang as
//! soon as it does what an operating system does. So a boot sector is run that goes to long mode, with paging, uses wide
//! registers, leaves the guest a few times, and then tells QEMU's debug device to end with a number that nothing else ends with.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use wire::Accelerator;

const QEMU: &str = "/usr/bin/qemu-system-x86_64";
const DEVICE: &str = "/dev/kvm";
/// Such a guest needs a fraction of it.
const DEADLINE: Duration = Duration::from_secs(5);
/// What is written to the debug device; QEMU ends with twice that, plus one.
const WORD: u8 = 0x31;

/// Loaded at 0x7c00, in 16-bit mode.
#[rustfmt::skip]
const CODE: [u8; 182] = [
    0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, // cli; xor ax,ax; mov ds,ax; mov es,ax
    0xbf, 0x00, 0x10, 0xb9, 0x00, 0x30, 0xfc, 0xf3, 0xaa, // mov di,0x1000; mov cx,0x3000; cld; rep stosb: three empty page tables
    0x66, 0xc7, 0x06, 0x00, 0x10, 0x03, 0x20, 0x00, 0x00, 0x66, 0xc7, 0x06, 0x00, 0x20, 0x03, 0x30, 0x00, 0x00, 0x66, 0xc7, 0x06, 0x00, 0x30, 0x83, 0x00, 0x00, 0x00, // mov dword [0x1000],0x2003; [0x2000],0x3003; [0x3000],0x83: the first 2 MiB
    0x66, 0xb8, 0xa0, 0x06, 0x00, 0x00, 0x0f, 0x22, 0xe0, // mov eax,0x6a0; mov cr4,eax: wide addresses, SSE
    0x66, 0xb8, 0x00, 0x10, 0x00, 0x00, 0x0f, 0x22, 0xd8, // mov eax,0x1000; mov cr3,eax
    0x66, 0xb9, 0x80, 0x00, 0x00, 0xc0, 0x0f, 0x32, 0x0d, 0x00, 0x01, 0x0f, 0x30, // mov ecx,0xc0000080; rdmsr; or ax,0x100; wrmsr: long mode
    0x0f, 0x20, 0xc0, 0x24, 0xfb, 0x66, 0x0d, 0x03, 0x00, 0x00, 0x80, 0x0f, 0x22, 0xc0, // mov eax,cr0; and al,0xfb; or eax,0x80000003; mov cr0,eax: paging, protection
    0x0f, 0x01, 0x16, 0xb0, 0x7c, 0xea, 0x62, 0x7c, 0x08, 0x00, // lgdt [0x7cb0]; jmp 8:0x7c62
    0xb9, 0xa0, 0x86, 0x01, 0x00, 0x31, 0xc0, // mov ecx,100000; xor eax,eax
    0x66, 0x48, 0x0f, 0x6e, 0xc1, 0x66, 0x0f, 0xd4, 0xc8, 0x48, 0x01, 0xc8, 0xff, 0xc9, 0x75, 0xf0, // movq xmm0,rcx; paddq xmm1,xmm0; add rax,rcx; dec ecx; jnz: two sums
    0x66, 0x48, 0x0f, 0x7e, 0xcb, 0x48, 0x39, 0xc3, 0x75, 0x15, // movq rbx,xmm1; cmp rbx,rax; jne halt: which must be one
    0xbe, 0x14, 0x00, 0x00, 0x00, 0x31, 0xc0, 0x0f, 0xa2, 0xff, 0xce, 0x75, 0xf8, // mov esi,20; xor eax,eax; cpuid; dec esi; jnz: out of the guest and back
    0xba, 0xf4, 0x00, 0x00, 0x00, 0xb0, 0x31, 0xee, // mov edx,0xf4; mov al,0x31; out dx,al: the word
    0xf4, 0xeb, 0xfd, // halt: hlt; jmp halt
    0x0f, 0x1f, 0x44, 0x00, 0x00, // up to a multiple of eight
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x9a, 0x20, 0x00, // at 0x7ca0: no segment, and one of 64-bit code
    0x0f, 0x00, 0xa0, 0x7c, 0x00, 0x00, // at 0x7cb0: where they are
];

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
pub fn boots(
    qemu: &Path,
    directory: &Path,
    accelerator: Accelerator,
    deadline: Duration,
) -> Result<(), String> {
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
        Some(status) => {
            Err(format!("{status} {}", said.lines().next().unwrap_or_default()).trim().to_owned())
        }
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
        .args(["-machine", &machine, "-cpu", "max", "-drive", &drive])
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
