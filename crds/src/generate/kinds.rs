//! The kinds documents are made for.

use kube::CustomResourceExt;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::{GenerateError, document, overlay};
use crate::*;

/// Pieces several overlays include.
const SHARED: &[(&str, &str)] = &[
    (
        "bgpfilterrule",
        include_str!("../../overlays/shared/bgpfilterrule.yaml"),
    ),
    (
        "controllers",
        include_str!("../../overlays/shared/controllers.yaml"),
    ),
    (
        "entityrule",
        include_str!("../../overlays/shared/entityrule.yaml"),
    ),
    (
        "nativeport",
        include_str!("../../overlays/shared/nativeport.yaml"),
    ),
    (
        "globalpolicy",
        include_str!("../../overlays/shared/globalpolicy.yaml"),
    ),
    (
        "labelselector",
        include_str!("../../overlays/shared/labelselector.yaml"),
    ),
    (
        "nativepeer",
        include_str!("../../overlays/shared/nativepeer.yaml"),
    ),
    (
        "noglobal",
        include_str!("../../overlays/shared/noglobal.yaml"),
    ),
    ("policy", include_str!("../../overlays/shared/policy.yaml")),
    ("rule", include_str!("../../overlays/shared/rule.yaml")),
    ("secret", include_str!("../../overlays/shared/secret.yaml")),
];

/// One kind.
pub(super) struct Kind {
    /// Its plural, which names the overlay.
    pub(super) plural: &'static str,
    overlay: &'static str,
    crd: fn() -> Option<Value>,
    spec: fn() -> Value,
    status: Option<fn() -> Value>,
}

impl Kind {
    /// The document of the kind.
    pub(super) fn document(&self) -> Result<Value, GenerateError> {
        let overlay = overlay::read(self.plural, self.overlay, SHARED)?;
        let crd = (self.crd)().ok_or_else(|| GenerateError::Print {
            file: self.plural.to_owned(),
            reason: "the derived document cannot be represented as JSON".to_owned(),
        })?;
        Ok(document(
            &crd,
            (self.spec)(),
            self.status.map(|status| status()),
            &overlay,
        ))
    }
}

fn crd<K: CustomResourceExt>() -> Option<Value> {
    serde_json::to_value(K::crd()).ok()
}

fn derived<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::default().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

macro_rules! kind {
    ($plural:literal, $kind:ty, $spec:ty) => {
        Kind {
            plural: $plural,
            overlay: include_str!(concat!("../../overlays/", $plural, ".yaml")),
            crd: crd::<$kind>,
            spec: derived::<$spec>,
            status: None,
        }
    };
    ($plural:literal, $kind:ty, $spec:ty, $status:ty) => {
        Kind {
            status: Some(derived::<$status>),
            ..kind!($plural, $kind, $spec)
        }
    };
}

pub(super) const KINDS: &[Kind] = &[
    kind!("bgpconfigurations", BGPConfiguration, BGPConfigurationSpec),
    kind!("bgpfilters", BGPFilter, BGPFilterSpec),
    kind!("bgppeers", BGPPeer, BGPPeerSpec),
    kind!("blockaffinities", BlockAffinity, BlockAffinitySpec),
    kind!(
        "clusterinformations",
        ClusterInformation,
        ClusterInformationSpec
    ),
    kind!(
        "felixconfigurations",
        FelixConfiguration,
        FelixConfigurationSpec
    ),
    kind!("ipamblocks", IPAMBlock, IPAMBlockSpec),
    kind!(
        "ipamconfigurations",
        IPAMConfiguration,
        IPAMConfigurationSpec
    ),
    kind!("ipamhandles", IPAMHandle, IPAMHandleSpec),
    kind!("ippools", IPPool, IPPoolSpec, IPPoolStatus),
    kind!("ipreservations", IPReservation, IPReservationSpec),
    kind!(
        "caliconodestatuses",
        CalicoNodeStatus,
        CalicoNodeStatusSpec,
        CalicoNodeStatusStatus
    ),
    kind!(
        "globalnetworkpolicies",
        GlobalNetworkPolicy,
        GlobalNetworkPolicySpec
    ),
    kind!("globalnetworksets", GlobalNetworkSet, GlobalNetworkSetSpec),
    kind!("hostendpoints", HostEndpoint, HostEndpointSpec),
    kind!(
        "kubecontrollersconfigurations",
        KubeControllersConfiguration,
        KubeControllersConfigurationSpec,
        KubeControllersConfigurationStatus
    ),
    kind!("networkpolicies", NetworkPolicy, NetworkPolicySpec),
    kind!("networksets", NetworkSet, NetworkSetSpec),
    kind!(
        "stagedglobalnetworkpolicies",
        StagedGlobalNetworkPolicy,
        StagedGlobalNetworkPolicySpec
    ),
    kind!(
        "stagedkubernetesnetworkpolicies",
        StagedKubernetesNetworkPolicy,
        StagedKubernetesNetworkPolicySpec
    ),
    kind!(
        "stagednetworkpolicies",
        StagedNetworkPolicy,
        StagedNetworkPolicySpec
    ),
    kind!("tiers", Tier, TierSpec, TierStatus),
    kind!("nodereports", NodeReport, NodeReportSpec, NodeReportStatus),
];
