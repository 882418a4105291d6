//! The boot sector that decides about KVM, on the emulator, which does all that a processor does.
//!
//! Needs `tools/setup vm`: QEMU is that of the launcher's image, run where it lies.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test says what it expects")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use launcher::probe::boots;
use wire::Accelerator;

/// A script that runs the image's QEMU with the image's libraries.
fn qemu(directory: &Path, before: &str) -> PathBuf {
    let setup = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/setup");
    let said = String::from_utf8(Command::new(setup).arg("--print-env").output().unwrap().stdout).unwrap();
    let image = said.lines().find_map(|line| line.strip_prefix("export GODWIT_LAUNCHER_IMAGE="));
    let rootfs = Path::new(image.expect("tools/setup says where the image is")).join("rootfs");
    assert!(rootfs.exists(), "{} is not there: run `tools/setup vm` first", rootfs.display());
    let script = format!(
        "#!/bin/sh\nr={}\n{before}\nexec \"$r/lib64/ld-linux-x86-64.so.2\" --library-path \"$r/usr/lib/x86_64-linux-gnu\" \
         \"$r/usr/bin/qemu-system-x86_64\" -L \"$r/usr/share/seabios\" -L \"$r/usr/share/qemu\" \"$@\"\n",
        rootfs.display()
    );
    let path = directory.join("qemu");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_processor_that_works_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let qemu = qemu(directory.path(), "");
    assert_eq!(boots(&qemu, directory.path(), Accelerator::Tcg, Duration::from_mins(1)), Ok(()));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing stays but the script");
}

#[test]
fn one_that_does_not_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let (at, second) = (directory.path(), Duration::from_secs(1));
    let says = boots(&qemu(at, "echo no such processor >&2; exit 1"), at, Accelerator::Kvm, second);
    assert_eq!(says, Err("exit status: 1 no such processor".to_owned()));
    let hangs = boots(&qemu(at, "exec sleep 60"), at, Accelerator::Kvm, second);
    assert_eq!(hangs, Err("it hangs: nothing came within 1 s".to_owned()));
    // Long mode, but without the wide registers that every 64-bit guest uses.
    let lame = "set -- \"$@\" -cpu qemu64,-sse,-sse2";
    assert!(boots(&qemu(at, lame), at, Accelerator::Tcg, 3 * second).is_err());
}
