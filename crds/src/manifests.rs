//! The CustomResourceDefinition documents, embedded.

/// All documents as (file name, YAML), ordered by file name.
pub const ALL: &[(&str, &str)] = include!("../manifests/all.rs");

/// Refuses the deletion of built-in tiers. For every server that has ValidatingAdmissionPolicy v1 (Kubernetes 1.30).
pub const VALIDATING_ADMISSION: &str =
    include_str!("../manifests/admission/protect-builtin-tiers.yaml");

/// Fills in policy types and the tier label. Only for servers that have MutatingAdmissionPolicy v1 (Kubernetes 1.36);
/// nothing depends on it.
pub const MUTATING_ADMISSION: &str = include_str!("../manifests/admission/mutating-policies.yaml");

/// The document of one kind, by plural name.
pub fn by_plural(plural: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(file, _)| {
            file.strip_suffix(".yaml")
                .and_then(|stem| stem.split_once('_'))
                .is_some_and(|(_, name)| name == plural)
        })
        .map(|(_, yaml)| *yaml)
}
