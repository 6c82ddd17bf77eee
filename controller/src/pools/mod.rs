//! IPPools: which are used, what their status says, and how they go away.

mod plan;

use ipnet::IpNet;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::PostParams;
use kube::{Api, Resource, ResourceExt};
use margay_crds::{IPPool, IPPoolStatus};
use margay_ipam::block::Owner;
use margay_ipam::cidr::overlaps;
use margay_ipam::write::{Change, Giving, WriteError, release_affinity, update_block};

use crate::reconcile::Work;
pub(crate) use plan::{PoolStep, plan};

/// Reason of Events about pools that are not used because of what is written in them.
const INVALID: &str = "PoolInvalid";

/// Why a pool could not be brought in line.
#[derive(Debug, thiserror::Error)]
enum StepError {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Work {
    /// Brings status and finalizers of all pools in line and drains those that are being deleted. Returns what failed.
    pub(crate) async fn reconcile_pools(&mut self) -> Vec<String> {
        let pools: Vec<IPPool> = self.cluster.pools.objects().values().cloned().collect();
        let blocks: Vec<IpNet> = self.cluster.block_cidrs().into_keys().collect();
        let mut failures = Vec::new();
        for step in plan(&pools, &blocks, Timestamp::now()) {
            let Some(pool) = pools.iter().find(|pool| pool.name_any() == step.pool) else {
                continue;
            };
            if let Err(error) = self.take_pool_step(pool, &step).await {
                failures.push(format!("IPPool {}: {error}", step.pool));
            }
        }
        failures
    }

    async fn take_pool_step(&mut self, pool: &IPPool, step: &PoolStep) -> Result<(), StepError> {
        let api: Api<IPPool> = Api::all(self.client.clone());
        let mut pool = pool.clone();
        if let Some(condition) = &step.condition {
            let conditions = pool
                .status
                .get_or_insert_with(IPPoolStatus::default)
                .conditions
                .get_or_insert_default();
            conditions.retain(|known| known.kind != condition.kind);
            conditions.push(condition.clone());
            pool = api
                .replace_status(&step.pool, &PostParams::default(), &pool)
                .await?;
            tracing::info!(
                pool = step.pool,
                allocatable = condition.status,
                reason = condition.reason,
                "pool judged"
            );
            if let Some(notice) = &step.notice {
                self.events.warn(reference(&pool), INVALID, notice).await;
            }
        }
        if step.drain
            && let Ok(range) = pool.spec.cidr.parse::<IpNet>()
        {
            self.drain(&range).await?;
        }
        if let Some(finalizers) = &step.finalizers {
            pool.metadata.finalizers = Some(finalizers.clone());
            api.replace(&step.pool, &PostParams::default(), &pool)
                .await?;
        }
        Ok(())
    }

    /// Takes the blocks of a range from their owners. Empty ones go at once, others with their last address.
    async fn drain(&mut self, range: &IpNet) -> Result<(), WriteError> {
        let (cooldown, now) = (self.cluster.cooldown(), Timestamp::now());
        let giving = Giving {
            must_be_empty: false,
            sequence: None,
            cooldown,
            now,
        };
        let affinities: Vec<(Owner, IpNet)> = self
            .cluster
            .affinities
            .objects()
            .values()
            .filter(|affinity| overlaps(range, &affinity.cidr))
            .map(|affinity| (affinity.owner.clone(), affinity.cidr))
            .collect();
        for (owner, cidr) in affinities {
            match release_affinity(&*self.store, &owner, &cidr, giving, |_| {}).await {
                Ok(()) => {
                    tracing::info!(block = %cidr, %owner, "block released: its pool is deleted")
                }
                Err(WriteError::Foreign { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let owned = self.cluster.block_cidrs().into_iter();
        let owned = owned.filter(|(cidr, block)| overlaps(range, cidr) && block.owner.is_some());
        let owned: Vec<IpNet> = owned.map(|(cidr, _)| cidr).collect();
        for cidr in owned {
            update_block(&*self.store, &cidr, None, |block| {
                block.normalise(cooldown, now);
                block.set_owner(None, now);
                Ok(if block.is_empty() {
                    Change::Delete(())
                } else {
                    Change::Write(())
                })
            })
            .await?;
        }
        Ok(())
    }
}

fn reference(pool: &IPPool) -> ObjectReference {
    pool.object_ref(&())
}
