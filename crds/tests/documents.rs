//! Properties every shipped document must have.

use margay_crds::{generate, manifests};
use serde_json::Value;

fn documents() -> Vec<(&'static str, Value)> {
    manifests::ALL
        .iter()
        .map(|(file, text)| {
            (
                *file,
                serde_saphyr::from_str(text).expect("the document is YAML"),
            )
        })
        .collect()
}

/// Calls `visit` with every schema of a document and its path.
fn walk(schema: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &format!("{path}.{name}"), visit);
    }
    if schema["items"].is_object() {
        walk(&schema["items"], &format!("{path}[]"), visit);
    }
    if schema["additionalProperties"].is_object() {
        walk(&schema["additionalProperties"], &format!("{path}.*"), visit);
    }
}

fn for_each_schema(visit: &mut dyn FnMut(&str, &Value)) {
    for (file, document) in documents() {
        walk(
            &document["spec"]["versions"][0]["schema"]["openAPIV3Schema"],
            file,
            visit,
        );
    }
}

#[test]
fn documents_are_up_to_date() {
    let made = generate::manifests().expect("the documents can be made");
    let shipped: Vec<_> = manifests::ALL
        .iter()
        .map(|(file, text)| (file.to_string(), text.to_string()))
        .collect();
    let made: Vec<_> = made
        .into_iter()
        .map(|manifest| (manifest.file, manifest.yaml))
        .collect();
    assert_eq!(
        made.iter().map(|(file, _)| file).collect::<Vec<_>>(),
        shipped.iter().map(|(file, _)| file).collect::<Vec<_>>(),
    );
    for ((file, made), (_, shipped)) in made.iter().zip(&shipped) {
        assert!(
            made == shipped,
            "{file} is out of date: run cargo run -p margay-crds --bin margay-crd-gen"
        );
    }
}

#[test]
fn every_kind_is_there_with_its_names() {
    let expected = "bgpconfigurations bgpfilters bgppeers blockaffinities caliconodestatuses clusterinformations \
        felixconfigurations globalnetworkpolicies globalnetworksets hostendpoints ipamblocks ipamconfigurations \
        ipamhandles ippools ipreservations kubecontrollersconfigurations networkpolicies networksets nodereports \
        stagedglobalnetworkpolicies stagedkubernetesnetworkpolicies stagednetworkpolicies tiers";
    let mut plurals: Vec<String> = documents()
        .iter()
        .map(|(_, document)| {
            document["spec"]["names"]["plural"]
                .as_str()
                .expect("has a plural")
                .to_owned()
        })
        .collect();
    plurals.sort();
    assert_eq!(
        plurals.join(" "),
        expected.split_whitespace().collect::<Vec<_>>().join(" ")
    );
    let short = |plural: &str| {
        let document: Value = serde_saphyr::from_str(manifests::by_plural(plural).expect("known"))
            .expect("the document is YAML");
        let names = document["spec"]["names"]["shortNames"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        names
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(short("bgpconfigurations"), ["bgpconfig", "bgpconfigs"]);
    assert_eq!(short("blockaffinities"), ["affinity", "affinities"]);
    assert_eq!(
        short("networkpolicies"),
        ["cnp", "caliconetworkpolicy", "caliconetworkpolicies"]
    );
    assert_eq!(short("globalnetworkpolicies"), ["gnp", "cgnp"]);
    assert_eq!(short("hostendpoints"), ["hep", "heps"]);
    assert_eq!(
        short("kubecontrollersconfigurations"),
        ["kcc", "kccs", "kcconfig"]
    );
    assert_eq!(short("nodereports"), ["nrep"]);
    assert!(short("ippools").is_empty());
}

#[test]
fn scope_and_status_subresource_are_those_of_the_kind() {
    for (file, document) in documents() {
        let kind = document["spec"]["names"]["kind"]
            .as_str()
            .expect("has a kind");
        let namespaced = [
            "NetworkPolicy",
            "NetworkSet",
            "StagedNetworkPolicy",
            "StagedKubernetesNetworkPolicy",
        ]
        .contains(&kind);
        assert_eq!(
            document["spec"]["scope"],
            if namespaced { "Namespaced" } else { "Cluster" },
            "{file}"
        );
        let status = [
            "CalicoNodeStatus",
            "IPPool",
            "KubeControllersConfiguration",
            "NodeReport",
            "Tier",
        ]
        .contains(&kind);
        assert_eq!(
            document["spec"]["versions"][0]["subresources"]["status"].is_object(),
            status,
            "{file}"
        );
    }
}

#[test]
fn schemas_are_structural() {
    for_each_schema(&mut |path, schema| {
        let int_or_string = schema["x-kubernetes-int-or-string"] == true;
        assert!(
            schema["type"].is_string() != int_or_string,
            "{path} has no type"
        );
        for key in [
            "$ref",
            "oneOf",
            "allOf",
            "title",
            "$schema",
            "x-keep-nullable-items",
        ] {
            assert!(schema.get(key).is_none(), "{path} has {key}");
        }
        assert!(
            schema.get("anyOf").is_none() || int_or_string,
            "{path} has anyOf"
        );
        if schema["type"] == "array" {
            assert!(schema["items"].is_object(), "{path} has no items");
        }
        assert!(
            schema.get("properties").is_none() || schema.get("additionalProperties").is_none(),
            "{path} has properties and additionalProperties"
        );
        assert!(
            !schema["enum"]
                .as_array()
                .is_some_and(|values| values.contains(&Value::Null)),
            "{path}"
        );
        if schema.get("nullable").is_some() {
            let known = path.ends_with(".allocations[]") || path.ends_with(".lastUpdated");
            assert!(known, "{path} is nullable");
        }
        if schema["x-kubernetes-list-type"] == "map" {
            for key in schema["x-kubernetes-list-map-keys"]
                .as_array()
                .expect("a map has keys")
            {
                let required = schema["items"]["required"]
                    .as_array()
                    .expect("keys are required");
                assert!(required.contains(key), "{path}: {key} is not required");
            }
        }
    });
}

#[test]
fn every_field_is_described() {
    for_each_schema(&mut |path, schema| {
        let known = path.ends_with(".metadata") || path.ends_with(']') || path.ends_with('*');
        assert!(
            known
                || schema["description"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty()),
            "{path}"
        );
    });
}

#[test]
fn as_numbers_reach_over_the_whole_range_without_a_narrow_format() {
    let mut seen = 0;
    for_each_schema(&mut |path, schema| {
        let name = path
            .trim_end_matches("[]")
            .rsplit('.')
            .next()
            .unwrap_or_default();
        if schema["type"] == "integer"
            && ["asNumber", "localASNumber", "asPathPrefix", "prefix"].contains(&name)
        {
            assert_eq!(schema["maximum"], 4_294_967_295_u64, "{path}");
            assert_eq!(schema["minimum"], 0, "{path}");
            seen += 1;
        }
        assert_ne!(schema["format"], "int32", "{path}");
    });
    assert!(seen >= 8, "only {seen} AS numbers found");
}

#[test]
fn every_rule_compiles_and_names_a_known_field() {
    let mut rules = 0;
    for (file, document) in documents() {
        let schema = &document["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        walk(schema, file, &mut |path, schema| {
            for rule in schema["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten()
            {
                rules += 1;
                let compiled = kube_cel::compile_schema(schema);
                assert!(
                    !compiled.has_errors(),
                    "{path}: {:?}",
                    compiled.compilation_errors()
                );
                assert!(
                    rule["message"]
                        .as_str()
                        .is_some_and(|text| !text.is_empty()),
                    "{path}: {rule}"
                );
                let reason = rule["reason"].as_str().expect("a rule has a reason");
                assert!(
                    [
                        "FieldValueInvalid",
                        "FieldValueForbidden",
                        "FieldValueRequired"
                    ]
                    .contains(&reason),
                    "{path}: {reason}"
                );
                if let Some(field) = rule["fieldPath"].as_str() {
                    let known = field
                        .trim_start_matches('.')
                        .split('.')
                        .try_fold(schema, |schema, name| schema["properties"].get(name));
                    assert!(known.is_some(), "{path}: no field {field}");
                }
            }
        });
    }
    assert!(rules >= 100, "only {rules} rules found");
}

#[test]
fn lists_and_texts_of_specs_with_rules_are_bounded() {
    // Without bounds the API server estimates a rule that reaches a value as too expensive and refuses the document.
    for (file, document) in documents() {
        let spec =
            &document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let mut has_rules = false;
        walk(spec, file, &mut |_, schema| {
            has_rules |= schema.get("x-kubernetes-validations").is_some()
        });
        if !has_rules || file.contains("felixconfigurations") {
            continue;
        }
        walk(spec, file, &mut |path, schema| {
            let bounded = match schema["type"].as_str() {
                Some("array") => schema.get("maxItems").is_some(),
                Some("string") => schema
                    .get("maxLength")
                    .or(schema.get("enum"))
                    .or(schema.get("pattern"))
                    .is_some(),
                _ => true,
            };
            let free = path.contains(".metadata.annotations")
                || path.contains("secretKeyRef")
                || path.ends_with(".tier");
            assert!(bounded || free, "{path} has no bound");
        });
    }
}

#[test]
fn a_schema_default_is_set_only_where_it_cannot_hide_a_broader_object() {
    let mut defaults = Vec::new();
    for_each_schema(&mut |path, schema| {
        if let Some(value) = schema.get("default") {
            let field = path
                .replace("projectcalico.org_", "")
                .replace(".yaml.spec", "");
            defaults.push(format!("{field}={value}"));
        }
    });
    assert!(
        !defaults
            .iter()
            .any(|field| field.starts_with("felixconfigurations")),
        "{defaults:?}"
    );
    assert!(
        !defaults
            .iter()
            .any(|field| field.contains("logSeverityScreen")),
        "{defaults:?}"
    );
    for expected in [
        "ippools.nodeSelector=\"all()\"",
        "ippools.assignmentMode=\"Automatic\"",
        "bgpconfigurations.serviceLoadBalancerAggregation=\"Enabled\"",
        "bgppeers.password.secretKeyRef.name=\"\"",
        "ipamconfigurations.autoAllocateBlocks=true",
        "ipamconfigurations.strictAffinity=false",
        "ipamconfigurations.maxBlocksPerHost=0",
        "ipamblocks.sequenceNumber=0",
        "blockaffinities.deleted=false",
        "tiers.defaultAction=\"Deny\"",
        "networkpolicies.tier=\"default\"",
        "stagedkubernetesnetworkpolicies.stagedAction=\"Set\"",
        "kubecontrollersconfigurations.healthChecks=\"Enabled\"",
        "kubecontrollersconfigurations.controllers.loadBalancer.assignIPs=\"AllServices\"",
        "kubecontrollersconfigurations.controllers.migration.policyNameMigrator=\"Enabled\"",
    ] {
        assert!(
            defaults.iter().any(|field| field == expected),
            "{expected} is missing in {defaults:?}"
        );
    }
}
