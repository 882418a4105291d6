//! A move of the domain, as libvirt makes it: peer to peer, through unix sockets that lead to the other side.
//!
//! The source's libvirtd talks to the target's by the first socket and has it start QEMU, which listens at the path that the source's QEMU
//! connects to: the sockets have the same names on both sides.

use std::path::Path;

use api::kubevirt::{MigrationOptions, ProgressSample};
use api::names::channels;
use migration::Pace;
use serde_json::{Value, json};
use tracing::warn;
use virt::domain::{Domain, JobStats, MigrateParameters};
use virt::error::Error;
use virt::sys;
use wire::MigrateOptions;

/// libvirt's unit of bandwidth.
const MIB: u64 = 1 << 20;
const MEMORY_BACKING: &str = "<memoryBacking>";
/// All memory is there before the first byte arrives: to make each page as it comes would take longer than to send it, and most of
/// all at the end, when the guest stands still.
const ALLOCATED: &str = "<memoryBacking><allocation mode='immediate'/>";

/// Moves it; answers when it is gone, or stays.
pub fn migrate(
    domain: &Domain,
    options: &MigrateOptions,
    disks: Vec<String>,
    sockets: &Path,
) -> Result<(), Error> {
    let socket = |channel: i32| {
        let channel = u16::try_from(channel).unwrap_or_default();
        sockets.join(MigrateOptions::socket(&options.sockets, channel)).display().to_string()
    };
    domain.migrate_set_max_downtime(options.settings.max_downtime_ms.max(1), 0)?;
    // Before the first byte, as the first that go into buffers are what misleads. A failed move gives it back.
    let said = count_on(domain, Pace::BEGINNING)?;
    if let Err(refusal) = accepted(&said) {
        warn!(refusal, "the hypervisor judges by itself how fast the road is");
    }
    let flags = flags(options, !disks.is_empty());
    let parameters = MigrateParameters {
        disks_uri: (!disks.is_empty()).then(|| format!("unix://{}", socket(channels::DISKS))),
        migrate_disks: disks,
        uri: Some(format!("unix://{}", socket(channels::MEMORY))),
        dest_xml: Some(prepared(
            &domain.xml_desc(sys::VIR_DOMAIN_XML_MIGRATABLE | sys::VIR_DOMAIN_XML_SECURE)?,
        )),
        // Rounded up: a limit below libvirt's unit is a limit too. What is no number was refused when it was written.
        bandwidth: options.settings.bandwidth().ok().flatten().map(|limit| limit.get().div_ceil(MIB)),
        parallel_connections: connections(options).map(i32::from),
        ..MigrateParameters::default()
    };
    let destination = format!("qemu+unix:///system?socket={}", socket(channels::RPC));
    domain.migrate_to_uri3(Some(&destination), parameters, flags)
}

/// The domain says after its end at the target how it ended, as it does here: so it is defined there too.
///
/// It arrives paused: when the daemons lose each other just after it is there, this one lets it go on here, and must be right in that. Its
/// launcher lets it run there once its process here is gone. Post-copy cannot have that; once it has begun, it is never resumed here.
fn flags(options: &MigrateOptions, disks: bool) -> u32 {
    let optional = [
        (disks, sys::VIR_MIGRATE_NON_SHARED_DISK),
        (connections(options).is_some(), sys::VIR_MIGRATE_PARALLEL),
        (options.settings.allow_auto_converge, sys::VIR_MIGRATE_AUTO_CONVERGE),
        (options.settings.allow_post_copy, sys::VIR_MIGRATE_POSTCOPY),
        (!options.settings.allow_post_copy, sys::VIR_MIGRATE_PAUSED),
        (options.settings.unsafe_migration_override, sys::VIR_MIGRATE_UNSAFE),
    ];
    let always = sys::VIR_MIGRATE_LIVE | sys::VIR_MIGRATE_PEER2PEER | sys::VIR_MIGRATE_PERSIST_DEST;
    optional.into_iter().filter(|(wanted, _)| *wanted).fold(always, |flags, (_, flag)| flags | flag)
}

/// QEMU does not make both of one move: post-copy and parallel connections.
fn connections(options: &MigrateOptions) -> Option<u16> {
    let MigrationOptions { parallel_connections: count, allow_post_copy, .. } = options.settings;
    (count > 1 && !allow_post_copy).then_some(count)
}

/// The domain as the target makes it. One that came here by a move has it already.
fn prepared(document: &str) -> String {
    if document.contains("<allocation ") {
        return document.to_owned();
    }
    document.replacen(MEMORY_BACKING, ALLOCATED, 1)
}

/// How far the move is; none: there is none.
#[allow(
    unsafe_code,
    reason = "the binding's own call is undefined when there is no job: it takes nothing for a list"
)]
pub fn progress(
    domain: &Domain,
    which: sys::virDomainGetJobStatsFlags,
) -> Result<Option<ProgressSample>, Error> {
    let (mut kind, mut count, mut list) = (0, 0, std::ptr::null_mut());
    // SAFETY: the pointer is valid as long as the domain is borrowed; libvirt fills in the other three.
    checked(unsafe {
        sys::virDomainGetJobStats(domain.as_ptr(), &raw mut kind, &raw mut list, &raw mut count, which)
    })?;
    let length = usize::try_from(count).unwrap_or_default();
    if list.is_null() || length == 0 || u32::try_from(kind) == Ok(sys::VIR_DOMAIN_JOB_NONE) {
        return Ok(None);
    }
    // SAFETY: libvirt made a list of that length, and it is freed after it was read.
    let sample = unsafe {
        let parameters = std::slice::from_raw_parts(list, length).to_vec();
        let sample = sample(&JobStats::from((kind, parameters)));
        sys::virTypedParamsFree(list, count);
        sample
    };
    Ok(Some(sample))
}

fn sample(stats: &JobStats) -> ProgressSample {
    let number = |value: Option<u64>| value.unwrap_or_default();
    ProgressSample {
        total_bytes: number(stats.data_total),
        remaining_bytes: number(stats.data_remaining),
        processed_bytes: number(stats.data_processed),
        bytes_per_second: number(stats.mem_bps) + number(stats.disk_bps),
        dirty_bytes_per_second: number(stats.mem_dirty_rate).saturating_mul(number(stats.mem_page_size)),
        iteration: number(stats.mem_iteration),
        elapsed_ms: stats.time_elapsed,
        downtime_ms: stats.downtime,
        network: None,
    }
}

/// Tells QEMU how many bytes a second it may count on while the guest stands still; what QEMU answers. libvirt has a name for this too, but
/// takes it only with the call that begins a move, when nobody knows yet.
pub fn count_on(domain: &Domain, bytes_per_second: u64) -> Result<String, Error> {
    let arguments = json!({ "avail-switchover-bandwidth": bytes_per_second });
    let command = json!({ "execute": "migrate-set-parameters", "arguments": arguments });
    domain.qemu_monitor_command(&command.to_string(), sys::VIR_DOMAIN_QEMU_MONITOR_COMMAND_DEFAULT)
}

/// Whether QEMU did what it was told: to libvirt, a refusal is an answer like another.
pub fn accepted(said: &str) -> Result<(), String> {
    let answer: Value = serde_json::from_str(said).unwrap_or_default();
    if answer.get("return").is_some() {
        return Ok(());
    }
    Err(answer["error"]["desc"].as_str().unwrap_or(said).to_owned())
}

/// Lets the domain run at its target, wherever its memory is.
#[allow(unsafe_code, reason = "the binding does not have this call")]
pub fn start_post_copy(domain: &Domain) -> Result<(), Error> {
    // SAFETY: the pointer is valid as long as the domain is borrowed.
    checked(unsafe { sys::virDomainMigrateStartPostCopy(domain.as_ptr(), 0) })
}

/// Gives the move up.
#[allow(unsafe_code, reason = "the binding does not have this call")]
pub fn cancel(domain: &Domain) -> Result<(), Error> {
    // SAFETY: the pointer is valid as long as the domain is borrowed.
    checked(unsafe { sys::virDomainAbortJob(domain.as_ptr()) })
}

fn checked(outcome: std::ffi::c_int) -> Result<(), Error> {
    if outcome < 0 { Err(Error::last_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn memory_is_there_before_the_guest_is() {
        let document = "<domain><memoryBacking><source type='memfd'/></memoryBacking></domain>";
        let once = prepared(document);
        assert_eq!(
            once,
            "<domain><memoryBacking><allocation mode='immediate'/><source type='memfd'/></memoryBacking></domain>"
        );
        assert_eq!(prepared(&once), once, "on the way back too");
    }

    #[test]
    fn a_refusal_is_told_from_an_answer() {
        assert_eq!(accepted(r#"{"return":{},"id":"libvirt-17"}"#), Ok(()));
        let refusal =
            r#"{"id":"libvirt-18","error":{"class":"GenericError","desc":"Parameter is unexpected"}}"#;
        assert_eq!(accepted(refusal), Err("Parameter is unexpected".to_owned()));
        assert_eq!(accepted("?"), Err("?".to_owned()));
    }

    #[test]
    fn what_is_asked_for_is_what_libvirt_is_told() {
        let with = |settings| MigrateOptions { settings, ..MigrateOptions::default() };
        let options = with(MigrationOptions::default());
        assert_eq!(flags(&options, false) & sys::VIR_MIGRATE_PARALLEL, 0, "unless it is asked for");
        let several = MigrationOptions { parallel_connections: 4, ..MigrationOptions::default() };
        let options = with(several.clone());
        assert_ne!(flags(&options, false) & sys::VIR_MIGRATE_PARALLEL, 0);
        assert_ne!(flags(&options, false) & sys::VIR_MIGRATE_PAUSED, 0);
        let options = with(MigrationOptions { allow_post_copy: true, ..several });
        assert_eq!(flags(&options, false) & sys::VIR_MIGRATE_PARALLEL, 0);
        assert_ne!(flags(&options, false) & sys::VIR_MIGRATE_POSTCOPY, 0);
        assert_eq!(flags(&options, false) & sys::VIR_MIGRATE_PAUSED, 0);
    }
}
