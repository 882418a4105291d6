//! The reconciler of `VirtualMachine`: looks, decides, acts, writes the status.
//!
//! It makes and deletes instances and nothing else; what a running guest does is the instance's own business.

mod decide;
mod instance;
mod status;

use std::sync::Arc;

use api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use api::names::{events, finalizers, reasons};
use futures::StreamExt as _;
use jiff::Timestamp;
use kube::api::PostParams;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, controller, watcher};
use kube::{Api, ResourceExt as _};

pub use decide::{Action, Decision, decide};

use crate::error::{Error, named};
use crate::report::Note;
use crate::{Context, edit};

/// Reconciles every machine until dropped.
pub(crate) async fn run(context: Arc<Context>) {
    let machines: Api<VirtualMachine> = Api::all(context.client.clone());
    let instances: Api<VirtualMachineInstance> = Api::all(context.client.clone());
    Controller::new(machines, watcher::Config::default())
        // By name, not by owner: an instance that is somebody else's is in the way until it is gone.
        .watches(instances, watcher::Config::default(), |vmi: VirtualMachineInstance| {
            let machine = ObjectRef::new(&vmi.name_any());
            Some(machine.within(&vmi.namespace().unwrap_or_default()))
        })
        .run(reconcile, |_, error, _| controller::Action::requeue(error.retry_after()), context)
        .for_each(async |_| {})
        .await;
}

async fn reconcile(vm: Arc<VirtualMachine>, context: Arc<Context>) -> Result<controller::Action, Error> {
    context.report.on(&*vm, async |notes| bring_about(&vm, &context, notes).await).await
}

async fn bring_about(
    vm: &VirtualMachine,
    context: &Context,
    notes: &mut Vec<Note>,
) -> Result<controller::Action, Error> {
    let (name, namespace) = (vm.name_any(), vm.namespace().unwrap_or_default());
    let machines: Api<VirtualMachine> = Api::namespaced(context.client.clone(), &namespace);
    let instances: Api<VirtualMachineInstance> = Api::namespaced(context.client.clone(), &namespace);
    let there = named::<VirtualMachineInstance>(Some(&namespace), &name);
    let vmi = instances.get_opt(&name).await.map_err(Error::api("reading", there.as_str()))?;

    let Decision { actions, mut status, again } = decide(vm, vmi.as_ref(), Timestamp::now());
    let mut current = vm.clone();
    let mut failure = None;
    for action in &actions {
        match act(action, &mut current, &machines, &instances, notes).await {
            Ok(()) => {}
            Err(error) if error.is_conflict() => return Err(error),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if let Some(error) = &failure {
        status::failed(&mut status, reasons::FAILED_CREATE, &error.explain(), Timestamp::now());
    }
    if !actions.contains(&Action::RemoveFinalizer) && vm.status.as_ref() != Some(&status) {
        current.status = Some(status);
        edit::status(&machines, &current).await?;
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(again.map_or_else(controller::Action::await_change, controller::Action::requeue)),
    }
}

async fn act(
    action: &Action,
    current: &mut VirtualMachine,
    machines: &Api<VirtualMachine>,
    instances: &Api<VirtualMachineInstance>,
    notes: &mut Vec<Note>,
) -> Result<(), Error> {
    match action {
        Action::AddFinalizer => {
            *current = edit::finalizer(machines, current, finalizers::MACHINE, true).await?;
        }
        Action::RemoveFinalizer => {
            *current = edit::finalizer(machines, current, finalizers::MACHINE, false).await?;
        }
        Action::Create(vmi) => create(vmi, instances, notes).await?,
        Action::Delete { name, uid } => {
            edit::delete(instances, name, uid).await?;
            notes.push(Note::done(
                events::SUCCESSFUL_DELETE,
                format!("stopped the machine by deleting instance {name} ({uid})"),
            ));
        }
    }
    Ok(())
}

async fn create(
    vmi: &VirtualMachineInstance,
    instances: &Api<VirtualMachineInstance>,
    notes: &mut Vec<Note>,
) -> Result<(), Error> {
    let name = vmi.name_any();
    match instances.create(&PostParams::default(), vmi).await {
        Ok(_) => {
            notes.push(Note::done(
                events::SUCCESSFUL_CREATE,
                format!("started the machine by making instance {name}"),
            ));
            Ok(())
        }
        // Made since it was looked for: the next look finds it.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(source) => {
            let object = named::<VirtualMachineInstance>(instances.namespace(), &name);
            let error = Error::api("making", object)(source);
            notes.push(Note::failed(events::FAILED_CREATE, error.explain()));
            Err(error)
        }
    }
}
