//! Requests and answers: some clients, each on its own connection, asking again as soon as they are answered.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::JoinSet;

use crate::client::{Api, Connection, field};
use crate::objects::{self, Numbers};
use crate::sample::Sample;

/// How many objects the lists hold.
pub const LISTED: usize = 10_000;
const LIST: &str = "list";
const PAGE: usize = 500;

#[derive(Clone, Copy)]
pub enum Request {
    Create,
    /// A PUT that names the version it replaces.
    Replace,
    MergePatch,
    Get,
    List,
    /// The same list in pages; all its pages are one request here.
    ListInPages,
}

impl Request {
    /// Whether it needs the objects that [`populate`] makes.
    pub fn reads(self) -> bool {
        matches!(self, Self::Get | Self::List | Self::ListInPages)
    }
}

/// Creates the objects that the reading rows read.
pub async fn populate(api: &Api) -> Result<()> {
    api.connect().await?.post("/api/v1/namespaces", objects::namespace(LIST)).await?;
    let mut clients = JoinSet::new();
    let connections = api.connections(32).await?;
    let share = connections.len();
    for (index, mut connection) in connections.into_iter().enumerate() {
        clients.spawn(async move {
            let path = objects::collection(LIST);
            for number in (index..LISTED).step_by(share) {
                connection.post(&path, objects::object(&listed(number), number)).await?;
            }
            anyhow::Ok(())
        });
    }
    for client in clients.join_all().await {
        client?;
    }
    Ok(())
}

fn listed(number: usize) -> String {
    format!("o-{number:05}")
}

/// Lets `clients` send one kind of request for a while. `namespace` is new, and this measurement's own.
pub async fn run(
    api: &Api,
    request: Request,
    clients: usize,
    namespace: &str,
    time: Duration,
) -> Result<Sample> {
    api.connect().await?.post("/api/v1/namespaces", objects::namespace(namespace)).await?;
    let mut ready = Vec::with_capacity(clients);
    for index in 0..clients {
        ready.push(Client::prepare(api, request, index, namespace).await?);
    }
    let start = Instant::now();
    let mut running = JoinSet::new();
    for mut client in ready {
        running.spawn(async move {
            let mut latencies = Vec::new();
            while start.elapsed() < time || latencies.is_empty() {
                let sent = Instant::now();
                client.ask().await?;
                latencies.push(sent.elapsed());
            }
            anyhow::Ok(latencies)
        });
    }
    let mut latencies = Vec::new();
    for client in running.join_all().await {
        latencies.extend(client?);
    }
    Ok(Sample::new(latencies, start.elapsed()))
}

struct Client {
    connection: Connection,
    request: Request,
    index: usize,
    asked: usize,
    collection: String,
    /// The client's own object: two clients never write the same one, so no write conflicts.
    name: String,
    resource_version: String,
    numbers: Numbers,
}

impl Client {
    async fn prepare(api: &Api, request: Request, index: usize, namespace: &str) -> Result<Self> {
        let mut connection = api.connect().await?;
        let namespace = if request.reads() { LIST } else { namespace };
        let collection = objects::collection(namespace);
        let name = format!("o-{index}");
        let mut resource_version = String::new();
        if matches!(request, Request::Replace | Request::MergePatch) {
            let created = connection.post(&collection, objects::object(&name, 0)).await?;
            field(&created, "resourceVersion")?.clone_into(&mut resource_version);
        }
        Ok(Self {
            connection,
            request,
            index,
            asked: 0,
            collection,
            name,
            resource_version,
            numbers: Numbers::new(),
        })
    }

    async fn ask(&mut self) -> Result<()> {
        self.asked += 1;
        let path = format!("{}/{}", self.collection, self.name);
        match self.request {
            Request::Create => {
                let name = format!("o-{}-{}", self.index, self.asked);
                self.connection.post(&self.collection, objects::object(&name, self.asked)).await?;
            }
            Request::Replace => {
                let object = objects::replacement(&self.name, &self.resource_version, self.asked);
                let answer = self.connection.put(&path, object).await?;
                field(&answer, "resourceVersion")?.clone_into(&mut self.resource_version);
            }
            Request::MergePatch => {
                self.connection.merge_patch(&path, objects::change(self.asked)).await?;
            }
            Request::Get => {
                // A prime stride visits the objects in no order that a cache could guess.
                let number = (self.index * 613 + self.asked * 7919) % LISTED;
                let answer = self.connection.get(&format!("{}/{}", self.collection, listed(number))).await?;
                ensure!(self.numbers.first(&answer) == Some(number), "a GET answered with another object");
            }
            Request::List => {
                let answer = self.connection.get(&self.collection).await?;
                let found = self.numbers.count(&answer);
                ensure!(found == LISTED, "the list has {found} objects and not {LISTED}");
            }
            Request::ListInPages => {
                let found = self.list_in_pages().await?;
                ensure!(found == LISTED, "the pages have {found} objects and not {LISTED}");
            }
        }
        Ok(())
    }

    async fn list_in_pages(&mut self) -> Result<usize> {
        let mut path = format!("{}?limit={PAGE}", self.collection);
        let mut found = 0;
        loop {
            let page = self.connection.get(&path).await?;
            found += self.numbers.count(&page);
            let Ok(token) = field(&page, "continue") else {
                return Ok(found);
            };
            path = format!("{}?limit={PAGE}&continue={token}", self.collection);
        }
    }
}
