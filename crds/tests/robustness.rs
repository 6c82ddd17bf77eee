//! Whatever an object holds, judging it and bringing it into canonical form never panics.

use margay_crds::{PeerAddress, PortMatch, model, parse_duration, validate};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const KINDS: &[&str] = &[
    "BGPConfiguration",
    "BGPFilter",
    "BGPPeer",
    "BlockAffinity",
    "FelixConfiguration",
    "GlobalNetworkPolicy",
    "HostEndpoint",
    "IPAMBlock",
    "IPAMHandle",
    "IPPool",
    "IPReservation",
    "KubeControllersConfiguration",
    "NetworkPolicy",
    "NetworkSet",
    "StagedNetworkPolicy",
    "Tier",
];

/// Field names, so that random objects reach the code behind them.
const FIELDS: &[&str] = &[
    "action",
    "allocations",
    "asNumber",
    "attributes",
    "blockSize",
    "cidr",
    "communities",
    "controllers",
    "destination",
    "egress",
    "exportV4",
    "filters",
    "icmp",
    "ingress",
    "matchOperator",
    "namespaceSelector",
    "nets",
    "node",
    "nodeSelector",
    "notNets",
    "operations",
    "password",
    "peerIP",
    "ports",
    "prefixAdvertisements",
    "prependASPath",
    "prefix",
    "protocol",
    "reachableBy",
    "routeTableRanges",
    "max",
    "min",
    "secretKeyRef",
    "selector",
    "services",
    "serviceAccounts",
    "source",
    "tier",
    "types",
    "unallocated",
    "templates",
    "hostEndpoint",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,12}",
        prop::sample::select(vec![
            "10.0.0.0/8",
            "0.0.0.0/0",
            "::/0",
            "fd00::/8",
            "169.254.0.0/16",
            "all()",
            "global()",
            "has(a",
            "1:2",
            "TCP",
            "Allow",
            "Deny",
            "1m",
            "fe80::1%eth0",
            "[",
            "",
            "é/é",
            "host:a",
            "1.10",
        ])
        .prop_map(str::to_owned),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3i64..300).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 60, 6, |inner| {
        let field = prop::sample::select(FIELDS.to_vec());
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((field, inner), 0..6).prop_map(|fields| {
                Value::Object(
                    fields
                        .into_iter()
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect::<Map<_, _>>(),
                )
            }),
        ]
    })
}

proptest! {
    #[test]
    fn judging_never_panics(kind in prop::sample::select(KINDS.to_vec()), spec in value(), name in text(),
        annotation in text()) {
        let mut object = json!({
            "apiVersion": "projectcalico.org/v3", "kind": kind,
            "metadata": {"name": name, "annotations": {"margay.io/hold-time": annotation}}, "spec": spec,
        });
        let before = validate::document(&object);
        model::canonicalise(&mut object);
        if before.is_ok() {
            prop_assert!(validate::document(&object).is_ok());
        }
    }

    #[test]
    fn small_values_never_panic_and_print_as_they_read(text in text()) {
        if let Ok(address) = text.parse::<PeerAddress>() {
            prop_assert_eq!(address.to_string().parse::<PeerAddress>(), Ok(address));
        }
        if let Ok(port) = PortMatch::parse(&text.as_str().into()) {
            prop_assert_eq!(PortMatch::parse(&port.to_string().as_str().into()), Ok(port));
        }
        let _ = parse_duration(&text);
    }
}
