use serde_json::json;

use crate::harness::{CONFIG_MAPS, POOLS, TestServer, config_map, pool, start};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

async fn fill(server: &TestServer, count: usize) {
    for i in 0..count {
        let mut map = config_map(&format!("m{i:02}"));
        map["metadata"]["labels"] = json!({"odd": (i % 2 == 1).to_string()});
        server.post(CONFIG_MAPS, &map).await.expect(201);
    }
}

fn names(list: &serde_json::Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap().iter();
    items
        .map(|o| o["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn pages_show_the_list_as_it_was_at_the_first_page() {
    let server = start().await;
    fill(&server, 7).await;
    let first = server
        .get(&format!("{CONFIG_MAPS}?limit=3"))
        .await
        .expect(200);
    assert_eq!(names(&first), ["m00", "m01", "m02"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 4);
    server
        .delete(&format!("{CONFIG_MAPS}/m05"))
        .await
        .expect(200);
    server
        .post(CONFIG_MAPS, &config_map("m03a"))
        .await
        .expect(201);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = server
        .get(&format!("{CONFIG_MAPS}?limit=3&continue={token}"))
        .await
        .expect(200);
    assert_eq!(names(&second), ["m03", "m04", "m05"]);
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = server
        .get(&format!("{CONFIG_MAPS}?limit=3&continue={token}"))
        .await
        .expect(200);
    assert_eq!(names(&third), ["m06"]);
    assert!(third["metadata"].get("continue").is_none());
    server
        .get(&format!("{CONFIG_MAPS}?continue=bm9uc2Vuc2U"))
        .await
        .expect(400);
    // A page of another list.
    server
        .get(&format!("/api/v1/configmaps?continue={token}"))
        .await
        .expect(400);
}

#[tokio::test]
async fn a_forgotten_page_is_expired() {
    let server = start().await;
    fill(&server, 2).await;
    let first = server
        .get(&format!("{CONFIG_MAPS}?limit=1"))
        .await
        .expect(200);
    for _ in 0..200 {
        server
            .get(&format!("{CONFIG_MAPS}?limit=1"))
            .await
            .expect(200);
    }
    let token = first["metadata"]["continue"].as_str().unwrap();
    let late = server
        .get(&format!("{CONFIG_MAPS}?limit=1&continue={token}"))
        .await
        .expect(410);
    assert_eq!(late["reason"], "Expired");
}

#[tokio::test]
async fn selectors_narrow_lists() {
    let server = start().await;
    fill(&server, 4).await;
    let odd = server
        .get(&format!("{CONFIG_MAPS}?labelSelector=odd%3Dtrue"))
        .await
        .expect(200);
    assert_eq!(names(&odd), ["m01", "m03"]);
    let set = server
        .get(&format!("{CONFIG_MAPS}?labelSelector=odd+in+(true,x),!z"))
        .await
        .expect(200);
    assert_eq!(names(&set), ["m01", "m03"]);
    let one = server
        .get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dm02"))
        .await
        .expect(200);
    assert_eq!(names(&one), ["m02"]);
    server
        .get(&format!("{CONFIG_MAPS}?labelSelector=a+b"))
        .await
        .expect(400);
    let unknown = server
        .get(&format!("{CONFIG_MAPS}?fieldSelector=data.x%3D1"))
        .await;
    assert_eq!(unknown.message(), "field label not supported: data.x");
}

#[tokio::test]
async fn resource_versions_of_lists() {
    let server = start().await;
    fill(&server, 1).await;
    let list = server.get(CONFIG_MAPS).await.expect(200);
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    for query in [
        "resourceVersion=0".to_owned(),
        format!("resourceVersion={version}"),
        format!("resourceVersion={version}&resourceVersionMatch=Exact"),
        format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
    ] {
        server
            .get(&format!("{CONFIG_MAPS}?{query}"))
            .await
            .expect(200);
    }
    server
        .get(&format!("{CONFIG_MAPS}?resourceVersion=abc"))
        .await
        .expect(400);
    server
        .get(&format!("{CONFIG_MAPS}?resourceVersion=99999999"))
        .await
        .expect(410);
    server
        .post(CONFIG_MAPS, &config_map("later"))
        .await
        .expect(201);
    let exact = format!("{CONFIG_MAPS}?resourceVersion={version}&resourceVersionMatch=Exact");
    server.get(&exact).await.expect(410);
}

#[tokio::test]
async fn tables_have_the_crds_columns_and_human_ages() {
    let server = start().await;
    server
        .post(POOLS, &pool("p", "10.0.0.0/16"))
        .await
        .expect(201);
    let table = server.get_as(POOLS, TABLE).await.expect(200);
    assert_eq!(table["kind"], "Table");
    let columns: Vec<_> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns.first(), Some(&"Name"));
    assert!(columns.contains(&"CIDR"), "{columns:?}");
    let at = columns.iter().position(|c| *c == "CIDR").unwrap();
    let row = &table["rows"][0];
    assert_eq!(row["cells"][at], "10.0.0.0/16");
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    assert!(row["object"].get("spec").is_none());
    let age = row["cells"][columns.iter().position(|c| *c == "Age").unwrap()]
        .as_str()
        .unwrap();
    assert!(age.ends_with('s'), "{age}");
    let whole = server
        .get_as(&format!("{POOLS}?includeObject=Object"), TABLE)
        .await
        .expect(200);
    assert_eq!(whole["rows"][0]["object"]["spec"]["cidr"], "10.0.0.0/16");
    let one = server
        .get_as(&format!("{POOLS}/p"), TABLE)
        .await
        .expect(200);
    assert_eq!(one["rows"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn metadata_only_lists() {
    let server = start().await;
    fill(&server, 1).await;
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = server.get_as(CONFIG_MAPS, accept).await.expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert_eq!(list["items"][0]["metadata"]["name"], "m00");
}
