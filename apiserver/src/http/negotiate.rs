//! Which representation the client wants (Kubernetes API concepts, "Resource encodings", "Table fetches").

use crate::status::ApiError;

/// How objects are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// As they are.
    Object,
    /// As a Table.
    Table,
    /// Metadata only.
    Metadata,
}

/// One acceptable media type.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Media {
    name: String,
    parameters: Vec<(String, String)>,
}

/// The `Accept` header, in order of preference.
#[derive(Debug, Clone)]
pub(super) struct Accept(Vec<Media>);

impl Accept {
    /// Parses the header; absent means anything.
    pub(super) fn parse(header: &str) -> Self {
        let mut all: Vec<(u32, Media)> = header
            .split(',')
            .filter(|m| !m.trim().is_empty())
            .map(|m| {
                let mut parts = m.split(';').map(str::trim);
                let name = parts.next().unwrap_or_default().to_ascii_lowercase();
                let mut quality = 1000;
                let mut parameters = Vec::new();
                for (key, value) in parts.filter_map(|p| p.split_once('=')) {
                    if key == "q" {
                        let q: f32 = value.parse().unwrap_or(1.0);
                        quality = (q.clamp(0.0, 1.0) * 1000.0) as u32;
                    } else {
                        parameters.push((key.to_owned(), value.to_owned()));
                    }
                }
                (quality, Media { name, parameters })
            })
            .collect();
        all.sort_by_key(|(quality, _)| std::cmp::Reverse(*quality));
        if all.is_empty() {
            all.push((
                1000,
                Media {
                    name: "*/*".into(),
                    parameters: Vec::new(),
                },
            ));
        }
        Self(all.into_iter().map(|(_, media)| media).collect())
    }

    /// The best view of objects this server has.
    pub(super) fn view(&self) -> Result<View, ApiError> {
        self.0
            .iter()
            .filter(|m| m.is_json())
            .find_map(|m| match m.parameter("as") {
                None => Some(View::Object),
                Some("Table") if m.is("meta.k8s.io", "v1") => Some(View::Table),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList")
                    if m.is("meta.k8s.io", "v1") =>
                {
                    Some(View::Metadata)
                }
                Some(_) => None,
            })
            .ok_or_else(|| ApiError::not_acceptable("application/json"))
    }

    /// Whether the client prefers aggregated discovery in version `v2`.
    pub(super) fn aggregated_discovery(&self) -> bool {
        let first = self
            .0
            .iter()
            .filter(|m| m.is_json())
            .find(|m| m.parameter("as").is_none() || m.is("apidiscovery.k8s.io", "v2"));
        first.is_some_and(|m| m.parameter("as") == Some("APIGroupDiscoveryList"))
    }

    /// Whether plain JSON will do.
    pub(super) fn json(&self) -> bool {
        self.0
            .iter()
            .any(|m| m.is_json() && m.parameter("as").is_none())
    }
}

impl Media {
    fn is_json(&self) -> bool {
        matches!(
            self.name.as_str(),
            "application/json" | "application/*" | "*/*"
        )
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters
            .iter()
            .find(|(k, _)| k == name)
            .map(|(_, v)| v.as_str())
    }

    fn is(&self, group: &str, version: &str) -> bool {
        self.parameter("g") == Some(group) && self.parameter("v") == Some(version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_supported_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(Accept::parse(kubectl).view().unwrap(), View::Table);
        let old = "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(Accept::parse(old).view().unwrap(), View::Object);
        let protobuf = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(Accept::parse(protobuf).view().unwrap(), View::Object);
        assert_eq!(Accept::parse("").view().unwrap(), View::Object);
        assert_eq!(
            Accept::parse("application/vnd.kubernetes.protobuf")
                .view()
                .unwrap_err()
                .code,
            406
        );
        let weighted = "application/json;q=0.5,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(Accept::parse(weighted).view().unwrap(), View::Metadata);
    }

    #[test]
    fn aggregated_discovery_needs_the_known_version() {
        let kubectl =
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert!(Accept::parse(kubectl).aggregated_discovery());
        let beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert!(!Accept::parse(beta).aggregated_discovery());
        assert!(!Accept::parse("application/json").aggregated_discovery());
    }
}
