use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{CONFIG_MAPS, config_map, start, start_with};

#[tokio::test]
async fn a_watch_continues_where_a_list_ended() {
    let server = start().await;
    server.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    let list = server.get(CONFIG_MAPS).await.expect(200);
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let mut watch = server
        .watch(&format!(
            "{CONFIG_MAPS}?watch=true&resourceVersion={version}"
        ))
        .await;
    server.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    server
        .merge(&format!("{CONFIG_MAPS}/a"), &json!({"data": {"k": "v"}}))
        .await
        .expect(200);
    server
        .post(
            "/api/v1/namespaces/kube-system/configmaps",
            &config_map("x"),
        )
        .await
        .expect(201);
    server.delete(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    assert_eq!(watch.next_short().await, ("ADDED".into(), "b".into()));
    let modified = watch.next().await.unwrap();
    assert_eq!(modified["object"]["data"]["k"], "v");
    let deleted = watch.next().await.unwrap();
    assert_eq!(deleted["type"], "DELETED");
    let number = |e: &serde_json::Value| {
        e["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert!(
        number(&deleted) > number(&modified),
        "a removal has a revision of its own"
    );
}

#[tokio::test]
async fn a_streamed_list_ends_with_the_marked_bookmark() {
    let server = start().await;
    server.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    server.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(watch.next_short().await, ("ADDED".into(), "a".into()));
    assert_eq!(watch.next_short().await, ("ADDED".into(), "b".into()));
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    assert_eq!(
        bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    server.delete(&format!("{CONFIG_MAPS}/a")).await.expect(200);
    assert_eq!(watch.next_short().await, ("DELETED".into(), "a".into()));
    let query = "watch=true&sendInitialEvents=true";
    server
        .get(&format!("{CONFIG_MAPS}?{query}"))
        .await
        .expect(400);
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let server = start().await;
    let mut watch = server
        .watch(&format!("{CONFIG_MAPS}?watch=true&labelSelector=on"))
        .await;
    let path = format!("{CONFIG_MAPS}/a");
    server.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    server
        .merge(&path, &json!({"metadata": {"labels": {"on": "1"}}}))
        .await
        .expect(200);
    server
        .merge(&path, &json!({"data": {"k": "v"}}))
        .await
        .expect(200);
    server
        .merge(&path, &json!({"metadata": {"labels": {"on": null}}}))
        .await
        .expect(200);
    server
        .merge(&path, &json!({"data": {"k": "w"}}))
        .await
        .expect(200);
    server
        .merge(&path, &json!({"metadata": {"labels": {"on": "1"}}}))
        .await
        .expect(200);
    server.delete(&path).await.expect(200);
    for kind in ["ADDED", "MODIFIED", "DELETED", "ADDED", "DELETED"] {
        assert_eq!(watch.next_short().await.0, kind);
    }
}

#[tokio::test]
async fn a_watch_from_too_long_ago_is_gone() {
    let server = start_with(|c| c.history = 5).await;
    let old = server.get(CONFIG_MAPS).await.expect(200);
    let old = old["metadata"]["resourceVersion"].as_str().unwrap();
    for i in 0..10 {
        server
            .post(CONFIG_MAPS, &config_map(&format!("m{i}")))
            .await
            .expect(201);
    }
    let answer = server
        .get(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={old}"))
        .await;
    assert_eq!(answer.message(), format!("too old resource version: {old}"));
    assert_eq!(answer.expect(410)["reason"], "Expired");
    // A revision this store never had.
    server
        .get(&format!(
            "{CONFIG_MAPS}?watch=true&resourceVersion=123456789"
        ))
        .await
        .expect(410);
}

#[tokio::test]
async fn a_slow_watcher_is_cut_with_an_error_event() {
    let server = start_with(|c| c.history = 20).await;
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    // More than socket buffers and flow-control windows hold, while the client reads nothing.
    let big = "x".repeat(900_000);
    for i in 0..60 {
        let mut map = config_map(&format!("m{i}"));
        map["data"] = json!({"big": big});
        server.post(CONFIG_MAPS, &map).await.expect(201);
    }
    let mut last = json!(null);
    while let Some(event) = watch.next().await {
        last = event;
    }
    assert_eq!(
        (&last["type"], &last["object"]["code"]),
        (&"ERROR".into(), &410.into())
    );
}

#[tokio::test]
async fn a_watch_ends_after_its_timeout() {
    let server = start().await;
    let started = Instant::now();
    let query = "watch=true&timeoutSeconds=1&allowWatchBookmarks=true";
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?{query}")).await;
    assert_eq!(watch.next().await.unwrap()["type"], "BOOKMARK");
    assert!(watch.next().await.is_none());
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_table_watch_sends_columns_once_and_one_row_per_event() {
    let server = start().await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let mut watch = server
        .watch_as(&format!("{CONFIG_MAPS}?watch=true"), accept)
        .await;
    server.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    server.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
    let first = watch.next().await.unwrap()["object"].take();
    let second = watch.next().await.unwrap()["object"].take();
    assert_eq!(first["columnDefinitions"].as_array().unwrap().len(), 3);
    assert!(second["columnDefinitions"].as_array().unwrap().is_empty());
    assert_eq!(second["rows"][0]["cells"][0], "b");
}

#[tokio::test]
async fn one_change_reaches_many_watchers() {
    let server = start().await;
    let mut watches = Vec::new();
    for _ in 0..200 {
        watches.push(server.watch(&format!("{CONFIG_MAPS}?watch=true")).await);
    }
    server.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    for watch in &mut watches {
        assert_eq!(watch.next_short().await, ("ADDED".into(), "a".into()));
    }
}

#[tokio::test]
async fn stopping_takes_less_than_a_second_with_open_watches() {
    let server = start().await;
    let mut watch = server.watch(&format!("{CONFIG_MAPS}?watch=true")).await;
    let started = Instant::now();
    server.server.stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert!(watch.next().await.is_none());
}
