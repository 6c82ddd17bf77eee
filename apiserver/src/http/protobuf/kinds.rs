//! Messages by kind: fields by number.

/// How a field is encoded and shown.
#[derive(Clone, Copy)]
pub(super) enum Type {
    Text,
    /// Left out when zero.
    Int,
    /// A pointer in Go: zero is a value.
    IntPointer,
    Bool,
    BoolPointer,
    Time,
    MicroTime,
    IntOrText,
    Message(&'static [Field]),
    TextMap,
    BytesMap,
}

/// One field of a message.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) number: u64,
    pub(super) name: &'static str,
    pub(super) kind: Type,
    pub(super) repeated: bool,
}

/// A field that appears once.
pub(super) const fn one(number: u64, name: &'static str, kind: Type) -> Field {
    Field {
        number,
        name,
        kind,
        repeated: false,
    }
}

const fn many(number: u64, name: &'static str, kind: Type) -> Field {
    Field {
        number,
        name,
        kind,
        repeated: true,
    }
}

use Type::{
    Bool, BoolPointer, BytesMap, Int, IntOrText, IntPointer, Message, MicroTime, Text, TextMap,
    Time,
};

const OWNER: &[Field] = &[
    one(1, "kind", Text),
    one(3, "name", Text),
    one(4, "uid", Text),
    one(5, "apiVersion", Text),
    one(6, "controller", BoolPointer),
    one(7, "blockOwnerDeletion", BoolPointer),
];
const META: Type = Message(&[
    one(1, "name", Text),
    one(2, "generateName", Text),
    one(3, "namespace", Text),
    one(4, "selfLink", Text),
    one(5, "uid", Text),
    one(6, "resourceVersion", Text),
    one(7, "generation", Int),
    one(8, "creationTimestamp", Time),
    one(9, "deletionTimestamp", Time),
    one(10, "deletionGracePeriodSeconds", IntPointer),
    one(11, "labels", TextMap),
    one(12, "annotations", TextMap),
    many(13, "ownerReferences", Message(OWNER)),
    many(14, "finalizers", Text),
]);
const REFERENCE: Type = Message(&[
    one(1, "kind", Text),
    one(2, "namespace", Text),
    one(3, "name", Text),
    one(4, "uid", Text),
    one(5, "apiVersion", Text),
    one(6, "resourceVersion", Text),
    one(7, "fieldPath", Text),
]);
const NAMED: Type = Message(&[one(1, "name", Text)]);
const LABEL_SELECTOR: Type = Message(&[
    one(1, "matchLabels", TextMap),
    many(
        2,
        "matchExpressions",
        Message(&[
            one(1, "key", Text),
            one(2, "operator", Text),
            many(3, "values", Text),
        ]),
    ),
]);
const CONFIG_MAP: &[Field] = &[
    one(1, "metadata", META),
    one(2, "data", TextMap),
    one(3, "binaryData", BytesMap),
    one(4, "immutable", BoolPointer),
];
const SECRET: &[Field] = &[
    one(1, "metadata", META),
    one(2, "data", BytesMap),
    one(3, "type", Text),
    one(4, "stringData", TextMap),
    one(5, "immutable", BoolPointer),
];
const NAMESPACE: &[Field] = &[
    one(1, "metadata", META),
    one(2, "spec", Message(&[many(1, "finalizers", Text)])),
    one(3, "status", Message(&[one(1, "phase", Text)])),
];
const SERVICE_ACCOUNT: &[Field] = &[
    one(1, "metadata", META),
    many(2, "secrets", REFERENCE),
    many(3, "imagePullSecrets", NAMED),
    one(4, "automountServiceAccountToken", BoolPointer),
];
const SERVICE_PORT: Type = Message(&[
    one(1, "name", Text),
    one(2, "protocol", Text),
    one(3, "port", Int),
    one(4, "targetPort", IntOrText),
    one(5, "nodePort", Int),
    one(6, "appProtocol", Text),
]);
const SERVICE: &[Field] = &[
    one(1, "metadata", META),
    one(
        2,
        "spec",
        Message(&[
            many(1, "ports", SERVICE_PORT),
            one(2, "selector", TextMap),
            one(3, "clusterIP", Text),
            one(4, "type", Text),
            many(5, "externalIPs", Text),
            one(7, "sessionAffinity", Text),
            one(8, "loadBalancerIP", Text),
            many(9, "loadBalancerSourceRanges", Text),
            one(10, "externalName", Text),
            one(11, "externalTrafficPolicy", Text),
            one(12, "healthCheckNodePort", Int),
            one(13, "publishNotReadyAddresses", Bool),
            one(17, "ipFamilyPolicy", Text),
            many(18, "clusterIPs", Text),
            many(19, "ipFamilies", Text),
            one(20, "allocateLoadBalancerNodePorts", BoolPointer),
            one(21, "loadBalancerClass", Text),
            one(22, "internalTrafficPolicy", Text),
            one(23, "trafficDistribution", Text),
        ]),
    ),
    one(
        3,
        "status",
        Message(&[one(1, "loadBalancer", Message(&[]))]),
    ),
];
const CORE_SERIES: Type = Message(&[one(1, "count", Int), one(2, "lastObservedTime", MicroTime)]);
const SOURCE: Type = Message(&[one(1, "component", Text), one(2, "host", Text)]);
const CORE_EVENT: &[Field] = &[
    one(1, "metadata", META),
    one(2, "involvedObject", REFERENCE),
    one(3, "reason", Text),
    one(4, "message", Text),
    one(5, "source", SOURCE),
    one(6, "firstTimestamp", Time),
    one(7, "lastTimestamp", Time),
    one(8, "count", Int),
    one(9, "type", Text),
    one(10, "eventTime", MicroTime),
    one(11, "series", CORE_SERIES),
    one(12, "action", Text),
    one(13, "related", REFERENCE),
    one(14, "reportingComponent", Text),
    one(15, "reportingInstance", Text),
];
const EVENT: &[Field] = &[
    one(1, "metadata", META),
    one(2, "eventTime", MicroTime),
    one(3, "series", CORE_SERIES),
    one(4, "reportingController", Text),
    one(5, "reportingInstance", Text),
    one(6, "action", Text),
    one(7, "reason", Text),
    one(8, "regarding", REFERENCE),
    one(9, "related", REFERENCE),
    one(10, "note", Text),
    one(11, "type", Text),
    one(12, "deprecatedSource", SOURCE),
    one(13, "deprecatedFirstTimestamp", Time),
    one(14, "deprecatedLastTimestamp", Time),
    one(15, "deprecatedCount", Int),
];
const LEASE: &[Field] = &[
    one(1, "metadata", META),
    one(
        2,
        "spec",
        Message(&[
            one(1, "holderIdentity", Text),
            one(2, "leaseDurationSeconds", IntPointer),
            one(3, "acquireTime", MicroTime),
            one(4, "renewTime", MicroTime),
            one(5, "leaseTransitions", IntPointer),
            one(6, "strategy", Text),
            one(7, "preferredHolder", Text),
        ]),
    ),
];
const RULE: Type = Message(&[
    many(1, "verbs", Text),
    many(2, "apiGroups", Text),
    many(3, "resources", Text),
    many(4, "resourceNames", Text),
    many(5, "nonResourceURLs", Text),
]);
const ROLE: &[Field] = &[
    one(1, "metadata", META),
    many(2, "rules", RULE),
    one(
        3,
        "aggregationRule",
        Message(&[many(1, "clusterRoleSelectors", LABEL_SELECTOR)]),
    ),
];
const BINDING: &[Field] = &[
    one(1, "metadata", META),
    many(
        2,
        "subjects",
        Message(&[
            one(1, "kind", Text),
            one(2, "apiGroup", Text),
            one(3, "name", Text),
            one(4, "namespace", Text),
        ]),
    ),
    one(
        3,
        "roleRef",
        Message(&[
            one(1, "apiGroup", Text),
            one(2, "kind", Text),
            one(3, "name", Text),
        ]),
    ),
];
const DELETE_OPTIONS: &[Field] = &[
    one(1, "gracePeriodSeconds", IntPointer),
    one(
        2,
        "preconditions",
        Message(&[one(1, "uid", Text), one(2, "resourceVersion", Text)]),
    ),
    one(3, "orphanDependents", BoolPointer),
    one(4, "propagationPolicy", Text),
    many(5, "dryRun", Text),
];

/// Fields of a kind.
pub(super) fn table(api_version: &str, kind: &str) -> Option<&'static [Field]> {
    Some(match (api_version, kind) {
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "ServiceAccount") => SERVICE_ACCOUNT,
        ("v1", "Service") => SERVICE,
        ("v1", "Event") => CORE_EVENT,
        ("events.k8s.io/v1", "Event") => EVENT,
        ("coordination.k8s.io/v1", "Lease") => LEASE,
        ("rbac.authorization.k8s.io/v1", "Role" | "ClusterRole") => ROLE,
        ("rbac.authorization.k8s.io/v1", "RoleBinding" | "ClusterRoleBinding") => BINDING,
        (_, "DeleteOptions") => DELETE_OPTIONS,
        _ => return None,
    })
}
