use http::Method;
use serde_json::json;

use crate::harness::{CONFIG_MAPS, POOLS, config_map, pool, start};

#[tokio::test]
async fn json_patches_apply_as_a_whole() {
    let server = start().await;
    server
        .post(POOLS, &pool("p", "10.0.0.0/16"))
        .await
        .expect(201);
    let path = format!("{POOLS}/p");
    let kind = "application/json-patch+json";
    let patch = json!([{"op": "add", "path": "/spec/natOutgoing", "value": true}]);
    let patched = server
        .write(Method::PATCH, &path, kind, &patch)
        .await
        .expect(200);
    assert_eq!(patched["spec"]["natOutgoing"], true);
    let failing = json!([{"op": "remove", "path": "/spec/natOutgoing"},
        {"op": "test", "path": "/spec/cidr", "value": "x"}]);
    server
        .write(Method::PATCH, &path, kind, &failing)
        .await
        .expect(422);
    assert_eq!(
        server.get(&path).await.expect(200)["spec"]["natOutgoing"],
        true
    );
    server
        .write(Method::PATCH, &path, kind, &json!({"op": "add"}))
        .await
        .expect(400);
}

#[tokio::test]
async fn strategic_patches_are_for_core_kinds_only() {
    let server = start().await;
    let kind = "application/strategic-merge-patch+json";
    server
        .post(POOLS, &pool("p", "10.0.0.0/16"))
        .await
        .expect(201);
    let path = format!("{POOLS}/p");
    let answer = server
        .write(Method::PATCH, &path, kind, &json!({"spec": {}}))
        .await;
    assert_eq!(answer.expect(415)["reason"], "UnsupportedMediaType");
    let node = json!({"metadata": {"name": "n"}, "status": {"conditions": [
        {"type": "Ready", "status": "True"}]}});
    server.post("/api/v1/nodes", &node).await.expect(201);
    let patch =
        json!({"status": {"conditions": [{"type": "NetworkUnavailable", "status": "False"}]}});
    let patched = server
        .write(Method::PATCH, "/api/v1/nodes/n/status", kind, &patch)
        .await
        .expect(200);
    assert_eq!(patched["status"]["conditions"].as_array().unwrap().len(), 2);
    server
        .write(Method::PATCH, &path, "text/plain", &json!({}))
        .await
        .expect(415);
}

#[tokio::test]
async fn patches_by_many_at_once_all_count() {
    let server = start().await;
    server.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    let patches = (0..20).map(|i| {
        let data = json!({"data": {format!("k{i}"): "v"}});
        let (server, path) = (&server, &path);
        async move { server.merge(path, &data).await.expect(200) }
    });
    futures::future::join_all(patches).await;
    let all = server.get(&path).await.expect(200);
    assert_eq!(all["data"].as_object().unwrap().len(), 20);
}

#[tokio::test]
async fn a_patch_with_a_version_is_an_optimistic_lock() {
    let server = start().await;
    let made = server.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let path = format!("{CONFIG_MAPS}/a");
    server
        .merge(&path, &json!({"data": {"k": "v"}}))
        .await
        .expect(200);
    let version = &made["metadata"]["resourceVersion"];
    let stale = json!({"metadata": {"resourceVersion": version}, "data": {"k": "w"}});
    server.merge(&path, &stale).await.expect(409);
}

#[tokio::test]
async fn server_side_apply_creates_changes_and_prunes() {
    let server = start().await;
    let path = format!("{POOLS}/p?fieldManager=ada");
    let mut wanted = pool("p", "10.0.0.0/16");
    wanted["spec"]["natOutgoing"] = true.into();
    let made = server.apply(&path, &wanted).await.expect(201);
    assert_eq!(made["metadata"]["managedFields"][0]["operation"], "Apply");
    assert_eq!(made["spec"]["nodeSelector"], "all()");
    let again = server.apply(&path, &wanted).await.expect(200);
    assert_eq!(again, made, "the same configuration changes nothing");
    let less = server
        .apply(&path, &pool("p", "10.0.0.0/16"))
        .await
        .expect(200);
    assert!(less["spec"].get("natOutgoing").is_none());
    assert_eq!(less["metadata"]["generation"], 2);
    server
        .apply(&format!("{POOLS}/p"), &wanted)
        .await
        .expect(400);
    server
        .apply(&format!("{POOLS}/q?fieldManager=ada"), &wanted)
        .await
        .expect(400);
    server
        .merge(&format!("{POOLS}/p?force=true"), &json!({}))
        .await
        .expect(400);
}

#[tokio::test]
async fn appliers_conflict_over_values_and_force_takes_over() {
    let server = start().await;
    let mut wanted = pool("p", "10.0.0.0/16");
    wanted["spec"]["natOutgoing"] = true.into();
    server
        .apply(&format!("{POOLS}/p?fieldManager=ada"), &wanted)
        .await
        .expect(201);
    wanted["spec"]["natOutgoing"] = false.into();
    let bob = format!("{POOLS}/p?fieldManager=bob");
    let conflict = server.apply(&bob, &wanted).await.expect(409);
    let cause = &conflict["details"]["causes"][0];
    assert_eq!(cause["field"], ".spec.natOutgoing");
    assert_eq!(cause["reason"], "FieldManagerConflict");
    let forced = server
        .apply(&format!("{bob}&force=true"), &wanted)
        .await
        .expect(200);
    assert_eq!(forced["spec"]["natOutgoing"], false);
    // Sharing a value is no conflict.
    server
        .apply(&format!("{POOLS}/p?fieldManager=carol"), &wanted)
        .await
        .expect(200);
}

#[tokio::test]
async fn updates_take_fields_from_appliers() {
    let server = start().await;
    let mut wanted = pool("p", "10.0.0.0/16");
    wanted["spec"]["natOutgoing"] = true.into();
    let ada = format!("{POOLS}/p?fieldManager=ada");
    server.apply(&ada, &wanted).await.expect(201);
    let edit = json!({"spec": {"natOutgoing": false}});
    server
        .merge(&format!("{POOLS}/p?fieldManager=editor"), &edit)
        .await
        .expect(200);
    let conflict = server.apply(&ada, &wanted).await;
    assert!(
        conflict.message().contains("\"editor\""),
        "{}",
        conflict.message()
    );
    conflict.expect(409);
}

#[tokio::test]
async fn status_is_applied_by_its_own_owner() {
    let server = start().await;
    server
        .apply(
            &format!("{POOLS}/p?fieldManager=ada"),
            &pool("p", "10.0.0.0/16"),
        )
        .await
        .expect(201);
    let mut status = pool("p", "10.9.0.0/16");
    status["status"] = json!({"conditions": [{"type": "Allocatable", "status": "True",
        "reason": "OK", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let path = format!("{POOLS}/p/status?fieldManager=controller");
    let applied = server.apply(&path, &status).await.expect(200);
    assert_eq!(applied["spec"]["cidr"], "10.0.0.0/16");
    assert_eq!(applied["status"]["conditions"][0]["status"], "True");
    let owners = applied["metadata"]["managedFields"].as_array().unwrap();
    assert!(
        owners
            .iter()
            .any(|o| o["manager"] == "controller" && o["subresource"] == "status")
    );
    server
        .apply(&format!("{POOLS}/none/status?fieldManager=c"), &status)
        .await
        .expect(404);
}
