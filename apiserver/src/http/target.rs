//! What a path means.

use crate::status::ApiError;

/// A path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    Root,
    Health,
    Version,
    Api,
    Apis,
    Group(String),
    GroupVersion(String, String),
    OpenApiV2,
    OpenApiV3,
    /// `api/v1` or `apis/GROUP/VERSION`.
    OpenApiV3Of(String),
    Resource(ResourcePath),
}

/// A path to objects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ResourcePath {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) namespace: Option<String>,
    pub(super) plural: String,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

impl ResourcePath {
    /// Namespace for keys: empty when cluster-scoped.
    pub(super) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }
}

impl Target {
    /// Parses a path.
    pub(super) fn parse(path: &str) -> Result<Self, ApiError> {
        let parts: Vec<String> = path
            .split('/')
            .filter(|p| !p.is_empty())
            .map(percent_decode)
            .collect::<Option<_>>()
            .ok_or_else(|| ApiError::bad_request("the path is not valid UTF-8"))?;
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(match parts.as_slice() {
            [] => Self::Root,
            ["healthz" | "livez" | "readyz", ..] => Self::Health,
            ["version"] => Self::Version,
            ["api"] => Self::Api,
            ["apis"] => Self::Apis,
            ["apis", group] => Self::Group((*group).into()),
            ["api", version] => Self::GroupVersion(String::new(), (*version).into()),
            ["apis", group, version] => Self::GroupVersion((*group).into(), (*version).into()),
            ["openapi", "v2"] => Self::OpenApiV2,
            ["openapi", "v3"] => Self::OpenApiV3,
            ["openapi", "v3", rest @ ..] => Self::OpenApiV3Of(rest.join("/")),
            ["api", version, rest @ ..] => Self::Resource(resource("", version, rest)?),
            ["apis", group, version, rest @ ..] => Self::Resource(resource(group, version, rest)?),
            _ => return Err(ApiError::no_such_path()),
        })
    }
}

fn resource(group: &str, version: &str, rest: &[&str]) -> Result<ResourcePath, ApiError> {
    let base = ResourcePath {
        group: group.into(),
        version: version.into(),
        ..Default::default()
    };
    let (namespace, rest) = match rest {
        // A namespace's own subresources are not resources in it.
        ["namespaces", _, "status" | "finalize"] => (None, rest),
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
            (Some((*namespace).to_owned()), rest)
        }
        _ => (None, rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(name), None),
        [plural, name, subresource] => (plural, Some(name), Some(subresource)),
        _ => return Err(ApiError::no_such_path()),
    };
    let owned = |text: &&str| (*text).to_owned();
    Ok(ResourcePath {
        namespace,
        plural: owned(plural),
        name: name.map(owned),
        subresource: subresource.map(owned),
        ..base
    })
}

/// Decodes `%XX`.
pub(super) fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let hex = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(std::str::from_utf8(&hex).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> ResourcePath {
        match Target::parse(text).unwrap() {
            Target::Resource(path) => path,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn resource_paths() {
        let p = path("/api/v1/namespaces/kube-system/pods/a/status");
        assert_eq!(p.namespace.as_deref(), Some("kube-system"));
        assert_eq!((p.plural.as_str(), p.name.as_deref()), ("pods", Some("a")));
        assert_eq!(p.subresource.as_deref(), Some("status"));
        let p = path("/api/v1/namespaces/x");
        assert_eq!(
            (p.plural.as_str(), p.namespace, p.name.as_deref()),
            ("namespaces", None, Some("x"))
        );
        let p = path("/api/v1/namespaces/x/finalize");
        assert_eq!(
            (p.plural.as_str(), p.subresource.as_deref()),
            ("namespaces", Some("finalize"))
        );
        let p = path("/apis/projectcalico.org/v3/ippools/a%3Ab");
        assert_eq!(
            (p.group.as_str(), p.name.as_deref()),
            ("projectcalico.org", Some("a:b"))
        );
        assert_eq!(
            Target::parse("/openapi/v3/apis/g/v1").unwrap(),
            Target::OpenApiV3Of("apis/g/v1".into())
        );
        assert!(Target::parse("/api/v1/pods/a/b/c/d").is_err());
        assert!(Target::parse("/api/v1/pods/%ff").is_err());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "(/|api|namespaces|%|%[0-9a-f]{0,2}|.){0,12}") {
            let _ = Target::parse(&text);
        }
    }
}
