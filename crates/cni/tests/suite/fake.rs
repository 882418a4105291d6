//! Plugins that do as the test says, at once, and remember what they were asked.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use cni::{Exec, ExecError, Invocation, Journal, Output, PluginName, Runtime, SearchPath};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

type Answer = dyn Fn(&Call) -> Result<Output, ExecError> + Send + Sync;

/// What a plugin was asked.
#[derive(Clone, Debug)]
pub struct Call {
    pub plugin: String,
    pub operation: String,
    pub container: String,
    pub interface: String,
    pub namespace: String,
    pub input: Value,
}

#[derive(Clone)]
pub struct Fake {
    calls: Arc<Mutex<Vec<Call>>>,
    running: Arc<Mutex<BTreeSet<(String, String)>>>,
    answer: Arc<Answer>,
    /// Calls of this name wait for a permit.
    held: Option<(&'static str, Arc<Semaphore>)>,
}

impl Fake {
    pub fn new(answer: impl Fn(&Call) -> Result<Output, ExecError> + Send + Sync + 'static) -> Self {
        Self { calls: Arc::default(), running: Arc::default(), answer: Arc::new(answer), held: None }
    }

    /// Every plugin succeeds.
    pub fn obedient() -> Self {
        Self::new(|call| Ok(succeeded(call)))
    }

    /// Calls of this `OPERATION plugin` wait for a permit.
    pub fn holding(self, name: &'static str, permits: &Arc<Semaphore>) -> Self {
        Self { held: Some((name, Arc::clone(permits))), ..self }
    }

    pub fn runtime(&self, journal: &Path) -> Runtime<Self> {
        let path = SearchPath::new(["/fake"]).unwrap();
        Runtime::new(self.clone(), path, Journal::open(journal).unwrap().journal)
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// `OPERATION plugin` of every call since the last time.
    pub fn take(&self) -> Vec<String> {
        let calls = std::mem::take(&mut *self.calls.lock().unwrap());
        calls.iter().map(|call| format!("{} {}", call.operation, call.plugin)).collect()
    }
}

/// What a plugin that succeeds writes: to ADD, an interface of its own name after those before.
pub fn succeeded(call: &Call) -> Output {
    let answer = match call.operation.as_str() {
        "ADD" => {
            let mut result =
                json!({ "cniVersion": call.input["cniVersion"], "interfaces": [], "x-own": call.plugin });
            if let Some(previous) = call.input.get("prevResult") {
                result = previous.clone();
            }
            result["interfaces"].as_array_mut().unwrap().push(json!({ "name": call.plugin }));
            result
        }
        "VERSION" => json!({ "supportedVersions": ["0.4.0", "1.0.0", "1.1.0"] }),
        _ => Value::Null,
    };
    Output { code: Some(0), stdout: answer.to_string().into_bytes(), stderr: Vec::new() }
}

/// What a plugin that refuses writes.
pub fn refused(code: u32) -> Output {
    let error = json!({ "code": code, "msg": "no" });
    Output { code: Some(1), stdout: error.to_string().into_bytes(), stderr: Vec::new() }
}

impl Exec for Fake {
    fn find(&self, plugin: &PluginName, _: &SearchPath) -> Result<PathBuf, ExecError> {
        Ok(Path::new("/fake").join(plugin.as_str()))
    }

    async fn run(&self, invocation: Invocation) -> Result<Output, ExecError> {
        let variable = |name: &str| {
            let found = invocation.environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let call = Call {
            plugin: invocation.program.file_name().unwrap().to_str().unwrap().to_owned(),
            operation: variable("CNI_COMMAND"),
            container: variable("CNI_CONTAINERID"),
            interface: variable("CNI_IFNAME"),
            namespace: variable("CNI_NETNS"),
            input: serde_json::from_slice(&invocation.input).unwrap(),
        };
        let on = (call.container.clone(), call.interface.clone());
        if !on.0.is_empty() {
            assert!(self.running.lock().unwrap().insert(on.clone()), "two operations on {on:?} at once");
        }
        self.calls.lock().unwrap().push(call.clone());
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        if let Some((name, permits)) = &self.held
            && *name == format!("{} {}", call.operation, call.plugin)
        {
            permits.acquire().await.unwrap().forget();
        }
        self.running.lock().unwrap().remove(&on);
        (self.answer)(&call)
    }

    async fn end_orphans(&self, _: String, _: String) -> Result<(), ExecError> {
        Ok(())
    }
}
