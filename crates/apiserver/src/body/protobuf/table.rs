//! `fields.txt` as a table: which messages there are, and what each of their fields is called and holds.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::Wire;

pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| Table::parse(include_str!("../fields.txt")));

pub(super) struct Table {
    /// Messages by apiVersion and kind.
    kinds: HashMap<(&'static str, &'static str), &'static str>,
    messages: HashMap<&'static str, Message>,
}

/// Fields by number.
pub(super) struct Message(Vec<(u64, Field)>);

pub(super) struct Field {
    /// Empty: the value's fields belong to the message itself.
    pub name: &'static str,
    pub kind: Kind,
    pub omit_empty: bool,
}

pub(super) enum Kind {
    String,
    Bytes,
    Integer,
    Boolean,
    Double,
    Message(&'static str),
    List(Box<Kind>),
    Map(Box<Kind>),
}

impl Table {
    fn parse(text: &'static str) -> Self {
        let mut table = Self { kinds: HashMap::new(), messages: HashMap::new() };
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            match words.next() {
                Some(">") => {
                    if let [version, kind, message] = words.collect::<Vec<_>>()[..] {
                        table.kinds.insert((version, kind), message);
                    }
                }
                Some(name) => {
                    drop(table.messages.insert(name, Message(words.filter_map(Field::parse).collect())));
                }
                None => {}
            }
        }
        table
    }

    pub(super) fn kind(&self, api_version: &str, kind: &str) -> Option<&Message> {
        self.message(self.kinds.get(&(api_version, kind))?)
    }

    pub(super) fn message(&self, name: &str) -> Option<&Message> {
        self.messages.get(name)
    }

    #[cfg(test)]
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.kinds.keys().copied()
    }
}

impl Message {
    pub(super) fn field(&self, number: u64) -> Option<&Field> {
        self.0.iter().find(|(known, _)| *known == number).map(|(_, field)| field)
    }
}

impl Field {
    /// From `number=name?:type`.
    fn parse(word: &'static str) -> Option<(u64, Self)> {
        let (number, rest) = word.split_once('=')?;
        let (name, kind) = rest.split_once(':')?;
        let field = Self {
            name: name.trim_end_matches('?'),
            kind: Kind::parse(kind),
            omit_empty: name.ends_with('?'),
        };
        Some((number.parse().ok()?, field))
    }
}

impl Kind {
    fn parse(code: &'static str) -> Self {
        match code {
            "s" => Self::String,
            "b" => Self::Bytes,
            "i" => Self::Integer,
            "t" => Self::Boolean,
            "d" => Self::Double,
            _ => match (code.strip_prefix('*'), code.strip_prefix('%')) {
                (Some(element), _) => Self::List(Box::new(Self::parse(element))),
                (_, Some(element)) => Self::Map(Box::new(Self::parse(element))),
                _ => Self::Message(code),
            },
        }
    }

    /// What an entry of a map holds that leaves its value out.
    pub(super) fn zero(&self) -> Wire<'static> {
        match self {
            Self::Integer | Self::Boolean | Self::Double => Wire::Number(0),
            _ => Wire::Bytes(&[]),
        }
    }
}
