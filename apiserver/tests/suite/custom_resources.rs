use serde_json::{Value, json};

use crate::harness::start;

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.org/v1/namespaces/default/widgets";

fn widget_definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {
                    "type": "object", "properties": {
                        "size": {"type": "integer", "default": 3, "maximum": 10},
                        "color": {"type": "string"},
                        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                    "x-kubernetes-validations": [
                        {"rule": "!has(self.color) || self.color != 'red' || self.size < 5",
                            "message": "red widgets are small"}]}}}},
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]}]}})
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn a_definition_is_served_as_soon_as_it_is_accepted() {
    let server = start().await;
    server.get(WIDGETS).await.expect(404);
    let crd = server.post(CRDS, &widget_definition()).await.expect(201);
    let established = crd["status"]["conditions"].as_array().unwrap().iter();
    assert!(
        established
            .clone()
            .any(|c| c["type"] == "Established" && c["status"] == "True")
    );
    assert_eq!(crd["spec"]["names"]["listKind"], "WidgetList");
    assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
    let made = server
        .post(WIDGETS, &widget("w", json!({})))
        .await
        .expect(201);
    assert_eq!(made["spec"]["size"], 3);
    let list = server.get(WIDGETS).await.expect(200);
    assert_eq!(list["kind"], "WidgetList");
    let found = server
        .get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dred"))
        .await
        .expect(200);
    assert!(found["items"].as_array().unwrap().is_empty());
    let index = server.get("/openapi/v3").await.expect(200);
    assert!(index["paths"].get("apis/example.org/v1").is_some());
}

#[tokio::test]
async fn deleting_a_definition_deletes_its_objects() {
    let server = start().await;
    let path = format!("{CRDS}/widgets.example.org");
    server.post(CRDS, &widget_definition()).await.expect(201);
    server
        .post(WIDGETS, &widget("w", json!({})))
        .await
        .expect(201);
    let mut watch = server.watch(&format!("{WIDGETS}?watch=true")).await;
    assert_eq!(watch.next_short().await, ("ADDED".into(), "w".into()));
    server.delete(&path).await.expect(200);
    assert_eq!(watch.next_short().await, ("DELETED".into(), "w".into()));
    assert!(watch.next().await.is_none(), "a watch of nothing ends");
    server.get(WIDGETS).await.expect(404);
    server.post(CRDS, &widget_definition()).await.expect(201);
    let list = server.get(WIDGETS).await.expect(200);
    assert!(list["items"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn bad_definitions_are_refused_by_field() {
    let server = start().await;
    let mut misnamed = widget_definition();
    misnamed["metadata"]["name"] = "gadgets.example.org".into();
    let answer = server.post(CRDS, &misnamed).await.expect(422);
    assert_eq!(answer["details"]["causes"][0]["field"], "metadata.name");
    let mut storeless = widget_definition();
    storeless["spec"]["versions"][0]["storage"] = false.into();
    let answer = server.post(CRDS, &storeless).await.expect(422);
    assert_eq!(answer["details"]["causes"][0]["field"], "spec.versions");
    server.post(CRDS, &widget_definition()).await.expect(201);
    let path = format!("{CRDS}/widgets.example.org");
    let patch = json!({"spec": {"scope": "Cluster"}});
    let answer = server.merge(&path, &patch).await.expect(422);
    assert_eq!(answer["details"]["causes"][0]["field"], "spec.scope");
}

#[tokio::test]
async fn unknown_fields_are_refused_warned_about_or_dropped() {
    let server = start().await;
    server.post(CRDS, &widget_definition()).await.expect(201);
    let odd = widget("w", json!({"colour": "red", "free": {"any": "thing"}}));
    let strict = server
        .post(&format!("{WIDGETS}?fieldValidation=Strict"), &odd)
        .await;
    assert!(
        strict
            .message()
            .ends_with(r#"strict decoding error: unknown field "spec.colour""#),
        "{}",
        strict.message()
    );
    assert_eq!(strict.expect(400)["reason"], "BadRequest");
    let warned = server
        .post(&format!("{WIDGETS}?fieldValidation=Warn"), &odd)
        .await;
    let warning = warned.headers["warning"].to_str().unwrap().to_owned();
    assert_eq!(warning, r#"299 - "unknown field \"spec.colour\"""#);
    let made = warned.expect(201);
    assert!(made["spec"].get("colour").is_none());
    assert_eq!(made["spec"]["free"]["any"], "thing");
    let mut other = odd.clone();
    other["metadata"]["name"] = "x".into();
    let ignored = server
        .post(&format!("{WIDGETS}?fieldValidation=Ignore"), &other)
        .await;
    assert!(!ignored.headers.contains_key("warning"));
    ignored.expect(201);
}

#[tokio::test]
async fn schema_and_cel_violations_name_field_and_value() {
    let server = start().await;
    server.post(CRDS, &widget_definition()).await.expect(201);
    let large = server
        .post(WIDGETS, &widget("w", json!({"size": 11})))
        .await;
    assert_eq!(
        large.message(),
        "Widget.example.org \"w\" is invalid: spec.size: Invalid value: 11: should be less than or equal to 10"
    );
    let status = large.expect(422);
    assert_eq!(status["details"]["kind"], "Widget");
    let red = widget("w", json!({"size": 7, "color": "red"}));
    let answer = server.post(WIDGETS, &red).await;
    assert!(
        answer
            .message()
            .contains("spec: Invalid value: object: red widgets are small")
    );
    answer.expect(422);
    let typed = server
        .post(WIDGETS, &widget("w", json!({"size": "big"})))
        .await
        .expect(422);
    assert_eq!(typed["details"]["causes"][0]["field"], "spec.size");
}

#[tokio::test]
async fn a_changed_schema_holds_for_the_next_write() {
    let server = start().await;
    server.post(CRDS, &widget_definition()).await.expect(201);
    let mut crd = server
        .get(&format!("{CRDS}/widgets.example.org"))
        .await
        .expect(200);
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]
        ["maximum"] = 2.into();
    let changed = server
        .put(&format!("{CRDS}/widgets.example.org"), &crd)
        .await
        .expect(200);
    assert_eq!(changed["metadata"]["generation"], 2);
    server
        .post(WIDGETS, &widget("w", json!({"size": 3})))
        .await
        .expect(422);
}

#[tokio::test]
async fn several_versions_show_the_same_object() {
    let server = start().await;
    let mut crd = widget_definition();
    let mut beta = crd["spec"]["versions"][0].clone();
    beta["name"] = "v1beta1".into();
    beta["storage"] = false.into();
    crd["spec"]["versions"].as_array_mut().unwrap().push(beta);
    server.post(CRDS, &crd).await.expect(201);
    let old = "/apis/example.org/v1beta1/namespaces/default/widgets";
    let mut wanted = widget("w", json!({"size": 4}));
    wanted["apiVersion"] = "example.org/v1beta1".into();
    let made = server.post(old, &wanted).await.expect(201);
    assert_eq!(made["apiVersion"], "example.org/v1beta1");
    let shown = server.get(&format!("{WIDGETS}/w")).await.expect(200);
    assert_eq!(
        (&shown["apiVersion"], &shown["spec"]["size"]),
        (&"example.org/v1".into(), &4.into())
    );
    let listed = server.get(old).await.expect(200);
    assert_eq!(listed["items"][0]["apiVersion"], "example.org/v1beta1");
}
