//! What is asked: themes of scenarios of steps, read from YAML.
//!
//! A scenario runs in a namespace of its own. `$ns` is its name, `$group` the API group of the theme's definitions (`$reversed` as in
//! the names of schemas); `capture` makes further variables of an answer. A `$word` that is no variable stays as it is, so that `$patch` needs no escape.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Theme {
    #[serde(skip)]
    pub name: String,
    /// The `CustomResourceDefinition`s to create first: the files of `definitions/` by name.
    #[serde(default)]
    pub definitions: Vec<String>,
    #[serde(skip)]
    pub definition_bodies: Vec<Value>,
    /// This theme restarts its server or exhausts its history: it gets one of its own.
    #[serde(default)]
    pub own_server: bool,
    pub scenarios: Vec<Scenario>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    pub steps: Vec<Step>,
}

/// One request (`send`), one watch opened (`watch`) or read (`events`), or a `restart`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// `METHOD PATH`. PATCH is spelt `MERGE`, `JSON`, `STRATEGIC` or `APPLY`.
    pub send: Option<String>,
    pub body: Option<Value>,
    /// A body that is not JSON.
    pub raw: Option<String>,
    pub headers: BTreeMap<String, String>,
    /// `anonymous`, or `token TOKEN`.
    #[serde(rename = "as")]
    pub identity: Option<String>,
    /// Send it that often; the last answer counts.
    pub times: Option<usize>,
    /// Send it again until the answer has this code, or these values at these places (null: none; `<any>`).
    pub until: Option<Value>,
    /// Variables from places of the answer.
    pub capture: BTreeMap<String, String>,
    /// Of the answer's body only these places count.
    pub only: Vec<String>,
    /// A preparation: its answer does not count.
    pub quiet: bool,

    /// `NAME PATH`.
    pub watch: Option<String>,
    /// The NAME of a watch, of which so many events are awaited, or all up to its end.
    pub events: Option<String>,
    pub count: Option<usize>,
    /// Also the bookmarks that mark no end of initial events; adjoining ones count as one.
    pub bookmarks: bool,

    pub restart: bool,
}

impl Theme {
    /// The requests, each as text that tells it from others.
    pub fn requests(&self) -> impl Iterator<Item = String> {
        self.scenarios.iter().flat_map(|scenario| &scenario.steps).filter_map(|step| {
            let line = step.send.as_ref().or(step.watch.as_ref())?;
            let (headers, raw) = (&step.headers, step.raw.as_deref().unwrap_or_default());
            Some(format!("{line} {headers:?} {:?} {raw} {:?}", step.body, step.identity))
        })
    }
}

pub fn load(dir: &Path) -> Vec<Theme> {
    let files = std::fs::read_dir(dir).expect("the corpus can be read").flatten();
    let mut paths: Vec<_> = files.map(|file| file.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    let themes = paths.iter().map(|path| {
        let mut theme: Theme = yaml(path);
        theme.name = path.file_stem().expect("a file has a name").to_string_lossy().into_owned();
        let bodies = theme.definitions.iter();
        theme.definition_bodies =
            bodies.map(|name| yaml(&dir.join("definitions").join(format!("{name}.yaml")))).collect();
        theme
    });
    themes.collect()
}

fn yaml<T: for<'a> Deserialize<'a>>(path: &Path) -> T {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
