//! Processors, memory, firmware, and what is left of the spec.

use api::kubevirt::{DomainSpec, Firmware, VirtualMachineInstanceSpec};
use api::quantity;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Causes, is_label};

pub(super) fn check(spec: &VirtualMachineInstanceSpec, path: &str, causes: &mut Causes) {
    let domain = format!("{path}.domain");
    check_processors(&spec.domain, &domain, causes);
    check_memory(&spec.domain, &domain, causes);
    if let Some(firmware) = &spec.domain.firmware {
        check_firmware(firmware, &format!("{domain}.firmware"), causes);
    }
    if let Some(seconds) = spec.termination_grace_period_seconds.filter(|seconds| *seconds < 0) {
        causes.invalid(
            format!("{path}.terminationGracePeriodSeconds"),
            format!("{seconds} seconds are less than none: use 0 to switch the guest off at once."),
        );
    }
    if let Some(hostname) = spec.hostname.as_ref().filter(|hostname| !is_label(hostname)) {
        causes.invalid(
            format!("{path}.hostname"),
            format!("{hostname:?} is not the name of a host: write lower-case letters, digits and '-', at most 63."),
        );
    }
}

fn check_processors(domain: &DomainSpec, path: &str, causes: &mut Causes) {
    let Some(cpu) = &domain.cpu else { return };
    for (name, count) in [("cores", cpu.cores), ("sockets", cpu.sockets), ("threads", cpu.threads)] {
        if count == Some(0) {
            causes.invalid(
                format!("{path}.cpu.{name}"),
                format!("A guest has at least one: remove {name}, or set it to 1 or more."),
            );
        }
    }
    if cpu.model.as_deref() == Some("") {
        causes.invalid(
            format!("{path}.cpu.model"),
            "Name a model, host-model or host-passthrough, or remove the field.",
        );
    }
}

fn check_memory(domain: &DomainSpec, path: &str, causes: &mut Causes) {
    let resources = domain.resources.clone().unwrap_or_default();
    let request = resources.requests.get("memory");
    let limit = resources.limits.get("memory");
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref());
    let field =
        if guest.is_none() && request.is_some() { "resources.requests.memory" } else { "memory.guest" };
    match guest.or(request) {
        None => {
            causes
                .required(format!("{path}.memory.guest"), "Say how much memory the guest has, such as 1Gi.");
        }
        Some(memory) => check_size(memory, &format!("{path}.{field}"), causes),
    }
    for (name, amount) in resources
        .requests
        .iter()
        .map(|(name, amount)| (format!("requests.{name}"), amount))
        .chain(resources.limits.iter().map(|(name, amount)| (format!("limits.{name}"), amount)))
    {
        if let Err(error) = quantity::milli(amount) {
            causes.invalid(format!("{path}.resources.{name}"), format!("{error}."));
        }
    }
    let bytes = |amount: Option<&Quantity>| amount.and_then(|amount| quantity::whole(amount).ok());
    if let (Some(least), Some(most)) = (bytes(request), bytes(limit))
        && least > most
    {
        causes.invalid(
            format!("{path}.resources.requests.memory"),
            "The pod asks for more memory than its limit: raise limits.memory, or lower requests.memory.",
        );
    }
    if let (Some(seen), Some(most)) = (bytes(guest), bytes(limit))
        && seen > most
    {
        causes.invalid(
            format!("{path}.memory.guest"),
            "The guest sees more memory than the limit of its pod: raise resources.limits.memory, or lower memory.guest.",
        );
    }
}

/// The least that any guest boots with; less is a slip of the unit.
const LEAST_MEMORY: u64 = 1 << 20;

fn check_size(memory: &Quantity, field: &str, causes: &mut Causes) {
    match quantity::whole(memory) {
        Ok(0) => causes.invalid(field, "The guest needs memory: set it to more than 0, such as 1Gi."),
        Ok(bytes) if bytes < LEAST_MEMORY => causes.invalid(
            field,
            format!(
                "{:?} is {bytes} bytes, which no guest boots with: did you mean {0}Mi or {0}Gi?",
                memory.0
            ),
        ),
        Ok(_) => {}
        Err(error) => causes.invalid(field, format!("{error}.")),
    }
}

fn check_firmware(firmware: &Firmware, path: &str, causes: &mut Causes) {
    if let Some(uuid) = firmware.uuid.as_ref().filter(|uuid| !is_uuid(uuid)) {
        causes.invalid(
            format!("{path}.uuid"),
            format!("{uuid:?} is not a UUID, such as 5d307ca9-b3ef-428c-8861-06e72d69f223."),
        );
    }
    if let Some(loader) = &firmware.bootloader
        && loader.bios.is_some()
        && loader.efi.is_some()
    {
        causes.invalid(format!("{path}.bootloader"), "A guest boots by bios or by efi: keep one.");
    }
    let Some(boot) = &firmware.kernel_boot else { return };
    let path = format!("{path}.kernelBoot");
    match &boot.container {
        None => causes.required(
            format!("{path}.container"),
            "A kernel is booted from an image: name it, and the path of the kernel in it.",
        ),
        Some(container) => {
            if container.image.is_empty() {
                causes.required(format!("{path}.container.image"), "Name the image that holds the kernel.");
            }
            for (name, file) in
                [("kernelPath", &container.kernel_path), ("initrdPath", &container.initrd_path)]
            {
                let field = format!("{path}.container.{name}");
                match file {
                    None if name == "kernelPath" => {
                        causes
                            .required(field, "Say where in the image the kernel is, such as /boot/vmlinuz.");
                    }
                    Some(file) if !file.starts_with('/') || file.split('/').any(|part| part == "..") => {
                        causes.invalid(
                            field,
                            format!(
                                "{file:?} is not a path from the root of the image, such as /boot/vmlinuz."
                            ),
                        );
                    }
                    _ => {}
                }
            }
        }
    }
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
