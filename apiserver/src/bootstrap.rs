//! What exists from the first start on: the four namespaces of every cluster and the shipped CRDs.

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::admission::policies::{BINDINGS, POLICIES};
use crate::http::App;
use crate::resource::core::{CRDS, NAMESPACES};
use crate::resource::crd;
use crate::store::{Expect, Key, Write, WriteError};

/// Annotation with the digest of the manifest a shipped CRD was made from: an unchanged one is left alone, a changed
/// one is replaced, one without the annotation belongs to somebody else.
const DIGEST: &str = "margay.io/manifest-sha256";

/// Prepares the store and publishes the catalog.
pub(crate) async fn run(app: &App, crds: &[(&str, &str)], policies: &[&str]) -> Result<(), String> {
    let now = crate::admission::now();
    let mut writes = Vec::new();
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let key = Key::new(NAMESPACES, "", name);
        if app.store.get(&key).is_none() {
            let object = namespace(name, &now);
            writes.push(Write::new(key, Expect::Absent, Some(object)));
        }
    }
    let (stored, _) = app.store.list(CRDS, None);
    let known = |digest: &str| {
        stored
            .iter()
            .any(|s| s.object["metadata"]["annotations"][DIGEST] == digest)
    };
    for (file, yaml) in crds {
        let digest: String = Sha256::digest(yaml.as_bytes())
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        if known(&digest) {
            continue;
        }
        let parsed: Value =
            serde_saphyr::from_str(yaml).map_err(|e| format!("shipped CRD {file}: {e}"))?;
        writes.extend(definition(app, parsed, &digest, &now));
    }
    for yaml in policies {
        for document in yaml.split("\n---\n") {
            writes.extend(policy(app, document, &now)?);
        }
    }
    // One group: one fsync.
    let results = futures::future::join_all(writes.into_iter().map(|w| app.store.write(w))).await;
    for result in results {
        match result {
            Ok(_) | Err(WriteError::Exists | WriteError::Changed) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    app.refresh_catalog();
    Ok(())
}

/// A shipped policy or binding, unless one of that name exists: the operator may have changed it.
fn policy(app: &App, yaml: &str, now: &str) -> Result<Option<Write>, String> {
    let mut object: Value =
        serde_saphyr::from_str(yaml).map_err(|e| format!("shipped policy: {e}"))?;
    let storage = match object["kind"].as_str() {
        Some("ValidatingAdmissionPolicy") => POLICIES,
        Some("ValidatingAdmissionPolicyBinding") => BINDINGS,
        other => return Err(format!("shipped policy: unexpected kind {other:?}")),
    };
    let key = Key::new(
        storage,
        "",
        object["metadata"]["name"].as_str().unwrap_or_default(),
    );
    if app.store.get(&key).is_some() {
        return Ok(None);
    }
    object["metadata"]["uid"] = uuid::Uuid::new_v4().to_string().into();
    object["metadata"]["creationTimestamp"] = now.into();
    object["metadata"]["generation"] = 1.into();
    Ok(Some(Write::new(key, Expect::Absent, Some(object))))
}

fn namespace(name: &str, now: &str) -> Value {
    json!({
        "kind": "Namespace",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "uid": uuid::Uuid::new_v4().to_string(),
            "creationTimestamp": now,
            "labels": {"kubernetes.io/metadata.name": name},
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    })
}

fn definition(app: &App, mut object: Value, digest: &str, now: &str) -> Option<Write> {
    let name = object["metadata"]["name"].as_str()?.to_owned();
    let key = Key::new(CRDS, "", &name);
    let expect = match app.store.get(&key) {
        None => {
            let metadata = object["metadata"].as_object_mut()?;
            metadata.insert("uid".into(), uuid::Uuid::new_v4().to_string().into());
            metadata.insert("creationTimestamp".into(), now.into());
            metadata.insert("generation".into(), 1.into());
            Expect::Absent
        }
        Some(stored) => {
            let old = &stored.object;
            if old["metadata"]["annotations"][DIGEST].is_null() {
                return None;
            }
            let mut next = old.clone();
            next["spec"] = object["spec"].take();
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            next["metadata"]["generation"] = generation.into();
            object = next;
            Expect::Revision(stored.revision)
        }
    };
    object["metadata"]["annotations"][DIGEST] = digest.into();
    crd::establish(&mut object, now);
    Some(Write::new(key, expect, Some(object)))
}
