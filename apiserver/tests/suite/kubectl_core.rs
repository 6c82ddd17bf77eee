//! kubectl on core kinds and on the server itself.

use serde_json::json;

use crate::harness::start;
use crate::kubectl::Kubectl;

#[tokio::test(flavor = "multi_thread")]
async fn version_and_resources_are_listed_without_complaints() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    let version = kubectl.run(&["version"]).await;
    assert_eq!(version.err, "", "no warning about a version skew");
    assert!(
        version.out.contains("Server Version: v1.37"),
        "{}",
        version.out
    );
    let resources = kubectl.run(&["api-resources", "--no-headers"]).await.ok();
    for kind in [
        "IPPool",
        "BGPPeer",
        "Pod",
        "Node",
        "NetworkPolicy",
        "Lease",
        "EndpointSlice",
    ] {
        assert!(
            resources.lines().any(|l| l.ends_with(&format!(" {kind}"))),
            "{kind}"
        );
    }
    let served = kubectl.run(&["api-versions"]).await.ok();
    assert!(
        served.contains("projectcalico.org/v3\n") && served.contains("\nv1\n"),
        "{served}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn generators_that_send_protobuf_work() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    for (arguments, printed) in [
        ("create namespace x", "namespace/x created\n"),
        (
            "create configmap c --from-literal=a=b -n x",
            "configmap/c created\n",
        ),
        (
            "create secret generic s --from-literal=a=b",
            "secret/s created\n",
        ),
        ("create serviceaccount u", "serviceaccount/u created\n"),
        (
            "create service clusterip web --tcp=80:8080",
            "service/web created\n",
        ),
        (
            "create role r --verb=get --resource=pods",
            "role.rbac.authorization.k8s.io/r created\n",
        ),
        (
            "create clusterrolebinding b --clusterrole=r --user=u",
            "clusterrolebinding.rbac.authorization.k8s.io/b created\n",
        ),
        ("run p --image=img", "pod/p created\n"),
    ] {
        let words: Vec<&str> = arguments.split(' ').collect();
        assert_eq!(kubectl.run(&words).await.ok(), printed);
    }
    let port = kubectl
        .run(&["get", "svc", "web", "-o", "jsonpath={.spec.ports[0]}"])
        .await
        .ok();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&port).unwrap(),
        json!({"name": "80-8080", "port": 80, "protocol": "TCP", "targetPort": 8080})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_and_pods_print_as_users_expect() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    let node = json!({"metadata": {"name": "n1", "labels": {"node-role.kubernetes.io/worker": ""}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
            "nodeInfo": {"kubeletVersion": "v1.37.0", "architecture": "amd64", "bootID": "",
                "containerRuntimeVersion": "none", "kernelVersion": "6.1", "kubeProxyVersion": "",
                "machineID": "", "operatingSystem": "linux", "osImage": "Debian", "systemUUID": ""}}});
    server.post("/api/v1/nodes", &node).await.expect(201);
    let pod = json!({"metadata": {"name": "p1"}, "spec": {"nodeName": "n1",
        "containers": [{"name": "c", "image": "i"}]}});
    server
        .post("/api/v1/namespaces/default/pods", &pod)
        .await
        .expect(201);
    let status = json!({"status": {"phase": "Running", "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}], "containerStatuses": [{"name": "c", "ready": true,
            "restartCount": 0, "image": "i", "imageID": ""}]}});
    server
        .merge("/api/v1/namespaces/default/pods/p1/status", &status)
        .await
        .expect(200);
    let nodes = kubectl.run(&["get", "nodes", "-o", "wide"]).await.ok();
    let words: Vec<&str> = nodes.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..3], ["n1", "Ready", "worker"]);
    assert!(
        words.contains(&"192.0.2.1") && words.contains(&"v1.37.0"),
        "{nodes}"
    );
    let pods = kubectl.run(&["get", "pods", "-A", "-o", "wide"]).await.ok();
    let words: Vec<&str> = pods.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[..4], ["default", "p1", "1/1", "Running"]);
    assert!(
        words.contains(&"10.0.0.1") && words.contains(&"n1"),
        "{pods}"
    );
    let found = kubectl
        .run(&[
            "get",
            "pods",
            "--field-selector=spec.nodeName=n1",
            "-o",
            "name",
        ])
        .await;
    assert_eq!(found.ok(), "pod/p1\n");
    let described = kubectl.run(&["describe", "pod", "p1"]).await.ok();
    assert!(
        described.contains("Node:") && described.contains("10.0.0.1"),
        "{described}"
    );
    kubectl.run(&["describe", "node", "n1"]).await.ok();
    kubectl.run(&["cordon", "n1"]).await.ok();
    let nodes = kubectl.run(&["get", "nodes"]).await.ok();
    assert!(nodes.contains("Ready,SchedulingDisabled"), "{nodes}");
    kubectl
        .run(&["taint", "nodes", "n1", "a=b:NoSchedule"])
        .await
        .ok();
    kubectl.run(&["label", "node", "n1", "rack=r1"]).await.ok();
    kubectl.run(&["delete", "pod", "p1"]).await.ok();
    assert_eq!(
        kubectl.run(&["get", "pods"]).await.err,
        "No resources found in default namespace.\n"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn core_kinds_apply_with_strategic_merge() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  selector: {app: web}\n  ports:\n  - {name: a, port: 80}\n  - {name: b, port: 81}\n";
    assert_eq!(kubectl.apply(service).await.ok(), "service/web created\n");
    assert_eq!(kubectl.apply(service).await.ok(), "service/web unchanged\n");
    let fewer = service.replace("  - {name: a, port: 80}\n", "");
    assert_eq!(kubectl.apply(&fewer).await.ok(), "service/web configured\n");
    let ports = kubectl
        .run(&["get", "svc", "web", "-o", "jsonpath={.spec.ports[*].port}"])
        .await;
    assert_eq!(ports.ok(), "81");
    let side = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    kubectl.run_with(&side, service).await.ok();
    let policy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\nspec: {podSelector: {matchLabels: {a: b}}}\n";
    kubectl.apply(policy).await.ok();
    let table = kubectl.run(&["get", "netpol"]).await.ok();
    assert!(
        table.contains("POD-SELECTOR") && table.contains("a=b"),
        "{table}"
    );
    let odd = service.replace("selector:", "selectr:");
    let refused = kubectl.apply(&odd).await;
    assert!(
        refused.err.contains(r#"unknown field "spec.selectr""#),
        "{}",
        refused.err
    );
    let explained = kubectl
        .run(&["explain", "pod.spec.containers.env.valueFrom"])
        .await
        .ok();
    assert!(explained.contains("secretKeyRef"), "{explained}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_definition_applied_with_kubectl_is_usable_at_once() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.org}\nspec:\n  group: example.org\n  scope: Cluster\n  names: {plural: things, kind: Thing}\n  versions:\n  - name: v1\n    served: true\n    storage: true\n    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {n: {type: integer}}}}}}\n";
    kubectl.apply(crd).await.ok();
    let wait = [
        "wait",
        "--for=condition=Established",
        "crd/things.example.org",
        "--timeout=15s",
    ];
    kubectl.run(&wait).await.ok();
    let thing = "apiVersion: example.org/v1\nkind: Thing\nmetadata: {name: t}\nspec: {n: 1}\n";
    assert_eq!(
        kubectl.apply(thing).await.ok(),
        "thing.example.org/t created\n"
    );
    let table = kubectl.run(&["get", "things"]).await.ok();
    assert!(table.starts_with("NAME   AGE\nt"), "{table}");
    kubectl
        .run(&["delete", "crd", "things.example.org"])
        .await
        .ok();
    assert_ne!(kubectl.run(&["get", "things"]).await.code, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_a_namespace_waits_until_it_is_gone() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    kubectl.run(&["create", "ns", "x"]).await.ok();
    kubectl
        .run(&["-n", "x", "create", "configmap", "c"])
        .await
        .ok();
    kubectl.run(&["delete", "ns", "x"]).await.ok();
    assert_eq!(kubectl.run(&["get", "ns", "x"]).await.code, 1);
    let lost = kubectl.run(&["-n", "x", "create", "configmap", "c"]).await;
    assert!(
        lost.err.contains("namespaces \"x\" not found"),
        "{}",
        lost.err
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn built_in_tiers_cannot_be_deleted() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    let tier = |name: &str, spec: &str| {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        )
    };
    let default = tier("default", "{order: 1000000, defaultAction: Deny}");
    kubectl.apply(&default).await.ok();
    kubectl.apply(&tier("security", "{}")).await.ok();
    let refused = kubectl.run(&["delete", "tier", "default"]).await;
    assert!(
        refused
            .err
            .contains("The built-in tier default cannot be deleted"),
        "{}",
        refused.err
    );
    kubectl.run(&["delete", "tier", "security"]).await.ok();
    // The operator may lift the rule.
    let binding = "protect-builtin-tiers-binding.projectcalico.org";
    kubectl
        .run(&["delete", "validatingadmissionpolicybinding", binding])
        .await
        .ok();
    kubectl.run(&["delete", "tier", "default"]).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn users_can_ask_who_they_are_and_what_they_may() {
    let server = start().await;
    let kubectl = Kubectl::new(&server);
    let me = kubectl.run(&["auth", "whoami"]).await.ok();
    assert!(
        me.contains("admin") && me.contains("system:masters"),
        "{me}"
    );
    assert_eq!(
        kubectl.run(&["auth", "can-i", "create", "pods"]).await.ok(),
        "yes\n"
    );
}
