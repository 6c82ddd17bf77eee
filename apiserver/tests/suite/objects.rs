use http::Method;
use serde_json::json;

use crate::harness::{CONFIG_MAPS, POOLS, config_map, pool, start};

#[tokio::test]
async fn a_new_object_gets_identity_from_the_server() {
    let server = start().await;
    let mut wanted = config_map("a");
    wanted["metadata"]["uid"] = "mine".into();
    wanted["metadata"]["creationTimestamp"] = "2000-01-01T00:00:00Z".into();
    let made = server.post(CONFIG_MAPS, &wanted).await.expect(201);
    assert_eq!(made["metadata"]["namespace"], "default");
    assert_eq!(made["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert_ne!(
        made["metadata"]["creationTimestamp"],
        "2000-01-01T00:00:00Z"
    );
    assert!(
        made["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .is_ok()
    );
    let read = server.get(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    assert_eq!(read, made);
    let twice = server.post(CONFIG_MAPS, &config_map("a")).await;
    assert_eq!(twice.message(), r#"configmaps "a" already exists"#);
    assert_eq!(twice.expect(409)["reason"], "AlreadyExists");
}

#[tokio::test]
async fn objects_live_only_in_namespaces_that_exist() {
    let server = start().await;
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        server
            .get(&format!("/api/v1/namespaces/{name}"))
            .await
            .expect(200);
    }
    let answer = server
        .post("/api/v1/namespaces/nowhere/configmaps", &config_map("a"))
        .await;
    assert_eq!(answer.message(), r#"namespaces "nowhere" not found"#);
    answer.expect(404);
    let mut elsewhere = config_map("a");
    elsewhere["metadata"]["namespace"] = "kube-system".into();
    server.post(CONFIG_MAPS, &elsewhere).await.expect(400);
    server.get("/api/v1/pods/a").await.expect(404);
    server
        .get("/apis/projectcalico.org/v3/namespaces/default/ippools")
        .await
        .expect(404);
}

#[tokio::test]
async fn generated_names_start_with_the_prefix() {
    let server = start().await;
    let wanted = json!({"metadata": {"generateName": "x-"}});
    let a = server.post(CONFIG_MAPS, &wanted).await.expect(201);
    let b = server.post(CONFIG_MAPS, &wanted).await.expect(201);
    assert!(a["metadata"]["name"].as_str().unwrap().starts_with("x-"));
    assert_ne!(a["metadata"]["name"], b["metadata"]["name"]);
    let nameless = server
        .post(CONFIG_MAPS, &json!({"metadata": {}}))
        .await
        .expect(422);
    assert_eq!(nameless["details"]["causes"][0]["field"], "metadata.name");
    let bad = server
        .post(CONFIG_MAPS, &config_map("Not_A_Name"))
        .await
        .expect(422);
    assert_eq!(bad["details"]["causes"][0]["field"], "metadata.name");
}

#[tokio::test]
async fn a_stale_writer_is_refused() {
    let server = start().await;
    let path = format!("{POOLS}/p");
    let made = server
        .post(POOLS, &pool("p", "10.0.0.0/16"))
        .await
        .expect(201);
    let mut first = made.clone();
    first["spec"]["natOutgoing"] = true.into();
    server.put(&path, &first).await.expect(200);
    let mut second = made.clone();
    second["spec"]["natOutgoing"] = false.into();
    let answer = server.put(&path, &second).await;
    assert!(
        answer.message().contains("the object has been modified"),
        "{}",
        answer.message()
    );
    assert_eq!(answer.expect(409)["reason"], "Conflict");
    // Custom resources cannot be replaced blindly.
    second["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let blind = server.put(&path, &second).await.expect(422);
    assert_eq!(
        blind["details"]["causes"][0]["field"],
        "metadata.resourceVersion"
    );
    let mut renamed = server.get(&path).await.expect(200);
    renamed["metadata"]["name"] = "q".into();
    server.put(&path, &renamed).await.expect(400);
    server
        .put(&format!("{POOLS}/absent"), &pool("absent", "10.0.0.0/16"))
        .await
        .expect(404);
}

#[tokio::test]
async fn an_update_that_changes_nothing_keeps_the_revision() {
    let server = start().await;
    let made = server
        .post(POOLS, &pool("p", "10.0.0.0/16"))
        .await
        .expect(201);
    let again = server.put(&format!("{POOLS}/p"), &made).await.expect(200);
    assert_eq!(
        again["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn delete_honours_preconditions() {
    let server = start().await;
    let path = format!("{CONFIG_MAPS}/a");
    let made = server.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let wrong = json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}});
    assert!(
        server.delete_with(&path, &wrong).await.expect(409)["message"]
            .as_str()
            .unwrap()
            .contains("UID in the precondition")
    );
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    server.delete_with(&path, &stale).await.expect(409);
    server
        .delete_with(&path, &json!({"propagationPolicy": "Sideways"}))
        .await
        .expect(422);
    let right = json!({"preconditions": {"uid": made["metadata"]["uid"]},
        "propagationPolicy": "Background"});
    let status = server.delete_with(&path, &right).await.expect(200);
    assert_eq!(status["status"], "Success");
    assert_eq!(status["details"]["uid"], made["metadata"]["uid"]);
    server.get(&path).await.expect(404);
    server.delete(&path).await.expect(404);
}

#[tokio::test]
async fn finalizers_hold_an_object_until_they_are_removed() {
    let server = start().await;
    let path = format!("{POOLS}/p");
    let mut wanted = pool("p", "10.0.0.0/16");
    wanted["metadata"]["finalizers"] = json!(["example.org/a", "example.org/b"]);
    server.post(POOLS, &wanted).await.expect(201);
    let held = server.delete(&path).await.expect(200);
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    let since = held["metadata"]["deletionTimestamp"].clone();
    // Neither a second delete nor an update moves the time.
    server.delete(&path).await.expect(200);
    let patched = server
        .merge(&path, &json!({"metadata": {"deletionTimestamp": null}}))
        .await;
    assert_eq!(patched.expect(200)["metadata"]["deletionTimestamp"], since);
    let more = json!({"metadata": {"finalizers": ["example.org/a", "example.org/c"]}});
    let refused = server.merge(&path, &more).await.expect(422);
    assert_eq!(
        refused["details"]["causes"][0]["field"],
        "metadata.finalizers"
    );
    server
        .merge(
            &path,
            &json!({"metadata": {"finalizers": ["example.org/b"]}}),
        )
        .await
        .expect(200);
    server.get(&path).await.expect(200);
    server
        .merge(&path, &json!({"metadata": {"finalizers": []}}))
        .await
        .expect(200);
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn status_and_spec_are_written_separately() {
    let server = start().await;
    let path = format!("{POOLS}/p");
    let condition = json!([{"type": "Allocatable", "status": "True", "reason": "OK",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let mut wanted = pool("p", "10.0.0.0/16");
    wanted["status"] = json!({"conditions": condition});
    let made = server.post(POOLS, &wanted).await.expect(201);
    assert!(
        made.get("status").is_none(),
        "a create cannot set the status: {made}"
    );
    assert_eq!(made["metadata"]["generation"], 1);
    let both = json!({"spec": {"natOutgoing": true}, "status": {"conditions": condition}});
    let main = server.merge(&path, &both).await.expect(200);
    assert!(main.get("status").is_none());
    assert_eq!(main["metadata"]["generation"], 2);
    let both = json!({"spec": {"natOutgoing": false}, "status": {"conditions": condition},
        "metadata": {"labels": {"x": "y"}}});
    let status = server
        .merge(&format!("{path}/status"), &both)
        .await
        .expect(200);
    assert_eq!(status["spec"]["natOutgoing"], true);
    assert_eq!(status["status"]["conditions"][0]["type"], "Allocatable");
    assert!(status["metadata"].get("labels").is_none());
    assert_eq!(
        status["metadata"]["generation"], 2,
        "a status is no desired state"
    );
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = server.merge(&path, &labelled).await.expect(200);
    assert_eq!(
        labelled["metadata"]["generation"], 2,
        "labels are no desired state"
    );
    assert_eq!(labelled["status"], status["status"]);
}

#[tokio::test]
async fn a_node_status_may_carry_annotations() {
    let server = start().await;
    let node = json!({"metadata": {"name": "n1"}, "status": {"conditions": [
        {"type": "Ready", "status": "True"}]}});
    let made = server.post("/api/v1/nodes", &node).await.expect(201);
    assert_eq!(made["status"]["conditions"][0]["status"], "True");
    let patch = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"unschedulable": true}});
    let patched = server
        .merge("/api/v1/nodes/n1/status", &patch)
        .await
        .expect(200);
    assert_eq!(patched["metadata"]["annotations"]["a"], "b");
    assert!(patched["spec"].get("unschedulable").is_none());
}

#[tokio::test]
async fn deleting_a_namespace_removes_its_content_and_then_itself() {
    let server = start().await;
    server
        .post("/api/v1/namespaces", &json!({"metadata": {"name": "x"}}))
        .await
        .expect(201);
    let maps = "/api/v1/namespaces/x/configmaps";
    let mut held = config_map("held");
    held["metadata"]["finalizers"] = json!(["example.org/a"]);
    server.post(maps, &held).await.expect(201);
    server.post(maps, &config_map("free")).await.expect(201);
    let mut watch = server
        .watch("/api/v1/namespaces?watch=true&fieldSelector=metadata.name=x")
        .await;
    assert_eq!(watch.next_short().await.0, "ADDED");
    let going = server.delete("/api/v1/namespaces/x").await.expect(200);
    assert_eq!(going["status"]["phase"], "Terminating");
    let refused = server.post(maps, &config_map("late")).await;
    assert!(refused.message().contains("being terminated"));
    refused.expect(403);
    // Wait until only the held object is left, then let it go.
    let mut content = server
        .watch(&format!(
            "{maps}?watch=true&fieldSelector=metadata.name=held"
        ))
        .await;
    while content.next().await.unwrap()["object"]["metadata"]["deletionTimestamp"].is_null() {}
    server
        .merge(
            &format!("{maps}/held"),
            &json!({"metadata": {"finalizers": []}}),
        )
        .await
        .expect(200);
    while watch.next_short().await.0 != "DELETED" {}
    server.get("/api/v1/namespaces/x").await.expect(404);
    let left = server.get("/api/v1/configmaps").await.expect(200);
    assert!(
        left["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|o| o["metadata"]["namespace"] != "x")
    );
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let server = start().await;
    for (name, app) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut map = config_map(name);
        map["metadata"]["labels"] = json!({"app": app});
        server.post(CONFIG_MAPS, &map).await.expect(201);
    }
    let gone = server
        .delete(&format!("{CONFIG_MAPS}?labelSelector=app%3Dx"))
        .await
        .expect(200);
    assert_eq!(gone["items"].as_array().unwrap().len(), 2);
    let left = server.get(CONFIG_MAPS).await.expect(200);
    assert_eq!(left["items"][0]["metadata"]["name"], "c");
    assert_eq!(left["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn dry_run_checks_everything_and_stores_nothing() {
    let server = start().await;
    let dry = format!("{POOLS}?dryRun=All");
    let shown = server
        .post(&dry, &pool("p", "10.0.0.0/16"))
        .await
        .expect(201);
    assert_eq!(shown["spec"]["nodeSelector"], "all()");
    server.get(&format!("{POOLS}/p")).await.expect(404);
    server.post(&dry, &pool("p", "nonsense")).await.expect(422);
    server
        .post(POOLS, &pool("p", "10.0.0.0/16"))
        .await
        .expect(201);
    server
        .post(&dry, &pool("p", "10.0.0.0/16"))
        .await
        .expect(409);
    let path = format!("{POOLS}/p?dryRun=All");
    let patch = json!({"spec": {"natOutgoing": true}});
    assert_eq!(
        server.merge(&path, &patch).await.expect(200)["spec"]["natOutgoing"],
        true
    );
    server.delete(&path).await.expect(200);
    let kept = server.get(&format!("{POOLS}/p")).await.expect(200);
    assert!(kept["spec"].get("natOutgoing").is_none());
}

#[tokio::test]
async fn core_kinds_refuse_wrong_types_and_immutable_data() {
    let server = start().await;
    let mut wrong = config_map("a");
    wrong["data"] = json!({"n": 1});
    let answer = server.post(CONFIG_MAPS, &wrong).await;
    assert!(answer.message().contains("data.n"), "{}", answer.message());
    answer.expect(400);
    let mut fixed = config_map("fixed");
    fixed["immutable"] = true.into();
    server.post(CONFIG_MAPS, &fixed).await.expect(201);
    let change = json!({"data": {"a": "b"}});
    server
        .merge(&format!("{CONFIG_MAPS}/fixed"), &change)
        .await
        .expect(422);
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "v"}});
    let secret = server
        .post("/api/v1/namespaces/default/secrets", &secret)
        .await
        .expect(201);
    assert_eq!(secret["data"]["k"], "dg==");
    assert_eq!(secret["type"], "Opaque");
    assert!(secret.get("stringData").is_none());
}

#[tokio::test]
async fn both_event_apis_show_the_same_events() {
    let server = start().await;
    let event = json!({"metadata": {"name": "e", "namespace": "default"}, "reason": "R",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "hello",
        "type": "Normal", "action": "A", "reportingController": "c", "reportingInstance": "i",
        "eventTime": "2026-01-01T00:00:00.000000Z"});
    let events = "/apis/events.k8s.io/v1/namespaces/default/events";
    server.post(events, &event).await.expect(201);
    let core = server
        .get("/api/v1/namespaces/default/events/e")
        .await
        .expect(200);
    assert_eq!(
        (&core["apiVersion"], &core["message"]),
        (&"v1".into(), &"hello".into())
    );
    let found = "/api/v1/events?fieldSelector=involvedObject.name%3Dp";
    assert_eq!(
        server.get(found).await.expect(200)["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let patched = server
        .merge(&format!("{events}/e"), &series)
        .await
        .expect(200);
    assert_eq!(
        (&patched["note"], &patched["series"]["count"]),
        (&"hello".into(), &2.into())
    );
    let listed = server.get(events).await.expect(200);
    assert_eq!(listed["items"][0]["regarding"]["name"], "p");
    assert_eq!(listed["items"][0]["apiVersion"], "events.k8s.io/v1");
    let method = Method::PATCH;
    let kind = "application/strategic-merge-patch+json";
    let core_patch = json!({"count": 3});
    let path = "/api/v1/namespaces/default/events/e";
    server
        .write(method, path, kind, &core_patch)
        .await
        .expect(200);
    let view = server.get(&format!("{events}/e")).await.expect(200);
    assert_eq!(view["deprecatedCount"], 3);
}

#[tokio::test]
async fn dependents_follow_their_last_owner_unless_orphaned() {
    let server = start().await;
    let owner = |made: &serde_json::Value| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": made["metadata"]["name"],
            "uid": made["metadata"]["uid"]})
    };
    let make = async |name: &str, owners: Vec<serde_json::Value>| {
        let mut map = config_map(name);
        map["metadata"]["ownerReferences"] = owners.into();
        server.post(CONFIG_MAPS, &map).await.expect(201)
    };
    let a = make("a", vec![]).await;
    let b = make("b", vec![]).await;
    let of_a = make("of-a", vec![owner(&a)]).await;
    make("of-of-a", vec![owner(&of_a)]).await;
    make("of-both", vec![owner(&a), owner(&b)]).await;
    let mut watch = server
        .watch(&format!(
            "{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name=of-of-a"
        ))
        .await;
    assert_eq!(watch.next_short().await.0, "ADDED");
    server.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    assert_eq!(watch.next_short().await.0, "DELETED");
    let mut both = server
        .watch(&format!(
            "{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name=of-both"
        ))
        .await;
    while both.next().await.unwrap()["object"]["metadata"]["ownerReferences"]
        .as_array()
        .unwrap()
        .len()
        > 1
    {}
    let orphan = json!({"propagationPolicy": "Orphan"});
    server
        .delete_with(&format!("{CONFIG_MAPS}/b"), &orphan)
        .await
        .expect(200);
    let left = server
        .get(&format!("{CONFIG_MAPS}/of-both"))
        .await
        .expect(200);
    assert!(left["metadata"].get("ownerReferences").is_none());
    let c = make("c", vec![]).await;
    make("of-c", vec![owner(&c)]).await;
    let foreground = json!({"propagationPolicy": "Foreground"});
    server
        .delete_with(&format!("{CONFIG_MAPS}/c"), &foreground)
        .await
        .expect(200);
    server.get(&format!("{CONFIG_MAPS}/of-c")).await.expect(404);
}

#[tokio::test]
async fn fields_of_the_wrong_type_never_reach_the_rules_of_a_kind() {
    let server = start().await;
    for (path, body) in [
        (
            "/api/v1/namespaces",
            json!({"metadata": {"name": "x", "labels": "oops"}}),
        ),
        (
            "/api/v1/namespaces",
            json!({"metadata": {"name": "x", "labels": [1]}, "spec": 7}),
        ),
        (
            "/api/v1/namespaces/default/secrets",
            json!({"metadata": {"name": "x"}, "data": "oops", "stringData": {"a": "b"}}),
        ),
        (
            "/api/v1/nodes",
            json!({"metadata": {"name": "x", "finalizers": {"a": 1}}, "status": []}),
        ),
        (
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            json!({"metadata": {"name": "x"}, "spec": {"names": [], "versions": {}}}),
        ),
    ] {
        let status = server.post(path, &body).await.expect(400);
        assert_eq!(status["reason"], "BadRequest", "{body}");
    }
    let odd = json!({"metadata": {"name": "p", "labels": "oops", "annotations": 3}, "spec": "x"});
    server.post(POOLS, &odd).await.expect(422);
}

#[tokio::test]
async fn namespaces_keep_what_empties_them_and_the_first_ones_stay() {
    let server = start().await;
    for name in ["default", "kube-system", "kube-public"] {
        server
            .delete(&format!("/api/v1/namespaces/{name}"))
            .await
            .expect(403);
    }
    let bare = json!({"metadata": {"name": "x"}});
    server.post("/api/v1/namespaces", &bare).await.expect(201);
    let replaced = server.put("/api/v1/namespaces/x", &bare).await.expect(200);
    assert_eq!(replaced["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(replaced["status"]["phase"], "Active");
}
