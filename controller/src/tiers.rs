//! Tiers: the built-in ones exist, and one that is being deleted waits for its policies.

use jiff::Timestamp;
use kube::api::{ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use margay_crds::{
    BUILT_IN_TIERS, Condition, GlobalNetworkPolicy, NetworkPolicy, StagedGlobalNetworkPolicy,
    StagedNetworkPolicy, TIER_FINALIZER, Tier, TierSpec, TierStatus,
};
use margay_ipam::block::stored_time;
use serde::de::DeserializeOwned;

use crate::reconcile::Work;

impl Work {
    /// Brings tiers in line. Returns what failed and whether a tier waits for its policies.
    pub(crate) async fn reconcile_tiers(&mut self) -> (Vec<String>, bool) {
        let api: Api<Tier> = Api::all(self.client.clone());
        let mut failures = Vec::new();
        for built_in in BUILT_IN_TIERS {
            if self.cluster.tiers.get(built_in.name).is_some() {
                continue;
            }
            let spec = TierSpec {
                order: Some(built_in.order),
                default_action: Some(built_in.default_action),
            };
            match api
                .create(&PostParams::default(), &Tier::new(built_in.name, spec))
                .await
            {
                Ok(_) => tracing::info!(tier = built_in.name, "tier created"),
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                Err(error) => failures.push(format!("Tier {}: {error}", built_in.name)),
            }
        }
        let tiers: Vec<Tier> = self.cluster.tiers.objects().values().cloned().collect();
        let mut waiting = false;
        for tier in tiers {
            let name = tier.name_any();
            match self.guard(&api, tier).await {
                Ok(left) => waiting |= left,
                Err(error) => failures.push(format!("Tier {name}: {error}")),
            }
        }
        (failures, waiting)
    }

    /// Keeps the finalizer on a tier until it is deleted and empty. Returns true while it waits.
    async fn guard(&self, api: &Api<Tier>, mut tier: Tier) -> Result<bool, kube::Error> {
        let name = tier.name_any();
        let guarded = tier
            .finalizers()
            .iter()
            .any(|finalizer| finalizer == TIER_FINALIZER);
        if tier.metadata.deletion_timestamp.is_none() {
            if !guarded {
                tier.finalizers_mut().push(TIER_FINALIZER.to_owned());
                api.replace(&name, &PostParams::default(), &tier).await?;
            }
            return Ok(false);
        }
        if !guarded {
            return Ok(false);
        }
        let counts = policies(&self.client, &name).await?;
        if counts.iter().all(|(_, count)| *count == 0) {
            tier.finalizers_mut()
                .retain(|finalizer| finalizer != TIER_FINALIZER);
            api.replace(&name, &PostParams::default(), &tier).await?;
            return Ok(false);
        }
        let message = waiting_for(&counts);
        let conditions = tier
            .status
            .get_or_insert_with(TierStatus::default)
            .conditions
            .get_or_insert_default();
        let known = conditions
            .iter()
            .any(|c| c.kind == "Ready" && c.message == message);
        if !known {
            conditions.retain(|condition| condition.kind != "Ready");
            conditions.push(Condition {
                kind: "Ready".into(),
                status: "False".into(),
                reason: "Terminating".into(),
                message,
                last_transition_time: stored_time(Timestamp::now()),
                observed_generation: tier.metadata.generation,
            });
            api.replace_status(&name, &PostParams::default(), &tier)
                .await?;
        }
        Ok(true)
    }
}

/// How many policies of each kind a tier has.
async fn policies(client: &Client, tier: &str) -> Result<Vec<(&'static str, usize)>, kube::Error> {
    Ok(vec![
        (
            "NetworkPolicies",
            namespaced::<NetworkPolicy>(client, tier, |p| p.spec.tier.as_deref()).await?,
        ),
        (
            "GlobalNetworkPolicies",
            count(Api::<GlobalNetworkPolicy>::all(client.clone()), tier, |p| {
                p.spec.tier.as_deref()
            })
            .await?,
        ),
        (
            "StagedNetworkPolicies",
            namespaced::<StagedNetworkPolicy>(client, tier, |p| p.spec.policy.tier.as_deref())
                .await?,
        ),
        (
            "StagedGlobalNetworkPolicies",
            count(
                Api::<StagedGlobalNetworkPolicy>::all(client.clone()),
                tier,
                |p| p.spec.policy.tier.as_deref(),
            )
            .await?,
        ),
    ])
}

async fn namespaced<K>(
    client: &Client,
    tier: &str,
    tier_of: fn(&K) -> Option<&str>,
) -> Result<usize, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + std::fmt::Debug
        + DeserializeOwned,
{
    count(Api::<K>::all(client.clone()), tier, tier_of).await
}

async fn count<K: Clone + std::fmt::Debug + DeserializeOwned>(
    api: Api<K>,
    tier: &str,
    tier_of: fn(&K) -> Option<&str>,
) -> Result<usize, kube::Error> {
    let all = api.list(&ListParams::default()).await?;
    Ok(all
        .items
        .iter()
        .filter(|policy| tier_of(policy) == Some(tier))
        .count())
}

fn waiting_for(counts: &[(&'static str, usize)]) -> String {
    let left = counts.iter().filter(|(_, count)| *count > 0);
    let left: Vec<String> = left
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    format!("Waiting for policies to be removed: {}", left.join(", "))
}

#[cfg(test)]
mod tests {
    use super::waiting_for;

    #[test]
    fn the_message_counts_what_is_left_by_kind() {
        assert_eq!(
            waiting_for(&[
                ("NetworkPolicies", 0),
                ("GlobalNetworkPolicies", 2),
                ("StagedNetworkPolicies", 1)
            ]),
            "Waiting for policies to be removed: 2 GlobalNetworkPolicies, 1 StagedNetworkPolicies"
        );
    }
}
