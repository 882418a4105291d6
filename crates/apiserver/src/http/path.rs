//! URLs: which resource, object and subresource a path names.

use percent_encoding::percent_decode_str;

use crate::status::{ApiError, ApiResult};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// `/api` or `/apis`.
    Groups {
        core: bool,
    },
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    GroupVersion {
        group: String,
        version: String,
    },
    OpenApiIndex,
    /// The older form, which kubectl asks for when it does not know a kind.
    OpenApiV2,
    /// Below `/openapi/v3/`.
    OpenApi(String),
    Resource(Resource),
}

/// A path below a group and version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub plural: String,
    pub name: Option<String>,
    /// Empty for the object itself.
    pub subresource: String,
}

impl Resource {
    /// The namespace, empty for cluster-scoped requests.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

pub fn parse(path: &str) -> ApiResult<Route> {
    let mut segments = Vec::new();
    for segment in path.split('/').filter(|segment| !segment.is_empty()) {
        let decoded = percent_decode_str(segment).decode_utf8();
        segments.push(decoded.map_err(|_| ApiError::bad_request("the URL is not UTF-8"))?.into_owned());
    }
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    Ok(match parts.as_slice() {
        ["api"] => Route::Groups { core: true },
        ["apis"] => Route::Groups { core: false },
        ["apis", group] => Route::Group((*group).into()),
        ["api", version] => Route::GroupVersion { group: String::new(), version: (*version).into() },
        ["apis", group, version] => {
            Route::GroupVersion { group: (*group).into(), version: (*version).into() }
        }
        ["openapi", "v2"] => Route::OpenApiV2,
        ["openapi", "v3"] => Route::OpenApiIndex,
        ["openapi", "v3", rest @ ..] => Route::OpenApi(rest.join("/")),
        ["api", version, rest @ ..] => Route::Resource(resource("", version, rest)?),
        ["apis", group, version, rest @ ..] => Route::Resource(resource(group, version, rest)?),
        _ => return Err(ApiError::no_such_resource()),
    })
}

fn resource(group: &str, version: &str, rest: &[&str]) -> ApiResult<Resource> {
    let base = Resource { group: group.into(), version: version.into(), ..Resource::default() };
    // `namespaces/N/status` is about the namespace; `namespaces/N/pods` is about what lives in it.
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..]
            if !rest.is_empty() && !matches!(rest, ["status" | "finalize"]) =>
        {
            (Some((*namespace).to_owned()), rest)
        }
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, String::new()),
        [plural, name] => (plural, Some((*name).to_owned()), String::new()),
        [plural, name, subresource @ ..] => (plural, Some((*name).to_owned()), subresource.join("/")),
        [] => return Err(ApiError::no_such_resource()),
    };
    Ok(Resource { namespace, plural: (*plural).to_owned(), name, subresource, ..base })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource_of(path: &str) -> Resource {
        match parse(path) {
            Ok(Route::Resource(resource)) => resource,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn a_namespace_is_an_object_and_a_scope() {
        let object = resource_of("/api/v1/namespaces/a");
        assert_eq!((object.plural.as_str(), object.name()), ("namespaces", "a"));
        let finalize = resource_of("/api/v1/namespaces/a/finalize");
        assert_eq!((finalize.plural.as_str(), finalize.subresource.as_str()), ("namespaces", "finalize"));
        let pods = resource_of("/api/v1/namespaces/a/pods");
        assert_eq!((pods.namespace(), pods.plural.as_str(), pods.name.as_deref()), ("a", "pods", None));
    }

    #[test]
    fn groups_names_and_subresources() {
        let scale = resource_of("/apis/apps/v1/namespaces/a/deployments/web/scale");
        assert_eq!((scale.group.as_str(), scale.version.as_str()), ("apps", "v1"));
        assert_eq!((scale.name(), scale.subresource.as_str()), ("web", "scale"));
        let rbac = resource_of("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aadmin");
        assert_eq!(rbac.name(), "system:admin");
        assert!(parse("/nowhere").is_err());
        assert_eq!(parse("/apis/apps").ok(), Some(Route::Group("apps".into())));
        assert_eq!(parse("/openapi/v3/api/v1").ok(), Some(Route::OpenApi("api/v1".into())));
    }
}
