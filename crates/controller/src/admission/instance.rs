//! Whether an instance can run as it is written.

use api::kubevirt::VirtualMachineInstanceSpec;
use api::mac::MacAddress;
use serde_json::Value;

use super::{Cause, Causes, Rules, disks, hardware, networks, unknown};

/// Everything that is wrong with the spec of an instance whose defaults are filled in. `path` is where the spec is: `spec`, or
/// `spec.template.spec` of a machine.
pub fn validate(spec: &Value, path: &str, rules: &Rules) -> Vec<Cause> {
    let mut causes = Causes::default();
    unknown::refuse("VirtualMachineInstance", spec, path, &mut causes);
    malformed_addresses(spec, path, &mut causes);
    match serde_json::from_value::<VirtualMachineInstanceSpec>(spec.clone()) {
        Ok(spec) => {
            hardware::check(&spec, path, &mut causes);
            networks::check(&spec, path, rules, &mut causes);
            disks::check(&spec, path, &mut causes);
        }
        // Said already, with the field.
        Err(_) if causes.0.iter().any(|cause| cause.field.contains("interfaces")) => {}
        Err(error) => causes.invalid(path, format!("The spec cannot be read: {error}.")),
    }
    causes.0
}

/// The spec of an instance is what runs: it does not change.
pub fn refuse_change(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Causes::default();
    if old != new {
        causes.unsupported(
            "spec",
            "The spec of an instance does not change while it exists. Change the template of its VirtualMachine and restart that, or delete the instance and make it anew.",
        );
    }
    causes.0
}

/// Ethernet addresses that are none: the types cannot hold them, so they are looked for in what was written.
fn malformed_addresses(spec: &Value, path: &str, causes: &mut Causes) {
    let interfaces = spec["domain"]["devices"]["interfaces"].as_array();
    for (index, interface) in interfaces.into_iter().flatten().enumerate() {
        let path = format!("{path}.domain.devices.interfaces[{index}]");
        for (field, value) in
            [("macAddress", &interface["macAddress"]), ("mac.address", &interface["mac"]["address"])]
        {
            if let Some(Err(error)) = value.as_str().map(str::parse::<MacAddress>) {
                causes.invalid(format!("{path}.{field}"), format!("{error}."));
            }
        }
    }
}
