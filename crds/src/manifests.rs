//! The CustomResourceDefinition documents, embedded.

/// All documents as (file name, YAML), ordered by file name.
pub const ALL: &[(&str, &str)] = include!("../manifests/all.rs");

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
