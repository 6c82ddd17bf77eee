//! kube-rs as the agents use it.

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::watcher::{self, Event as WatchEvent};
use kube::runtime::{reflector, watcher as watch};
use margay_crds::IPPool;
use serde_json::json;

use crate::harness::{CONFIG_MAPS, PATIENCE, config_map, pool, start};

#[tokio::test]
async fn typed_objects_round_trip() {
    let server = start().await;
    let pools: Api<IPPool> = Api::all(server.client.clone());
    let wanted: IPPool = serde_json::from_value(pool("p", "10.0.0.0/16")).unwrap();
    let made = pools.create(&PostParams::default(), &wanted).await.unwrap();
    let mut changed = made.clone();
    changed.spec.nat_outgoing = true.into();
    let replaced = pools
        .replace("p", &PostParams::default(), &changed)
        .await
        .unwrap();
    assert_ne!(
        replaced.metadata.resource_version,
        made.metadata.resource_version
    );
    let stale = pools
        .replace("p", &PostParams::default(), &changed)
        .await
        .unwrap_err();
    assert!(matches!(stale, kube::Error::Api(s) if s.code == 409));
    let params = PatchParams::apply("agent").force();
    let applied = pools
        .patch("p", &params, &Patch::Apply(pool("p", "10.0.0.0/16")))
        .await
        .unwrap();
    assert!(applied.metadata.managed_fields.is_some());
    let precise = DeleteParams::default().preconditions(kube::api::Preconditions {
        uid: made.metadata.uid,
        ..Default::default()
    });
    pools.delete("p", &precise).await.unwrap();
    assert!(pools.get_opt("p").await.unwrap().is_none());
    assert!(
        pools
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
}

#[tokio::test]
async fn reflectors_follow_with_both_list_strategies() {
    let server = start().await;
    server.post(CONFIG_MAPS, &config_map("a")).await.expect(201);
    for config in [
        watcher::Config::default().page_size(1),
        watcher::Config::default().streaming_lists(),
    ] {
        let maps: Api<ConfigMap> = Api::namespaced(server.client.clone(), "default");
        let (store, writer) = reflector::store();
        let mut events = reflector(writer, watch::watcher(maps, config)).boxed();
        let follow = async {
            loop {
                match events.next().await.unwrap().unwrap() {
                    WatchEvent::InitDone => {
                        server.post(CONFIG_MAPS, &config_map("b")).await.expect(201);
                    }
                    WatchEvent::Apply(map) if map.metadata.name.as_deref() == Some("b") => break,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, follow).await.unwrap();
        assert_eq!(store.state().len(), 2);
        server.delete(&format!("{CONFIG_MAPS}/b")).await.expect(200);
    }
}

#[tokio::test]
async fn a_recorder_publishes_events() {
    let server = start().await;
    let reporter = Reporter {
        controller: "margay-node".into(),
        instance: Some("n1".into()),
    };
    let recorder = Recorder::new(server.client.clone(), reporter);
    let about = ObjectReference {
        api_version: Some("projectcalico.org/v3".into()),
        kind: Some("IPPool".into()),
        name: Some("p".into()),
        ..ObjectReference::default()
    };
    let event = Event {
        type_: EventType::Warning,
        reason: "KernelModuleMissing".into(),
        note: Some("ipip".into()),
        action: "Reconcile".into(),
        secondary: None,
    };
    for _ in 0..2 {
        recorder.publish(&event, &about).await.unwrap();
    }
    let list = server
        .get("/api/v1/events?fieldSelector=involvedObject.name%3Dp")
        .await
        .expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    assert_eq!(list["items"][0]["message"], json!("ipip"));
}
