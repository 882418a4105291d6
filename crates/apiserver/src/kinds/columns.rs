//! What kubectl prints of the built-in kinds.

use super::Column;

/// The columns of a built-in resource.
pub fn of(plural: &str) -> Vec<Column> {
    include_str!("columns.txt")
        .lines()
        .filter_map(|line| {
            let mut parts = line.split('|');
            if parts.next()? != plural {
                return None;
            }
            let name = parts.next()?;
            Some(Column {
                name: name.into(),
                kind: parts.next()?.into(),
                format: if name == "Name" {
                    "name".into()
                } else {
                    String::new()
                },
                priority: parts.next()?.parse().ok()?,
                description: parts.next()?.into(),
                path: String::new(),
            })
        })
        .collect()
}
