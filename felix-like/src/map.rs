//! Hash tables keyed by routes and addresses. The standard hasher costs more than the rest of handling a route; this
//! one is seeded per process, too.

/// Hash map with the fast hasher; made with `default()`.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// Hash set with the fast hasher; made with `default()`.
pub(crate) type HashSet<K> = std::collections::HashSet<K, foldhash::fast::RandomState>;
