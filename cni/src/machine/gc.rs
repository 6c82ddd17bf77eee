//! GC: which attachments does the runtime no longer know?

use crate::attachment::{Attachment, AttachmentKey, State};

/// The attachments to remove, oldest first. `valid` is what the runtime still knows; when it did not say, nothing is
/// stale. Attachments of other networks and those being made are none of its business.
pub fn stale(
    records: &[Attachment],
    network: &str,
    valid: Option<&[AttachmentKey]>,
) -> Vec<Attachment> {
    let Some(valid) = valid else {
        return Vec::new();
    };
    let mut stale: Vec<Attachment> = records
        .iter()
        .filter(|record| record.network == network && record.state != State::Preparing)
        .filter(|record| !valid.contains(&record.key))
        .cloned()
        .collect();
    stale.sort_by_key(|record| record.seq);
    stale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::tests::sample;

    #[test]
    fn only_unlisted_attachments_of_the_network_are_stale() {
        let mut preparing = sample("c3");
        preparing.state = State::Preparing;
        let mut other = sample("c4");
        other.network = "other".into();
        let records = [sample("c1"), sample("c2"), preparing, other];
        let ids = |valid: Option<&[AttachmentKey]>| -> Vec<String> {
            stale(&records, "k8s-pod-network", valid)
                .into_iter()
                .map(|r| r.key.container_id)
                .collect()
        };
        assert_eq!(ids(Some(&[AttachmentKey::new("c2", "eth0")])), ["c1"]);
        assert_eq!(ids(Some(&[])), ["c1", "c2"]);
        assert!(ids(None).is_empty());
    }
}
