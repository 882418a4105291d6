//! Plays scenarios against a server and returns its answers, made comparable.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::{Map, Value, json};
use testkit::{Http, Identity, Options, Reply, Server, Watch, eventually};

use crate::corpus::{Scenario, Step, Theme};
use crate::normal;

type Variables = BTreeMap<String, String>;

/// How long an event may take. The real server bundles bookmarks for up to a second or so; nothing else takes long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The answers to a theme: an array of answers per scenario.
pub async fn theme(theme: &Theme, shared: &Server) -> Value {
    let mut own = None;
    if theme.own_server {
        let options = Options { durable: true, history: Some(100) };
        own = Some(Server::start_engine(shared.engine().clone(), options).await);
    }
    let http = own.as_ref().unwrap_or(shared).http().await;
    let group = format!("{}-{}.test", theme.name, unique());
    let definitions = define(&http, theme, &group).await;
    let mut answers = Map::new();
    for scenario in &theme.scenarios {
        let played = play(scenario, &group, shared, own.as_mut()).await;
        answers.insert(scenario.name.clone(), played);
    }
    let http = own.as_ref().unwrap_or(shared).http().await;
    for path in definitions {
        http.delete(&path).await;
    }
    Value::Object(answers)
}

/// Creates the theme's definitions and waits until they are served.
async fn define(http: &Http, theme: &Theme, group: &str) -> Vec<String> {
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let variables = Variables::from([("group".into(), group.into())]);
    let mut paths = Vec::new();
    for body in &theme.definition_bodies {
        let created = http.post(definitions, &fill(body, &variables)).await.ok();
        let plural = created["spec"]["names"]["plural"].as_str().expect("a plural").to_owned();
        for version in created["spec"]["versions"].as_array().expect("versions") {
            if version["served"] == true {
                let list = format!("/apis/{group}/{}/{plural}", version["name"].as_str().expect("a name"));
                eventually(&list, async || http.get(&list).await.status.is_success().then_some(())).await;
            }
        }
        paths.push(format!("{definitions}/{plural}.{group}"));
    }
    paths
}

async fn play(scenario: &Scenario, group: &str, shared: &Server, mut own: Option<&mut Server>) -> Value {
    let namespace = format!("diff-{}", unique());
    let mut player = Player {
        http: own.as_deref().unwrap_or(shared).http().await,
        variables: Variables::from([
            ("ns".into(), namespace.clone()),
            ("group".into(), group.into()),
            ("reversed".into(), group.rsplit('.').collect::<Vec<_>>().join(".")),
        ]),
        watches: BTreeMap::new(),
    };
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    player.http.post("/api/v1/namespaces", &body).await.ok();
    let mut answers = Vec::new();
    for step in &scenario.steps {
        if step.restart {
            let server = own.as_deref_mut().expect("a theme that restarts has its own server");
            server.restart().await;
            player.http = server.http().await;
            continue;
        }
        let server = own.as_deref().unwrap_or(shared);
        let answer = tokio::time::timeout(Duration::from_secs(90), player.step(step, server)).await;
        let answer = answer.unwrap_or_else(|_| panic!("{}: no end of {step:?}", scenario.name));
        if !step.quiet {
            answers.push(answer);
        }
    }
    player.http.delete(&format!("/api/v1/namespaces/{namespace}")).await;
    let bodies = scenario.steps.iter().filter_map(|step| step.body.as_ref());
    let prefixes: Vec<&str> = bodies.filter_map(|body| body["metadata"]["generateName"].as_str()).collect();
    normal::scenario(answers, &player.variables, &prefixes)
}

struct Player {
    http: Http,
    variables: Variables,
    watches: BTreeMap<String, Watch>,
}

impl Player {
    async fn step(&mut self, step: &Step, server: &Server) -> Value {
        if let Some(line) = &step.send {
            return self.send(line, step, server).await;
        }
        if let Some(line) = &step.watch {
            let (name, path) = line.split_once(' ').expect("watch: NAME PATH");
            let headers = filled_headers(step, &self.variables);
            let watch = self.http.try_watch(&text(path, &self.variables), &borrowed(&headers)).await;
            let watch = watch.unwrap_or_else(|error| panic!("{line}: {error}"));
            let mut answer = json!({"request": format!("WATCH {path}"), "status": watch.status.as_u16()});
            keep_headers(&mut answer, &watch.headers);
            self.watches.insert(name.to_owned(), watch);
            return answer;
        }
        let name = step.events.as_ref().expect("a step is one of send, watch, events, restart");
        let watch = self.watches.get_mut(name).unwrap_or_else(|| panic!("no watch {name}"));
        json!({"request": format!("EVENTS {name}"), "events": events(watch, step).await})
    }

    async fn send(&mut self, line: &str, step: &Step, server: &Server) -> Value {
        let (verb, path) = line.split_once(' ').unwrap_or_else(|| panic!("{line}: METHOD PATH"));
        let (method, content_type) = match verb {
            "MERGE" => (Method::PATCH, "application/merge-patch+json"),
            "JSON" => (Method::PATCH, "application/json-patch+json"),
            "STRATEGIC" => (Method::PATCH, "application/strategic-merge-patch+json"),
            "APPLY" => (Method::PATCH, "application/apply-patch+yaml"),
            verb => (verb.parse().expect("an HTTP method"), "application/json"),
        };
        let body = match (&step.raw, &step.body) {
            (Some(raw), _) => text(raw, &self.variables),
            (None, Some(body)) => fill(body, &self.variables).to_string(),
            (None, None) => String::new(),
        };
        let mut headers = filled_headers(step, &self.variables);
        if !body.is_empty() {
            headers.entry("content-type".into()).or_insert_with(|| content_type.into());
        }
        let other = match step.identity.as_deref() {
            None => None,
            Some("anonymous") => Some(server.http_as(Identity::Anonymous).await),
            Some(token) => {
                let token = token.strip_prefix("token ").expect("anonymous or token TOKEN");
                Some(server.http_as(Identity::Token(text(token, &self.variables))).await)
            }
        };
        let http = other.as_ref().unwrap_or(&self.http);
        let headers = borrowed(&headers);
        let path = text(path, &self.variables);

        let mut reply = http.send(method.clone(), &path, &headers, body.clone()).await;
        for _ in 1..step.times.unwrap_or(1) {
            reply = http.send(method.clone(), &path, &headers, body.clone()).await;
        }
        if let Some(wanted) = &step.until {
            let wanted = fill(wanted, &self.variables);
            // The real garbage collector looks for new kinds every thirty seconds only.
            let deadline = tokio::time::Instant::now() + Duration::from_secs(90);
            // Past the deadline the answer is recorded as it is, and the comparison says what is wrong with it.
            while !satisfied(&reply, &wanted) && tokio::time::Instant::now() < deadline {
                tokio::time::sleep(Duration::from_millis(50)).await;
                reply = http.send(method.clone(), &path, &headers, body.clone()).await;
            }
        }
        let json = reply.json();
        for (name, place) in &step.capture {
            let value = find(&json, place).cloned().unwrap_or_default();
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.variables.insert(name.clone(), value);
        }
        let mut answer = json!({"request": line, "status": reply.status.as_u16()});
        keep_headers(&mut answer, &reply.headers);
        answer["body"] = if step.only.is_empty() {
            json
        } else {
            let places = step.only.iter();
            places
                .map(|place| {
                    (
                        place.clone(),
                        find(&json, &text(place, &self.variables)).cloned().unwrap_or("<absent>".into()),
                    )
                })
                .collect()
        };
        answer
    }
}

/// The headers that are part of the contract.
fn keep_headers(answer: &mut Value, headers: &http::HeaderMap) {
    for name in ["content-type", "warning", "retry-after", "www-authenticate"] {
        let values: Vec<_> = headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        match values[..] {
            [] => {}
            [value] => answer[name] = value.into(),
            _ => answer[name] = values.into(),
        }
    }
}

async fn events(watch: &mut Watch, step: &Step) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    while step.count.is_none_or(|count| events.len() < count) {
        match tokio::time::timeout(PATIENCE, watch.next()).await {
            Err(_) => {
                events.push("<no more events, and no end>".into());
                break;
            }
            Ok(None) => {
                events.push("<end>".into());
                break;
            }
            Ok(Some(event)) if is_idle_bookmark(&event) => {
                let repeated = events.last().is_some_and(is_idle_bookmark);
                if step.bookmarks && !repeated {
                    events.push(event);
                }
            }
            Ok(Some(event)) => events.push(event),
        }
    }
    events
}

/// A bookmark that is sent as time passes, and not as the end of the initial events.
fn is_idle_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"].is_null()
}

fn satisfied(reply: &Reply, wanted: &Value) -> bool {
    match wanted {
        Value::Number(code) => code.as_u64() == Some(reply.status.as_u16().into()),
        Value::Object(places) => {
            let body = reply.json();
            places.iter().all(|(place, value)| match find(&body, place) {
                None => value.is_null(),
                Some(found) => value == "<any>" || value == found,
            })
        }
        other => panic!("until: a status code or places, not {other}"),
    }
}

/// A JSON pointer whose segment `key=value` finds the element of an array; the key may be dotted.
fn find<'a>(value: &'a Value, place: &str) -> Option<&'a Value> {
    place.split('/').skip(1).try_fold(value, |value, segment| match (value, segment.split_once('=')) {
        (Value::Array(items), Some((key, wanted))) => items.iter().find(|item| {
            let found = key.split('.').try_fold(*item, |value, key| value.get(key));
            found.and_then(Value::as_str) == Some(&wanted.replace("~1", "/"))
        }),
        (value, _) => value.pointer(&format!("/{segment}")),
    })
}

fn unique() -> String {
    uuid::Uuid::new_v4().simple().to_string()[..8].to_owned()
}

fn filled_headers(step: &Step, variables: &Variables) -> BTreeMap<String, String> {
    step.headers.iter().map(|(name, value)| (name.clone(), text(value, variables))).collect()
}

fn borrowed(headers: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// Replaces the variables in keys and strings.
fn fill(value: &Value, variables: &Variables) -> Value {
    match value {
        Value::String(string) => text(string, variables).into(),
        Value::Array(items) => items.iter().map(|item| fill(item, variables)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (text(key, variables), fill(value, variables))).collect()
        }
        other => other.clone(),
    }
}

fn text(template: &str, variables: &Variables) -> String {
    let mut parts = template.split('$');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(part.len());
        if let Some(value) = variables.get(&part[..end]) {
            filled.push_str(value);
        } else {
            filled.push('$');
            filled.push_str(&part[..end]);
        }
        filled.push_str(&part[end..]);
    }
    filled
}
