//! Leader election on a Lease, as client-go does it: whoever finds the lease unheld, or unchanged for its whole duration
//! by its own clock, takes it. Clocks of different machines are never compared.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::Instant;

use crate::ControllerConfig;

/// Name of the Lease.
const NAME: &str = "margay-controller";

/// One replica's part in the election.
#[derive(Clone)]
pub struct Election {
    leases: Api<Lease>,
    namespace: String,
    identity: String,
    duration: Duration,
    renew_deadline: Duration,
    retry: Duration,
    /// The lease as last seen, and when it was first seen so.
    observed: Option<(LeaseSpec, Instant)>,
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl Election {
    /// Takes part with the identity and the times of the configuration.
    pub fn new(client: Client, config: &ControllerConfig) -> Self {
        Election {
            leases: Api::namespaced(client, &config.namespace),
            namespace: config.namespace.clone(),
            identity: config.identity.clone(),
            duration: config.lease_duration,
            renew_deadline: config.renew_deadline,
            retry: config.retry_period,
            observed: None,
        }
    }

    /// Returns once this replica holds the lease.
    pub async fn acquire(&mut self) {
        loop {
            match tokio::time::timeout(self.renew_deadline, self.attempt()).await {
                Ok(Ok(true)) => return,
                Ok(Ok(false)) => {}
                Ok(Err(error)) => tracing::debug!(%error, "lease not acquired"),
                Err(_) => tracing::debug!("lease not acquired in time"),
            }
            tokio::time::sleep(self.retry).await;
        }
    }

    /// Renews the lease and returns when that has not been possible for too long, or somebody else has it.
    pub async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.retry).await;
            let left = self.renew_deadline.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, self.attempt()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(%error, "lease not renewed"),
                Err(_) => return,
            }
        }
    }

    /// Gives the lease back so that another replica need not wait.
    pub async fn release(&mut self) {
        let release = async {
            let mut lease = self.leases.get(NAME).await?;
            let held = lease
                .spec
                .as_ref()
                .and_then(|spec| spec.holder_identity.as_deref());
            if held != Some(self.identity.as_str()) {
                return Ok(());
            }
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.renew_time = Some(MicroTime(Timestamp::now()));
            self.leases
                .replace(NAME, &PostParams::default(), &lease)
                .await
                .map(|_| ())
        };
        let released: Result<Result<(), kube::Error>, _> =
            tokio::time::timeout(Duration::from_secs(2), release).await;
        if let Ok(Err(error)) = released {
            tracing::debug!(%error, "lease not given back; it expires by itself");
        }
    }

    /// One attempt to get or renew. True when this replica holds the lease.
    async fn attempt(&mut self) -> Result<bool, kube::Error> {
        let Some(mut lease) = self.leases.get_opt(NAME).await? else {
            let lease = Lease {
                metadata: ObjectMeta {
                    name: Some(NAME.into()),
                    namespace: Some(self.namespace.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(self.claimed(None)),
            };
            return won(self.leases.create(&PostParams::default(), &lease).await);
        };
        let current = lease.spec.clone().unwrap_or_default();
        if self
            .observed
            .as_ref()
            .is_none_or(|(seen, _)| *seen != current)
        {
            self.observed = Some((current.clone(), Instant::now()));
        }
        let unchanged = self
            .observed
            .as_ref()
            .map_or(Duration::ZERO, |(_, at)| at.elapsed());
        if !may_take(&current, &self.identity, unchanged) {
            return Ok(false);
        }
        let claimed = self.claimed(Some(&current));
        lease.spec = Some(claimed.clone());
        let won = won(self
            .leases
            .replace(NAME, &PostParams::default(), &lease)
            .await)?;
        if won {
            self.observed = Some((claimed, Instant::now()));
        }
        Ok(won)
    }

    /// The lease as this replica writes it.
    fn claimed(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let same = before.filter(|b| b.holder_identity.as_deref() == Some(&self.identity));
        let transitions = before.and_then(|b| b.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(
                i32::try_from(self.duration.as_secs()).unwrap_or(i32::MAX),
            ),
            acquire_time: same
                .and_then(|b| b.acquire_time.clone())
                .or_else(|| Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(match (before, same) {
                (None, _) => 0,
                (_, Some(_)) => transitions,
                _ => transitions.saturating_add(1),
            }),
            ..before.cloned().unwrap_or_default()
        }
    }
}

/// A write that lost against another is a lost election, not an error.
fn won<T>(written: Result<T, kube::Error>) -> Result<bool, kube::Error> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_conflict() || status.is_already_exists() => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// True when the lease is free, ours, or has not changed for as long as its holder promised to renew it.
fn may_take(lease: &LeaseSpec, identity: &str, unchanged: Duration) -> bool {
    let promised = lease
        .lease_duration_seconds
        .and_then(|s| u64::try_from(s).ok())
        .unwrap_or(0);
    match lease.holder_identity.as_deref() {
        None | Some("") => true,
        Some(holder) => holder == identity || unchanged >= Duration::from_secs(promised),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_taken_when_free_own_or_silent_for_its_duration() {
        let lease = |holder: Option<&str>| LeaseSpec {
            holder_identity: holder.map(str::to_owned),
            lease_duration_seconds: Some(15),
            ..LeaseSpec::default()
        };
        assert!(may_take(&lease(None), "a", Duration::ZERO));
        assert!(may_take(&lease(Some("")), "a", Duration::ZERO));
        assert!(may_take(&lease(Some("a")), "a", Duration::ZERO));
        assert!(!may_take(&lease(Some("b")), "a", Duration::from_secs(14)));
        assert!(may_take(&lease(Some("b")), "a", Duration::from_secs(15)));
    }
}
