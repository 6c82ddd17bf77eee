//! The built-in kinds and their columns.

use k8s_openapi::api::{
    admissionregistration, apps, coordination, core, discovery, events, networking, rbac,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::columns::Column;
use super::{Conversion, Resource, StatusRule, core_cells as cells};
use crate::schema::Schema;
use crate::schema::core_kinds::{Generate, generate};
use crate::status::qualified;

/// Storage key of definitions.
pub const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";
/// Storage key of namespaces.
pub const NAMESPACES: &str = "namespaces";

/// Starts a description; the rest is set by the methods below.
fn kind(group: &str, kind: &str, plural: &str, generate: Generate) -> Resource {
    Resource {
        group: group.into(),
        version: "v1".into(),
        storage_version: "v1".into(),
        kind: kind.into(),
        list_kind: format!("{kind}List"),
        plural: plural.into(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        status: StatusRule::Plain,
        generation: false,
        storage: qualified(plural, group).into(),
        columns: vec![Column::name(), Column::age()],
        schema: Schema::core(generate, group, "v1", kind).into(),
        selectable: Vec::new(),
        conversion: Conversion::None,
        custom: false,
    }
}

impl Resource {
    fn short(mut self, names: &[&str]) -> Self {
        self.short_names = names.iter().map(|&n| n.into()).collect();
        self
    }

    fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }

    fn status(mut self, rule: StatusRule) -> Self {
        self.status = rule;
        self
    }

    fn generation(mut self) -> Self {
        self.generation = true;
        self
    }

    fn all(mut self) -> Self {
        self.categories = vec!["all".into()];
        self
    }

    fn columns(mut self, mut columns: Vec<Column>) -> Self {
        columns.insert(0, Column::name());
        self.columns = columns;
        self
    }

    fn selectable(mut self, paths: &[&str]) -> Self {
        self.selectable = paths.iter().map(|&p| p.into()).collect();
        self
    }
}

/// All built-in resources.
pub fn resources() -> Vec<Resource> {
    let mut all = core_group();
    all.extend(other_groups());
    all
}

fn core_group() -> Vec<Resource> {
    use StatusRule::{Separate, SeparateAfterCreate};
    let text = |name: &str, path: &str| Column::at(name, "string", path);
    vec![
        kind(
            "",
            "Namespace",
            "namespaces",
            generate::<core::v1::Namespace>,
        )
        .short(&["ns"])
        .cluster()
        .status(Separate)
        .selectable(&["status.phase"])
        .columns(vec![text("Status", ".status.phase"), Column::age()]),
        kind("", "Node", "nodes", generate::<core::v1::Node>)
            .short(&["no"])
            .cluster()
            .status(SeparateAfterCreate)
            .selectable(&["spec.unschedulable"])
            .columns(cells::node()),
        kind("", "Pod", "pods", generate::<core::v1::Pod>)
            .short(&["po"])
            .all()
            .status(Separate)
            .generation()
            .selectable(&[
                "spec.nodeName",
                "spec.restartPolicy",
                "spec.schedulerName",
                "spec.serviceAccountName",
                "spec.hostNetwork",
                "status.phase",
                "status.podIP",
                "status.nominatedNodeName",
            ])
            .columns(cells::pod()),
        kind("", "Service", "services", generate::<core::v1::Service>)
            .short(&["svc"])
            .all()
            .status(Separate)
            .selectable(&["spec.clusterIP", "spec.type"])
            .columns(cells::service()),
        kind(
            "",
            "Endpoints",
            "endpoints",
            generate::<core::v1::Endpoints>,
        )
        .short(&["ep"])
        .columns(vec![
            Column::computed("Endpoints", "string", cells::endpoints),
            Column::age(),
        ]),
        kind("", "Secret", "secrets", generate::<core::v1::Secret>)
            .selectable(&["type"])
            .columns(vec![
                text("Type", ".type"),
                Column::computed("Data", "integer", cells::data_count),
                Column::age(),
            ]),
        kind(
            "",
            "ConfigMap",
            "configmaps",
            generate::<core::v1::ConfigMap>,
        )
        .short(&["cm"])
        .columns(vec![
            Column::computed("Data", "integer", cells::data_count),
            Column::age(),
        ]),
        kind(
            "",
            "ServiceAccount",
            "serviceaccounts",
            generate::<core::v1::ServiceAccount>,
        )
        .short(&["sa"])
        .columns(vec![
            Column::computed("Secrets", "integer", cells::secrets_count),
            Column::age(),
        ]),
        kind("", "Event", "events", generate::<core::v1::Event>)
            .short(&["ev"])
            .selectable(&[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
                "involvedObject.apiVersion",
                "involvedObject.resourceVersion",
                "involvedObject.fieldPath",
                "reason",
                "reportingComponent",
                "source",
                "type",
            ])
            .event_columns(),
    ]
}

fn other_groups() -> Vec<Resource> {
    use StatusRule::Separate;
    let text = |name: &str, path: &str| Column::at(name, "string", path);
    let event = kind(
        "events.k8s.io",
        "Event",
        "events",
        generate::<events::v1::Event>,
    )
    .short(&["ev"])
    .selectable(&["reason", "type", "reportingController"]);
    vec![
        Resource {
            storage: "events".into(),
            conversion: Conversion::Events,
            ..event
        }
        .event_columns(),
        kind(
            "discovery.k8s.io",
            "EndpointSlice",
            "endpointslices",
            generate::<discovery::v1::EndpointSlice>,
        )
        .generation()
        .columns(vec![
            text("AddressType", ".addressType"),
            Column::computed("Ports", "string", cells::slice_ports),
            Column::computed("Endpoints", "string", cells::slice_endpoints),
            Column::age(),
        ]),
        kind(
            "coordination.k8s.io",
            "Lease",
            "leases",
            generate::<coordination::v1::Lease>,
        )
        .columns(vec![text("Holder", ".spec.holderIdentity"), Column::age()]),
        kind(
            "networking.k8s.io",
            "NetworkPolicy",
            "networkpolicies",
            generate::<networking::v1::NetworkPolicy>,
        )
        .short(&["netpol"])
        .generation()
        .columns(vec![
            Column::computed("Pod-Selector", "string", cells::pod_selector),
            Column::age(),
        ]),
        kind(
            "apps",
            "DaemonSet",
            "daemonsets",
            generate::<apps::v1::DaemonSet>,
        )
        .short(&["ds"])
        .all()
        .status(Separate)
        .generation()
        .columns(cells::daemon_set()),
        kind(
            "apps",
            "Deployment",
            "deployments",
            generate::<apps::v1::Deployment>,
        )
        .short(&["deploy"])
        .all()
        .status(Separate)
        .generation()
        .columns(cells::deployment()),
        kind(
            "rbac.authorization.k8s.io",
            "Role",
            "roles",
            generate::<rbac::v1::Role>,
        )
        .columns(vec![Column::at(
            "Created At",
            "string",
            ".metadata.creationTimestamp",
        )]),
        kind(
            "rbac.authorization.k8s.io",
            "RoleBinding",
            "rolebindings",
            generate::<rbac::v1::RoleBinding>,
        )
        .columns(cells::binding()),
        kind(
            "rbac.authorization.k8s.io",
            "ClusterRole",
            "clusterroles",
            generate::<rbac::v1::ClusterRole>,
        )
        .cluster()
        .columns(vec![Column::at(
            "Created At",
            "string",
            ".metadata.creationTimestamp",
        )]),
        kind(
            "rbac.authorization.k8s.io",
            "ClusterRoleBinding",
            "clusterrolebindings",
            generate::<rbac::v1::ClusterRoleBinding>,
        )
        .cluster()
        .columns(cells::binding()),
        kind(
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            generate::<admissionregistration::v1::ValidatingAdmissionPolicy>,
        )
        .cluster()
        .status(Separate)
        .generation()
        .columns(vec![
            Column::computed("Validations", "integer", cells::validations_count),
            text("ParamKind", ".spec.paramKind.kind"),
            Column::age(),
        ]),
        kind(
            "admissionregistration.k8s.io",
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            generate::<admissionregistration::v1::ValidatingAdmissionPolicyBinding>,
        )
        .cluster()
        .generation()
        .columns(vec![text("PolicyName", ".spec.policyName"), Column::age()]),
        kind(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            generate::<CustomResourceDefinition>,
        )
        .short(&["crd", "crds"])
        .cluster()
        .status(Separate)
        .generation()
        .columns(vec![Column::at(
            "Created At",
            "string",
            ".metadata.creationTimestamp",
        )]),
    ]
}

impl Resource {
    fn event_columns(self) -> Self {
        let columns = cells::event(self.conversion == Conversion::Events);
        Self { columns, ..self }
    }
}
