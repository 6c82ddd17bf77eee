//! Assigning addresses the allocator chooses.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Ipam;
use super::core::Core;
use super::serve::Waiter;
use super::state::{Local, State};
use crate::block::{Claim, go_time};
use crate::cidr::Family;
use crate::pool::{Pool, PoolRequest};
use crate::request::{
    ATTR_NODE, ATTR_TIMESTAMP, AssignError, AssignErrorKind, AssignRequest, Assigned, FamilyResult,
};
use crate::rules::Handles;

impl Ipam {
    /// Assigns the addresses asked for, or none. A handle that holds addresses already gets the same ones.
    ///
    /// From the reserve this takes no request to the API server; otherwise it waits for one or more, so callers set a
    /// deadline of their own and release by handle when it passes.
    ///
    /// # Errors
    /// Why there are not enough addresses; those that could be assigned are released again.
    pub async fn auto_assign(&self, request: AssignRequest) -> Result<Assigned, AssignError> {
        let handle = request.handle.clone();
        let before = self.core.lock().held_by(&handle);
        let assigned = self.auto_assign_partial(request).await;
        let strict = self.core.lock().rules.strict_affinity;
        let Some(error) = shortage(&assigned, strict) else {
            return Ok(assigned);
        };
        let new = assigned
            .ips()
            .map(|a| a.ip)
            .filter(|ip| !before.contains(ip))
            .collect::<Vec<_>>();
        if !new.is_empty()
            && let Err(error) = self.release_ips(&new, Some(&handle)).await
        {
            tracing::warn!(%error, handle, "addresses of a failed assignment not released");
        }
        Err(error)
    }

    /// Assigns as many of the addresses asked for as there are; the result says how many and why not more. When IPv4
    /// fails, IPv6 is not attempted.
    pub async fn auto_assign_partial(&self, request: AssignRequest) -> Assigned {
        let mut assigned = Assigned::default();
        for family in Family::ALL {
            if request.num(family) == 0 {
                continue;
            }
            let result = match self.core.assign_family(&request, family).await {
                Ok(result) => result,
                Err(error) => FamilyResult {
                    requested: request.num(family),
                    error: Some(error),
                    ..FamilyResult::default()
                },
            };
            let failed = result.error.is_some();
            *assigned.family_mut(family) = result;
            if failed {
                break;
            }
        }
        assigned
    }
}

/// The error for a result with fewer addresses than asked for.
fn shortage(assigned: &Assigned, strict: bool) -> Option<AssignError> {
    Family::ALL.into_iter().find_map(|family| {
        let result = assigned.family(family);
        if !result.is_short() {
            return None;
        }
        let details = format!(
            "pools: {}; strictAffinity: {strict}",
            result.pools.join(" ")
        );
        if let Some(error) = &result.error {
            let mut error = error.clone();
            error.details = match result.msgs.is_empty() {
                true => details,
                false => format!("{}; {details}", result.msgs.join("; ")),
            };
            return Some(error);
        }
        let mut message = format!(
            "Assigned {} out of {} requested IPv{} addresses",
            result.ips.len(),
            result.requested,
            family.digit()
        );
        for text in &result.msgs {
            message.push_str("; ");
            message.push_str(text);
        }
        Some(AssignError {
            kind: AssignErrorKind::Exhausted,
            message,
            details,
        })
    })
}

/// The attributes an assignment is stored with.
pub(super) fn claim_of(
    handle: &str,
    attrs: &BTreeMap<String, String>,
    node: &str,
    now: jiff::Timestamp,
) -> Claim {
    let mut attrs = attrs.clone();
    attrs
        .entry(ATTR_NODE.to_owned())
        .or_insert_with(|| node.to_owned());
    attrs
        .entry(ATTR_TIMESTAMP.to_owned())
        .or_insert_with(|| go_time(now));
    Claim {
        handle: Some(handle.to_owned()),
        attrs,
    }
}

/// What the reserve gave, and what is still to be waited for.
enum Start {
    Done(FamilyResult),
    Wait(FamilyResult, oneshot::Receiver<FamilyResult>),
}

impl Core {
    async fn assign_family(
        &self,
        request: &AssignRequest,
        family: Family,
    ) -> Result<FamilyResult, AssignError> {
        match self.begin(request, family)? {
            Start::Done(result) => Ok(result),
            Start::Wait(mut result, reply) => {
                self.wake.notify_one();
                let more = reply.await.map_err(|_| {
                    AssignError::new(AssignErrorKind::NotSynced, "address management has stopped")
                })?;
                result.ips = more.ips;
                result.msgs = more.msgs;
                result.error = more.error;
                Ok(result)
            }
        }
    }

    /// Serves from memory what can be served.
    fn begin(&self, request: &AssignRequest, family: Family) -> Result<Start, AssignError> {
        let (now, at) = (self.clock.now(), Instant::now());
        let mut state = self.lock();
        self.gate(&state)?;
        let count = request.num(family);
        let mut result = FamilyResult {
            requested: count,
            ..FamilyResult::default()
        };
        let of_family = |ip: &IpAddr| Family::of(*ip) == family;
        let held = state.held_by(&request.handle);
        let held = held.into_iter().filter(of_family).take(count);
        result.ips.extend(held.map(|ip| state.describe(ip)));
        if result.ips.len() == count {
            return Ok(Start::Done(result));
        }
        let pools = choose(&state, request, family)?;
        result.pools = pools.iter().map(|pool| pool.cidr.to_string()).collect();
        let claim = claim_of(&request.handle, &request.attrs, &state.node, now);
        let with_handle = state.settings.handles == Handles::Always || !request.usage.is_workload();
        state.settle(now);
        while result.ips.len() < count && !with_handle {
            let Some(ip) = state.pop_warm(&pools) else {
                break;
            };
            let local = Local::Handed {
                claim: claim.clone(),
                since: now,
                from: None,
            };
            if let Err(error) = state.record(ip, local, at) {
                // Without the journal an address must not leave the reserve; a write to its block will do instead.
                tracing::error!(%error, "journal not written");
                state.unpop_warm(ip);
                break;
            }
            let described = state.describe(ip);
            result.ips.push(described);
        }
        if result.ips.len() == count {
            if state.wants_refill(family) {
                self.wake.notify_one();
            }
            return Ok(Start::Done(result));
        }
        let (reply, answer) = oneshot::channel();
        let limit = state.rules.block_limit(request.max_blocks);
        state.waiters.push(Waiter {
            family,
            pools,
            count,
            claim,
            with_handle,
            limit,
            reply,
        });
        Ok(Start::Wait(result, answer))
    }
}

/// The pools a request may use.
fn choose(
    state: &State,
    request: &AssignRequest,
    family: Family,
) -> Result<Vec<Pool>, AssignError> {
    let chosen = state.pools.choose(&PoolRequest {
        family,
        named: request.pools(family),
        usage: &request.usage,
        node: &state.node,
        node_labels: &state.node_labels,
        namespace_labels: &request.namespace_labels,
    })?;
    Ok(chosen.into_iter().cloned().collect())
}
