//! Every field of every kind under its exact name: one object per kind goes through the types and must come back.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::*;

/// A specification must survive a round trip unchanged, without landing in a catch-all.
fn survives<T: Serialize + DeserializeOwned>(written: Value) -> T {
    let read: T = serde_json::from_value(written.clone()).expect("decodes");
    assert_eq!(serde_json::to_value(&read).expect("encodes"), written);
    read
}

#[test]
fn pools() {
    survives::<IPPoolSpec>(json!({
        "allowedUses": ["Workload", "Tunnel"], "assignmentMode": "Automatic", "blockSize": 26, "cidr": "10.0.0.0/16",
        "disableBGPExport": true, "disabled": false, "ipipMode": "CrossSubnet", "namespaceSelector": "all()",
        "natOutgoing": true, "nodeSelector": "all()", "vxlanMode": "Never",
    }));
    survives::<IPPoolStatus>(json!({"conditions": [{
        "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "m", "observedGeneration": 3, "reason": "OK",
        "status": "True", "type": "Allocatable",
    }]}));
    survives::<IPReservationSpec>(json!({"reservedCIDRs": ["10.0.0.0/30"]}));
    survives::<IPAMConfigurationSpec>(json!({
        "autoAllocateBlocks": true, "ipCooldownSeconds": 30, "kubeVirtVMAddressPersistence": "Disabled",
        "maxBlocksPerHost": 0, "strictAffinity": false,
    }));
}

#[test]
fn address_management() {
    let block = survives::<IPAMBlockSpec>(json!({
        "affinity": "host:node-1", "affinityClaimTime": "2026-01-01T00:00:00Z", "allocations": [0, null],
        "attributes": [{"alternateOwnerAttrs": {"node": "b"}, "handle_id": "h", "releasedAt": "2026-01-01T00:00:00Z",
            "secondary": {"node": "a"}}],
        "cidr": "10.0.0.0/31", "deleted": false, "sequenceNumber": 1700000000000000001i64,
        "sequenceNumberForAllocation": {"0": 1700000000000000000i64}, "strictAffinity": false, "unallocated": [1],
    }));
    assert!(block.extra.is_empty() && block.attributes[0].extra.is_empty());
    let affinity = survives::<BlockAffinitySpec>(
        json!({"cidr": "10.0.0.0/26", "deleted": false, "node": "a", "state": "confirmed", "type": "host"}),
    );
    assert!(affinity.extra.is_empty());
    let handle = survives::<IPAMHandleSpec>(
        json!({"block": {"10.0.0.0/26": 2}, "deleted": false, "handleID": "K8s.Net"}),
    );
    assert!(handle.extra.is_empty());
}

#[test]
fn unknown_fields_of_written_back_objects_survive() {
    let block = survives::<IPAMBlockSpec>(json!({
        "allocations": [0], "attributes": [{"handle_id": "h", "newer": {"a": 1}}], "cidr": "10.0.0.0/32",
        "strictAffinity": false, "unallocated": [], "alsoNewer": [1, "x"],
    }));
    assert_eq!(block.extra["alsoNewer"], json!([1, "x"]));
    survives::<FelixConfigurationSpec>(
        json!({"bpfEnabled": true, "bpfConntrackTimeouts": {"tcpEstablished": "Auto"}}),
    );
}

#[test]
fn lists_written_as_null_are_empty() {
    let block: IPAMBlockSpec =
        serde_json::from_value(json!({"cidr": "10.0.0.0/26", "allocations": null, "attributes": null, "unallocated": null}))
            .expect("decodes");
    assert!(block.allocations.is_empty() && block.attributes.is_empty());
}

#[test]
fn bgp() {
    survives::<BGPPeerSpec>(json!({
        "asNumber": 4294967295u32, "filters": ["f"], "keepOriginalNextHop": true, "keepaliveTime": "30s",
        "localASNumber": 1, "localWorkloadSelector": "all()", "maxRestartTime": "90s", "nextHopMode": "Self",
        "node": "a", "nodeSelector": "all()", "numAllowedLocalASNumbers": 2,
        "password": {"secretKeyRef": {"key": "k", "name": "s", "optional": true}}, "peerIP": "192.0.2.1",
        "peerSelector": "all()", "reachableBy": "192.0.2.2", "reversePeering": "Manual", "sourceAddress": "UseNodeIP",
        "ttlSecurity": 1,
    }));
    survives::<BGPConfigurationSpec>(json!({
        "asNumber": 64512, "bindMode": "NodeIP", "communities": [{"name": "a", "value": "1:2"}],
        "ignoredInterfaces": ["eth1"], "ipv4NormalRoutePriority": 1024, "ipv6NormalRoutePriority": 1024,
        "listenPort": 179, "localWorkloadPeeringIPV4": "10.0.0.1", "localWorkloadPeeringIPV6": "fd00::1",
        "logSeverityScreen": "Info", "nodeMeshMaxRestartTime": "90s",
        "nodeMeshPassword": {"secretKeyRef": {"key": "k", "name": "s"}}, "nodeToNodeMeshEnabled": true,
        "prefixAdvertisements": [{"cidr": "10.0.0.0/8", "communities": ["a"]}], "programClusterRoutes": "Enabled",
        "serviceClusterIPs": [{"cidr": "10.96.0.0/12"}], "serviceExternalIPs": [{"cidr": "10.97.0.0/16"}],
        "serviceLoadBalancerAggregation": "Disabled", "serviceLoadBalancerIPs": [{"cidr": "10.98.0.0/16"}],
    }));
    survives::<BGPFilterSpec>(json!({
        "exportV4": [{"action": "Accept", "asPathPrefix": [65000], "cidr": "10.0.0.0/8", "communities": {"values": ["1:2"]},
            "interface": "eth0", "matchOperator": "NotIn",
            "operations": [{"addCommunity": {"value": "1:2"}}, {"prependASPath": {"prefix": [1]}}, {"setPriority": {"value": 5}}],
            "peerType": "eBGP", "prefixLength": {"max": 24, "min": 16}, "priority": 100, "source": "RemotePeers"}],
        "exportV6": [{"action": "Reject"}], "importV4": [{"action": "Reject", "peerType": "iBGP"}],
        "importV6": [{"action": "Accept", "cidr": "fd00::/8", "matchOperator": "Equal"}],
    }));
}

#[test]
fn policies() {
    let entity = json!({
        "namespaceSelector": "all()", "nets": ["10.0.0.0/8"], "notNets": ["10.1.0.0/16"], "notPorts": ["1:2"],
        "notSelector": "has(b)", "ports": [80, "web"], "selector": "has(a)",
        "serviceAccounts": {"names": ["x"], "selector": "all()"}, "services": {"name": "s", "namespace": "n"},
    });
    let rule = json!({
        "action": "Pass", "destination": entity, "http": {"methods": ["GET"], "paths": [{"exact": "/a"}, {"prefix": "/b"}]},
        "icmp": {"code": 0, "type": 8}, "ipVersion": 4, "metadata": {"annotations": {"a": "b"}}, "notICMP": {"type": 3},
        "notProtocol": 17, "protocol": "TCP", "source": entity,
    });
    let policy = json!({
        "egress": [rule], "ingress": [rule], "order": 1.5, "performanceHints": ["AssumeNeededOnEveryNode"],
        "selector": "all()", "serviceAccountSelector": "all()", "tier": "default", "types": ["Ingress", "Egress"],
    });
    let mut global = policy.clone();
    for (name, value) in [
        ("applyOnForward", json!(true)),
        ("doNotTrack", json!(false)),
        ("namespaceSelector", json!("all()")),
        ("preDNAT", json!(true)),
    ] {
        global[name] = value;
    }
    let staged = |mut policy: Value| {
        policy["stagedAction"] = json!("Set");
        policy
    };
    survives::<NetworkPolicySpec>(policy.clone());
    survives::<GlobalNetworkPolicySpec>(global.clone());
    survives::<StagedNetworkPolicySpec>(staged(policy));
    survives::<StagedGlobalNetworkPolicySpec>(staged(global));
    survives::<StagedKubernetesNetworkPolicySpec>(json!({
        "egress": [{"ports": [{"port": 80, "protocol": "TCP"}]}], "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
        "podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"], "stagedAction": "Ignore",
    }));
    survives::<TierSpec>(json!({"defaultAction": "Pass", "order": 1000.0}));
    survives::<NetworkSetSpec>(json!({"nets": ["10.0.0.0/8"]}));
    survives::<GlobalNetworkSetSpec>(json!({"nets": ["10.0.0.0/8"]}));
    survives::<HostEndpointSpec>(json!({
        "expectedIPs": ["10.0.0.1"], "interfaceName": "*", "node": "a",
        "ports": [{"name": "ssh", "port": 22, "protocol": "TCP"}], "profiles": ["p"],
    }));
}

#[test]
fn cluster_wide_settings() {
    survives::<ClusterInformationSpec>(json!({
        "calicoVersion": "v3.33.0", "clusterGUID": "00112233445566778899aabbccddeeff", "clusterType": "k8s,bgp",
        "datastoreReady": true, "variant": "Calico",
    }));
    survives::<KubeControllersConfigurationSpec>(json!({
        "controllers": {
            "loadBalancer": {"assignIPs": "AllServices"}, "migration": {"policyNameMigrator": "Enabled"},
            "namespace": {"reconcilerPeriod": "5m"}, "policy": {"reconcilerPeriod": "5m"},
            "serviceAccount": {"reconcilerPeriod": "5m"}, "workloadEndpoint": {"reconcilerPeriod": "5m"},
            "node": {
                "hostEndpoint": {"autoCreate": "Enabled", "createDefaultHostEndpoint": "Disabled", "templates": [{
                    "annotations": {"a": "b"}, "generateName": "g", "interfaceCIDRs": ["10.0.0.0/8"],
                    "interfacePattern": "eth.*", "labels": {"a": "b"}, "nodeSelector": "all()"}]},
                "leakGracePeriod": "15m", "reconcilerPeriod": "5m", "syncLabels": "Enabled",
            },
        },
        "debugProfilePort": 0, "etcdV3CompactionPeriod": "10m", "healthChecks": "Enabled", "logSeverityScreen": "Info",
        "prometheusMetricsPort": 9094,
    }));
    survives::<CalicoNodeStatusSpec>(
        json!({"classes": ["Agent", "BGP", "Routes"], "node": "a", "updatePeriodSeconds": 10}),
    );
    survives::<CalicoNodeStatusStatus>(json!({
        "agent": {"birdV4": {"lastBootTime": "t", "lastReconfigurationTime": "t", "routerID": "1.2.3.4", "state": "Ready",
            "version": "margay 0.1"}},
        "bgp": {"numberEstablishedV4": 1, "numberEstablishedV6": 0, "numberNotEstablishedV4": 0,
            "numberNotEstablishedV6": 0, "peersV4": [{"peerIP": "10.0.0.1", "since": "t", "state": "Established", "type": "NodeMesh"}]},
        "lastUpdated": "2026-01-01T00:00:00Z",
        "routes": {"routesV4": [{"destination": "10.0.0.0/26", "gateway": "10.0.0.1", "interface": "eth0",
            "learnedFrom": {"peerIP": "10.0.0.1", "sourceType": "NodeMesh"}, "type": "FIB"}]},
    }));
}

#[test]
fn every_agent_setting_is_read_under_the_name_the_document_declares() {
    let document: Value =
        serde_saphyr::from_str(manifests::by_plural("felixconfigurations").expect("known"))
            .expect("the document is YAML");
    let spec = &document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        ["properties"];
    let declared = spec.as_object().expect("an object");
    let without_effect: Vec<&String> = declared
        .iter()
        .filter(|(_, schema)| schema["description"] == "Accepted for compatibility; has no effect.")
        .map(|(name, _)| name)
        .collect();
    for (name, schema) in declared {
        let value = match schema["type"].as_str() {
            Some("boolean") => json!(true),
            Some("integer") => json!(1),
            Some("array") => json!([]),
            Some("object") if name == "routeTableRange" => json!({"max": 1, "min": 1}),
            Some("object") => json!({}),
            _ => json!("1s"),
        };
        let read: FelixConfigurationSpec = survives(json!({ name.as_str(): value }));
        assert_eq!(
            read.extra.contains_key(name),
            without_effect.contains(&name),
            "{name}"
        );
    }
    let names = "allowIPIPPacketsFromWorkloads allowVXLANPacketsFromWorkloads awsSrcDstCheck bpfEnabled bpfJITHardening \
        chainInsertMode defaultEndpointToHostAction deviceRouteSourceAddressIPv6 endpointStatusPathPrefix \
        externalNodesList failsafeInboundHostPorts failsafeOutboundHostPorts featureDetectOverride floatingIPs \
        healthTimeoutOverrides interfaceExclude interfacePrefix ipForwarding ipipMTU ipsetsRefreshInterval \
        iptablesNATOutgoingInterfaceFilter ipv4ElevatedRoutePriority ipv6NormalRoutePriority ipv6Support istioDSCPMark \
        kubeNodePortRanges liveMigrationRouteConvergenceTime localSubnetL2Reachability \
        localSubnetL2ReachabilityRefreshInterval logActionRateLimitBurst mtuIfacePattern natOutgoingAddress \
        natOutgoingExclusions natPortRange nftablesFlowTableOffload nftablesMarkMask nodeSelector programClusterRoutes \
        prometheusMetricsCAFile removeExternalRoutes reportingTTL requireMTUFile routeSource routeTableRange \
        routeTableRanges serviceLoopPrevention vxlanMTUV6 vxlanVNI windowsManageFirewallRules wireguardEnabledV6 \
        wireguardHostEncryptionEnabled wireguardKeepAlive wireguardMTUV6 wireguardThreadingEnabled \
        workloadSourceSpoofing xdpRefreshInterval";
    for name in names.split_whitespace() {
        assert!(declared.contains_key(name), "{name} is not declared");
    }
}
