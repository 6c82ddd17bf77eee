//! What the server calls its kinds, from aggregated discovery.

use crate::failure::Failure;
use kube::Client;
use kube::core::discovery::v2::APIGroupDiscoveryList;

/// One kind of object the server stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    /// API group; empty for core kinds.
    pub(crate) group: String,
    /// Version, e.g. `v3`.
    pub(crate) version: String,
    /// Kind, e.g. `IPPool`.
    pub(crate) kind: String,
    /// Plural resource name as in URLs, e.g. `ippools`.
    pub(crate) plural: String,
    /// Singular name, e.g. `ippool`.
    pub(crate) singular: String,
    /// Short names.
    pub(crate) short: Vec<String>,
    /// Whether objects live in namespaces.
    pub(crate) namespaced: bool,
}

impl Kind {
    /// `apiVersion` of objects of this kind.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `ippool.projectcalico.org`, the word in front of an object's name in messages.
    pub(crate) fn qualified_singular(&self) -> String {
        let name = if self.singular.is_empty() {
            self.kind.to_lowercase()
        } else {
            self.singular.clone()
        };
        if self.group.is_empty() {
            name
        } else {
            format!("{name}.{}", self.group)
        }
    }

    /// The URL path of the collection, or of one object.
    pub(crate) fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(name);
        }
        path
    }

    fn answers_to(&self, word: &str) -> bool {
        let (name, group) = word
            .split_once('.')
            .map_or((word, None), |(n, g)| (n, Some(g)));
        let named = name == self.plural
            || name == self.singular
            || name.eq_ignore_ascii_case(&self.kind)
            || self.short.iter().any(|s| s == name);
        named
            && group
                .is_none_or(|g| g == self.group || g == format!("{}.{}", self.version, self.group))
    }
}

/// Every kind of a server, preferred versions first.
#[derive(Debug, Default)]
pub(crate) struct Kinds {
    all: Vec<Kind>,
}

impl Kinds {
    /// Asks the server.
    pub(crate) async fn read(client: &Client) -> Result<Self, Failure> {
        let core = client.list_core_api_versions_aggregated().await?;
        let groups = client.list_api_groups_aggregated().await?;
        let mut all = Vec::new();
        collect(core, &mut all);
        collect(groups, &mut all);
        Ok(Self { all })
    }

    /// The kind a user's word means: plural, singular, kind, short name, optionally with `.group`.
    ///
    /// Where Calico's group and a core group share a name (NetworkPolicy), the core one is not what
    /// the users of this tool mean: `projectcalico.org` wins unless a group is given.
    pub(crate) fn find(&self, word: &str) -> Result<&Kind, Failure> {
        let mut matches: Vec<&Kind> = self.all.iter().filter(|k| k.answers_to(word)).collect();
        matches.sort_by_key(|k| match k.group.as_str() {
            "projectcalico.org" => 0,
            "margay.io" => 1,
            "" => 2,
            _ => 3,
        });
        matches.first().copied().ok_or_else(|| {
            let near = self.nearest(word).map(|n| format!("did you mean '{n}'?"));
            let failure = Failure::new(
                format!("the server doesn't have a resource type \"{word}\""),
                "no kind, plural or short name matches",
            );
            match near {
                Some(near) => failure.hint(near),
                None => failure,
            }
        })
    }

    /// The kind of an object in a file.
    pub(crate) fn find_for(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        self.all
            .iter()
            .find(|k| k.kind == kind && k.api_version() == api_version)
    }

    fn nearest(&self, word: &str) -> Option<&str> {
        self.all
            .iter()
            .flat_map(|k| [k.plural.as_str(), k.singular.as_str()])
            .map(|name| (distance(word, name), name))
            .filter(|(d, _)| *d <= 2)
            .min()
            .map(|(_, name)| name)
    }
}

fn collect(list: APIGroupDiscoveryList, all: &mut Vec<Kind>) {
    for group in list.items {
        let group_name = group
            .metadata
            .as_ref()
            .and_then(|m| m.name.clone())
            .unwrap_or_default();
        for version in group.versions {
            let version_name = version.version.clone().unwrap_or_default();
            for resource in version.resources {
                let Some(plural) = resource.resource else {
                    continue;
                };
                let Some(kind) = resource.response_kind.and_then(|k| k.kind) else {
                    continue;
                };
                all.push(Kind {
                    group: group_name.clone(),
                    version: version_name.clone(),
                    kind,
                    plural,
                    singular: resource.singular_resource.unwrap_or_default(),
                    short: resource.short_names,
                    namespaced: resource.scope.as_deref() == Some("Namespaced"),
                });
            }
        }
    }
}

/// Number of single-character edits between two words (Levenshtein).
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substitute = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = substitute.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(
        group: &str,
        version: &str,
        kind: &str,
        plural: &str,
        short: &[&str],
        namespaced: bool,
    ) -> Kind {
        Kind {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            singular: kind.to_lowercase(),
            short: short.iter().map(|s| (*s).to_owned()).collect(),
            namespaced,
        }
    }

    fn kinds() -> Kinds {
        Kinds {
            all: vec![
                kind("", "v1", "Pod", "pods", &["po"], true),
                kind(
                    "networking.k8s.io",
                    "v1",
                    "NetworkPolicy",
                    "networkpolicies",
                    &["netpol"],
                    true,
                ),
                kind(
                    "projectcalico.org",
                    "v3",
                    "NetworkPolicy",
                    "networkpolicies",
                    &["cnp"],
                    true,
                ),
                kind("projectcalico.org", "v3", "IPPool", "ippools", &[], false),
            ],
        }
    }

    #[test]
    fn a_kind_answers_to_plural_singular_kind_and_short_name() {
        let kinds = kinds();
        for word in [
            "ippools",
            "ippool",
            "IPPool",
            "ippools.projectcalico.org",
            "ippool.v3.projectcalico.org",
        ] {
            assert_eq!(kinds.find(word).unwrap().kind, "IPPool", "{word}");
        }
        assert_eq!(kinds.find("po").unwrap().kind, "Pod");
    }

    #[test]
    fn a_name_shared_by_two_groups_means_the_calico_one_unless_a_group_is_given() {
        let kinds = kinds();
        assert_eq!(
            kinds.find("networkpolicies").unwrap().group,
            "projectcalico.org"
        );
        assert_eq!(
            kinds
                .find("networkpolicies.networking.k8s.io")
                .unwrap()
                .group,
            "networking.k8s.io"
        );
    }

    #[test]
    fn an_unknown_kind_gets_the_nearest_name_as_a_hint() {
        let text = kinds().find("ippols").unwrap_err().to_string();
        assert!(
            text.contains("ippols") && text.contains("'ippools'"),
            "{text}"
        );
    }

    #[test]
    fn paths_follow_group_namespace_and_name() {
        let kinds = kinds();
        assert_eq!(
            kinds.find("po").unwrap().path(Some("a"), Some("b")),
            "/api/v1/namespaces/a/pods/b"
        );
        assert_eq!(
            kinds.find("ippool").unwrap().path(Some("a"), None),
            "/apis/projectcalico.org/v3/ippools"
        );
    }
}
