//! Machines that ask for addresses are judged beside the definitions of their networks.
//!
//! It looks, and asks [`crate::admission::addresses`]. It must never decide.

use std::collections::BTreeMap;

use api::multus::NetworkAttachmentDefinition;
use kube::{Api, Client};
use serde_json::Value;

use crate::admission::Answer;
use crate::admission::addresses::{Asked, validate};
use crate::error::{Error, named};

/// The answer, with what is wrong with the addresses that are asked for, if any are.
pub(super) async fn review(client: &Client, request: &Value, answer: Answer) -> Result<Answer, Error> {
    let Some(asked) = Asked::of(request) else { return Ok(answer) };
    let own = request["namespace"].as_str().unwrap_or_default();
    let mut definitions = BTreeMap::new();
    for written in asked.definitions() {
        let (namespace, name) = written.split_once('/').unwrap_or((own, written));
        let api: Api<NetworkAttachmentDefinition> = Api::namespaced(client.clone(), namespace);
        let object = named::<NetworkAttachmentDefinition>(Some(namespace), name);
        let found = api.get_opt(name).await.map_err(Error::api("reading", object))?;
        definitions.extend(found.map(|definition| (written.to_owned(), definition)));
    }
    let mut causes = match answer {
        Answer::Refuse(causes) => causes,
        other if validate(&asked, &definitions).is_empty() => return Ok(other),
        _ => Vec::new(),
    };
    causes.extend(validate(&asked, &definitions));
    Ok(Answer::Refuse(causes))
}
