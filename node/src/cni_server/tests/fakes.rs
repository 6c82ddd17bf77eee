//! Addresses and pods without an API.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use margay_cni::machine::add::Allocation;
use margay_cni::plan::{AddressPlan, PodFacts};
use margay_cni::{CniError, Code};

use super::super::deps::{Addresses, PodPatch, PodSource, PodUpdate, TransferTarget};

/// Hands out the lowest free address of 10.65.0.0/26, and of fd00:65::/122 if that is on.
#[derive(Default)]
pub(super) struct FakeAddresses {
    held: Mutex<BTreeMap<IpAddr, String>>,
    pub(super) has_v6: Mutex<bool>,
    /// Releases fail with this, as when the API is away.
    pub(super) release_error: Mutex<Option<CniError>>,
    /// Releases wait as long as this is true, as when the API accepts and does not answer.
    hanging: tokio::sync::watch::Sender<bool>,
}

impl FakeAddresses {
    pub(super) fn held(&self) -> MutexGuard<'_, BTreeMap<IpAddr, String>> {
        self.held.lock().expect("lock")
    }

    fn take(&self, handle: &str, v4: bool) -> Option<IpAddr> {
        let mut held = self.held();
        let address = (2u16..64)
            .map(|n| ip(v4, n))
            .find(|ip| !held.contains_key(ip))?;
        held.insert(address, handle.to_owned());
        Some(address)
    }

    pub(super) fn hang(&self, hang: bool) {
        self.hanging.send_replace(hang);
    }

    async fn may_release(&self) -> Result<(), CniError> {
        let mut hanging = self.hanging.subscribe();
        let _ = hanging.wait_for(|hanging| !hanging).await;
        self.release_error
            .lock()
            .expect("lock")
            .clone()
            .map_or(Ok(()), Err)
    }
}

fn ip(v4: bool, n: u16) -> IpAddr {
    if v4 {
        Ipv4Addr::from(0x0a41_0000 + u32::from(n)).into()
    } else {
        Ipv6Addr::new(0xfd00, 0x65, 0, 0, 0, 0, 0, n).into()
    }
}

impl Addresses for FakeAddresses {
    fn allocate(
        &self,
        request: Allocation,
    ) -> BoxFuture<'_, Result<(Vec<IpAddr>, bool), CniError>> {
        async move {
            let before: Vec<IpAddr> = self
                .held()
                .iter()
                .filter(|(_, h)| **h == request.handle)
                .map(|(a, _)| *a)
                .collect();
            if !before.is_empty() {
                return Ok((before, true));
            }
            let none = || CniError::new(Code::NO_ADDRESS, "no addresses are left");
            let (v4, v6) = match &request.addresses {
                AddressPlan::Automatic { v4, v6 } => (v4.is_some(), v6.is_some()),
                AddressPlan::Specific(addresses) => {
                    for address in addresses {
                        self.held().insert(*address, request.handle.clone());
                    }
                    return Ok((addresses.clone(), false));
                }
                other => panic!("not for IPAM: {other:?}"),
            };
            if v6 && !*self.has_v6.lock().expect("lock") {
                return Err(none());
            }
            let mut got = Vec::new();
            for v4 in [true, false]
                .into_iter()
                .zip([v4, v6])
                .filter(|(_, want)| *want)
                .map(|(f, _)| f)
            {
                got.push(self.take(&request.handle, v4).ok_or_else(none)?);
            }
            Ok((got, false))
        }
        .boxed()
    }

    fn release(
        &self,
        handle: String,
        addresses: Vec<IpAddr>,
    ) -> BoxFuture<'_, Result<(), CniError>> {
        async move {
            self.may_release().await?;
            self.held()
                .retain(|address, holder| *holder != handle || !addresses.contains(address));
            Ok(())
        }
        .boxed()
    }

    fn release_handle(&self, handle: String) -> BoxFuture<'_, Result<(), CniError>> {
        async move {
            self.may_release().await?;
            self.held().retain(|_, holder| *holder != handle);
            Ok(())
        }
        .boxed()
    }

    fn transfer(
        &self,
        address: IpAddr,
        _from: String,
        to: TransferTarget,
    ) -> BoxFuture<'_, Result<(), CniError>> {
        async move {
            self.held().insert(address, to.handle);
            Ok(())
        }
        .boxed()
    }

    fn holds(&self, handle: &str, address: IpAddr) -> bool {
        self.held()
            .get(&address)
            .is_some_and(|holder| holder == handle)
    }
}

/// Pods by `namespace/name`.
#[derive(Default)]
pub(super) struct FakePods {
    pub(super) pods: Mutex<BTreeMap<String, PodFacts>>,
    pub(super) patches: Mutex<Vec<PodPatch>>,
    /// How long finding takes.
    pub(super) delay: Mutex<Duration>,
}

impl PodSource for FakePods {
    fn find(&self, namespace: String, name: String) -> BoxFuture<'_, Result<PodFacts, CniError>> {
        async move {
            let delay = *self.delay.lock().expect("lock");
            tokio::time::sleep(delay).await;
            let found = self
                .pods
                .lock()
                .expect("lock")
                .get(&format!("{namespace}/{name}"))
                .cloned();
            found.ok_or_else(|| CniError::try_again("the pod is not known yet"))
        }
        .boxed()
    }

    fn patch(&self, patch: PodPatch) -> BoxFuture<'_, Result<PodUpdate, CniError>> {
        async move {
            self.patches.lock().expect("lock").push(patch);
            Ok(PodUpdate::Done)
        }
        .boxed()
    }
}
