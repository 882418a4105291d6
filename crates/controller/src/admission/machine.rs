//! Whether a machine can run as it is written: its own fields, and the instance that its template makes.

use api::kubevirt::VirtualMachineInstanceSpec;
use serde_json::Value;

use super::{Cause, Causes, Rules, defaults, instance, review, unknown};

/// Everything that is wrong with the spec of a machine.
pub fn validate(spec: &Value, rules: &Rules) -> Vec<Cause> {
    let mut causes = Causes::default();
    let mut own = spec.clone();
    if let Some(template) = own.get_mut("template").and_then(Value::as_object_mut) {
        // Judged below, with what will be filled in.
        template.remove("spec");
    }
    unknown::refuse("VirtualMachine", &own, "spec", &mut causes);
    match (spec["running"].is_boolean(), spec["runStrategy"].is_string()) {
        (true, true) => causes.invalid(
            "spec.running",
            "running and runStrategy are mutually exclusive: keep runStrategy, which says more.",
        ),
        (false, false) => {
            causes.required(
                "spec.runStrategy",
                "Say when the machine is to run: set runStrategy, for example to Always.",
            );
        }
        _ => {}
    }
    let mut template = spec["template"]["spec"].clone();
    if let Ok(mut filled) = serde_json::from_value::<VirtualMachineInstanceSpec>(template.clone()) {
        defaults::fill_in(&mut filled, &rules.defaults);
        review::overlay(&mut template, &filled);
    }
    let mut causes = causes.0;
    causes.extend(instance::validate(&template, "spec.template.spec", rules));
    causes
}
