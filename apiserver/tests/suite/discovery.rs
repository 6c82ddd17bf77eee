use serde_json::Value;

use crate::harness::start;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn aggregated_discovery_has_the_exact_content_type() {
    let server = start().await;
    for path in ["/api", "/apis"] {
        let answer = server
            .get_as(path, &format!("{AGGREGATED},application/json"))
            .await;
        assert_eq!(answer.headers["content-type"], AGGREGATED);
        let body = answer.expect(200);
        assert_eq!(body["kind"], "APIGroupDiscoveryList");
        assert_eq!(body["apiVersion"], "apidiscovery.k8s.io/v2");
    }
    let groups = server.get_as("/apis", AGGREGATED).await.expect(200);
    let mut items = groups["items"].as_array().unwrap().iter();
    let calico = items
        .find(|g| g["metadata"]["name"] == "projectcalico.org")
        .unwrap();
    let resources = calico["versions"][0]["resources"].as_array().unwrap();
    let pools = resources
        .iter()
        .find(|r| r["resource"] == "ippools")
        .unwrap();
    assert_eq!(pools["scope"], "Cluster");
    assert_eq!(pools["responseKind"]["kind"], "IPPool");
    assert_eq!(pools["subresources"][0]["subresource"], "status");
}

#[tokio::test]
async fn legacy_discovery_lists_groups_versions_and_resources() {
    let server = start().await;
    let api = server.get("/api").await.expect(200);
    assert_eq!(api["versions"][0], "v1");
    let apis = server.get("/apis").await.expect(200);
    assert!(
        apis["groups"]
            .as_array()
            .unwrap()
            .iter()
            .any(|g| g["name"] == "projectcalico.org")
    );
    let group = server.get("/apis/projectcalico.org").await.expect(200);
    assert_eq!(
        group["preferredVersion"]["groupVersion"],
        "projectcalico.org/v3"
    );
    let list = server.get("/apis/projectcalico.org/v3").await.expect(200);
    let names: Vec<_> = list["resources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"ippools") && names.contains(&"ippools/status"),
        "{names:?}"
    );
    let core = server.get("/api/v1").await.expect(200);
    for plural in [
        "namespaces",
        "nodes",
        "pods",
        "services",
        "secrets",
        "configmaps",
        "events",
    ] {
        assert!(
            core["resources"]
                .as_array()
                .unwrap()
                .iter()
                .any(|r| r["name"] == plural)
        );
    }
    server.get("/apis/nonsense.org").await.expect(404);
    let version = server.get("/version").await.expect(200);
    assert_eq!(
        (&version["major"], &version["minor"]),
        (&"1".into(), &"37".into())
    );
}

#[tokio::test]
async fn every_openapi_document_is_complete() {
    let server = start().await;
    let index = server.get("/openapi/v3").await.expect(200);
    let paths = index["paths"].as_object().unwrap();
    assert!(paths.contains_key("api/v1") && paths.contains_key("apis/projectcalico.org/v3"));
    for entry in paths.values() {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        assert!(url.contains("?hash="), "{url}");
        let document = server.get(url).await.expect(200);
        let known = &document["components"]["schemas"];
        let mut references = Vec::new();
        collect_references(&document, &mut references);
        for reference in references {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(known.get(name).is_some(), "{url}: {name}");
        }
    }
    let document = server
        .get("/openapi/v3/apis/projectcalico.org/v3")
        .await
        .expect(200);
    let pool = &document["components"]["schemas"]["org.projectcalico.v3.IPPool"];
    assert_eq!(pool["x-kubernetes-group-version-kind"][0]["kind"], "IPPool");
    let patch = &document["paths"]["/apis/projectcalico.org/v3/ippools/{name}"]["patch"];
    let parameters: Vec<_> = patch["parameters"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| p["name"].clone())
        .collect();
    assert!(
        parameters.contains(&"dryRun".into()) && parameters.contains(&"fieldValidation".into())
    );
}

fn collect_references(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                references.push(reference.clone());
            }
            map.values().for_each(|v| collect_references(v, references));
        }
        Value::Array(list) => list.iter().for_each(|v| collect_references(v, references)),
        _ => {}
    }
}

#[tokio::test]
async fn openapi_v2_is_served_as_json_only() {
    let server = start().await;
    let document = server.get("/openapi/v2").await.expect(200);
    assert_eq!(document["swagger"], "2.0");
    assert!(document["definitions"]["org.projectcalico.v3.IPPool"].is_object());
    let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
    server.get_as("/openapi/v2", protobuf).await.expect(406);
}
