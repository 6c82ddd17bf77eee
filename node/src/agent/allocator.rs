//! Address management as the CNI server sees it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use futures::FutureExt;
use futures::future::BoxFuture;
use margay_cni::machine::add::Allocation;
use margay_cni::plan::AddressPlan;
use margay_cni::{CniError, Code};
use margay_crds::AllowedUse;
use margay_ipam::{
    ATTR_NAMESPACE, ATTR_POD, ATTR_POD_UID, AssignError, AssignErrorKind, AssignRequest, Ipam,
    LiveAddress, SpecificRequest,
};

use crate::cni_server::{Addresses, TransferTarget};

impl Addresses for Ipam {
    fn allocate(
        &self,
        request: Allocation,
    ) -> BoxFuture<'_, Result<(Vec<IpAddr>, bool), CniError>> {
        allocate(self, request).boxed()
    }

    fn release(
        &self,
        handle: String,
        addresses: Vec<IpAddr>,
    ) -> BoxFuture<'_, Result<(), CniError>> {
        async move {
            let released = self.release_ips(&addresses, Some(&handle)).await;
            released
                .map(|_| ())
                .map_err(|error| CniError::try_again(format!("cannot release addresses: {error}")))
        }
        .boxed()
    }

    fn release_handle(&self, handle: String) -> BoxFuture<'_, Result<(), CniError>> {
        async move {
            let released = self.release_by_handle(&handle).await;
            released
                .map(|_| ())
                .map_err(|error| CniError::try_again(format!("cannot release addresses: {error}")))
        }
        .boxed()
    }

    fn transfer(
        &self,
        address: IpAddr,
        from: String,
        to: TransferTarget,
    ) -> BoxFuture<'_, Result<(), CniError>> {
        async move {
            let mut attrs = BTreeMap::new();
            if let Some(pod) = to.pod {
                attrs.insert(ATTR_POD.to_owned(), pod.name);
                attrs.insert(ATTR_NAMESPACE.to_owned(), pod.namespace);
            }
            let live = LiveAddress {
                ip: address,
                handle: to.handle,
                attrs,
            };
            match Ipam::transfer(self, &from, &live) {
                Ok(_) => Ok(()),
                Err(error) => Err(CniError::try_again(format!(
                    "cannot move {address} to its user: {error}"
                ))),
            }
        }
        .boxed()
    }

    fn holds(&self, handle: &str, address: IpAddr) -> bool {
        self.held_by(handle).contains(&address)
    }
}

async fn allocate(ipam: &Ipam, request: Allocation) -> Result<(Vec<IpAddr>, bool), CniError> {
    let before = ipam.held_by(&request.handle);
    let attrs = attributes(&request);
    match &request.addresses {
        AddressPlan::Automatic { v4, v6 } => {
            let wanted = usize::from(v4.is_some()) + usize::from(v6.is_some());
            if before.len() >= wanted && wanted > 0 {
                return Ok((before, true));
            }
            let mut assign = AssignRequest::workload(
                &request.handle,
                usize::from(v4.is_some()),
                usize::from(v6.is_some()),
            );
            assign.attrs = attrs;
            assign.pools4 = v4.clone().unwrap_or_default();
            assign.pools6 = v6.clone().unwrap_or_default();
            assign.namespace_labels = request
                .facts
                .map(|facts| facts.namespace_labels)
                .unwrap_or_default();
            let assigned = ipam.auto_assign(assign).await.map_err(refused)?;
            Ok((assigned.ips().map(|assigned| assigned.ip).collect(), false))
        }
        AddressPlan::Specific(addresses) => {
            let mut assigned = Vec::with_capacity(addresses.len());
            for ip in addresses {
                let specific = SpecificRequest {
                    ip: *ip,
                    handle: request.handle.clone(),
                    attrs: attrs.clone(),
                    usage: Some(AllowedUse::Workload),
                };
                match ipam.assign_specific(specific).await {
                    Ok(address) => assigned.push(address.ip),
                    Err(error) => {
                        let fresh: Vec<IpAddr> = assigned
                            .into_iter()
                            .filter(|ip| !before.contains(ip))
                            .collect();
                        if let Err(error) = ipam.release_ips(&fresh, Some(&request.handle)).await {
                            tracing::warn!(%error, handle = request.handle, "addresses of a failed ADD not released");
                        }
                        return Err(refused(error));
                    }
                }
            }
            let reused = addresses.iter().all(|ip| before.contains(ip));
            Ok((assigned, reused))
        }
        AddressPlan::WithoutIpam(addresses) | AddressPlan::External(addresses) => {
            Ok((addresses.clone(), false))
        }
    }
}

/// Attributes of the owner, as tools for this data show them.
fn attributes(request: &Allocation) -> BTreeMap<String, String> {
    let mut attrs = BTreeMap::new();
    if let Some(pod) = &request.pod {
        attrs.insert(ATTR_POD.to_owned(), pod.name.clone());
        attrs.insert(ATTR_NAMESPACE.to_owned(), pod.namespace.clone());
        let uid = request.facts.as_ref().map_or(&pod.uid, |facts| &facts.uid);
        if !uid.is_empty() {
            attrs.insert(ATTR_POD_UID.to_owned(), uid.clone());
        }
    }
    attrs
}

fn refused(error: AssignError) -> CniError {
    let exhausted = error.kind == AssignErrorKind::Exhausted;
    let code = if error.is_retriable() && !exhausted {
        Code::TRY_AGAIN
    } else {
        Code::NO_ADDRESS
    };
    CniError::new(code, error.message).with_details(error.details)
}

#[cfg(test)]
mod tests {
    use margay_cni::attachment::PodRef;
    use margay_cni::plan::PodFacts;

    use super::*;

    #[test]
    fn owners_are_named_as_other_tools_expect() {
        let request = Allocation {
            handle: "k8s-pod-network.c1".into(),
            addresses: AddressPlan::Automatic {
                v4: Some(Vec::new()),
                v6: None,
            },
            pod: Some(PodRef {
                namespace: "d".into(),
                name: "p".into(),
                uid: String::new(),
            }),
            facts: Some(Box::new(PodFacts {
                uid: "u".into(),
                ..PodFacts::default()
            })),
        };
        let attrs = attributes(&request);
        assert_eq!(attrs.get("pod").map(String::as_str), Some("p"));
        assert_eq!(attrs.get("namespace").map(String::as_str), Some("d"));
        assert_eq!(attrs.get("margay-pod-uid").map(String::as_str), Some("u"));
    }
}
