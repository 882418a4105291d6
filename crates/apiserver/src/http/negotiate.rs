//! `Accept`: in which form an answer is wanted.

use crate::status::{ApiError, ApiResult};

/// The form of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Accept {
    #[default]
    Object,
    /// Rows for people. The object within each row is asked for by `includeObject`.
    Table,
    PartialMetadata,
}

impl Accept {
    /// The first acceptable form that the client lists; nothing acceptable is 406.
    pub fn parse(header: &str) -> ApiResult<Self> {
        if header.trim().is_empty() {
            return Ok(Self::Object);
        }
        let mut readable = header.split(',').filter_map(Media::parse).peekable();
        if readable.peek().is_none() {
            return Err(ApiError::no_such_representation());
        }
        let mut forms = readable.filter_map(|media| {
            let known_version = matches!(media.version, "" | "v1");
            match media.form {
                "" => Some(Self::Object),
                "Table" if known_version => Some(Self::Table),
                "PartialObjectMetadata" | "PartialObjectMetadataList" if known_version => {
                    Some(Self::PartialMetadata)
                }
                _ => None,
            }
        });
        forms.next().ok_or_else(ApiError::not_acceptable)
    }
}

/// Whether discovery is wanted in its aggregated form, and in which version.
pub fn aggregated_discovery(header: &str) -> Option<&'static str> {
    header.split(',').filter_map(Media::parse).find_map(|media| {
        let wanted = media.form == "APIGroupDiscoveryList";
        match media.version {
            "v2" if wanted => Some("v2"),
            "v2beta1" if wanted => Some("v2beta1"),
            _ => None,
        }
    })
}

/// One entry of an `Accept` list that can be answered with JSON.
struct Media<'a> {
    form: &'a str,
    version: &'a str,
}

impl<'a> Media<'a> {
    fn parse(entry: &'a str) -> Option<Self> {
        let mut parts = entry.split(';').map(str::trim);
        if !matches!(parts.next(), Some("application/json" | "*/*")) {
            return None;
        }
        let mut media = Self { form: "", version: "" };
        for part in parts {
            match part.split_once('=') {
                Some(("as", form)) => media.form = form,
                Some(("v", version)) => media.version = version,
                _ => {}
            }
        }
        Some(media)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_acceptable_form_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(Accept::parse(kubectl), Ok(Accept::Table));
        assert_eq!(Accept::parse("application/vnd.kubernetes.protobuf,application/json"), Ok(Accept::Object));
        assert_eq!(Accept::parse("*/*"), Ok(Accept::Object));
        assert_eq!(Accept::parse(""), Ok(Accept::Object));
        assert_eq!(
            Accept::parse("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Ok(Accept::PartialMetadata)
        );
        assert_eq!(Accept::parse("text/html").map_err(|e| e.code), Err(406));
    }
}
