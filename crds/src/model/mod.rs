//! What objects mean together: pure functions over several of them that more than one part needs.

mod agent_settings;
mod canonical;
mod endpoint_labels;
mod legacy_uid;
mod policy_order;
mod rule_family;

pub use agent_settings::agent_settings;
pub use canonical::canonicalise;
pub use endpoint_labels::{
    EndpointLabels, namespace_profile_labels, service_account_profile_labels, workload_labels,
};
pub use legacy_uid::swap_legacy_uid;
pub use policy_order::{PolicyRank, TierRank};
pub use rule_family::{Family, rule_for_family};
