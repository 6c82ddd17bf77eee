//! Whatever a runtime sends, the plugin answers with one JSON document or nothing, and does not panic.

use margay_cni::config::LenientConfig;
use margay_cni::plugin;
use margay_cni::{AddResult, Attachment};
use proptest::prelude::*;
use serde_json::{Value, json};

/// JSON of any shape, with keys the plugin knows.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "\\PC{0,12}".prop_map(Value::from),
        prop::sample::select(
            &[
                "1.0.0",
                "0.2.0",
                "1.1.0",
                "10.0.0.1/32",
                "fd00::1/128",
                "calico-ipam",
                "k8s"
            ][..]
        )
        .prop_map(Value::from),
    ];
    let keys = prop::sample::select(
        &[
            "cniVersion",
            "name",
            "type",
            "ipam",
            "policy",
            "mtu",
            "num_queues",
            "prevResult",
            "runtimeConfig",
            "portMappings",
            "hostPort",
            "HostPort",
            "containerPort",
            "bandwidth",
            "ingressRate",
            "ips",
            "ip4",
            "ip",
            "address",
            "interface",
            "interfaces",
            "routes",
            "dst",
            "gw",
            "dns",
            "assign_ipv4",
            "ipv4_pools",
            "cni.dev/valid-attachments",
            "containerID",
            "ifname",
            "readiness_gates",
            "feature_control",
            "mac",
        ][..],
    );
    leaf.prop_recursive(4, 48, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((keys.clone(), inner), 0..8).prop_map(|pairs| {
                Value::Object(pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    })
}

fn stdin() -> impl Strategy<Value = Vec<u8>> {
    let named = any_json().prop_map(|mut value| {
        if let Some(map) = value.as_object_mut() {
            map.insert("name".into(), "net".into());
            map.insert("cniVersion".into(), "1.1.0".into());
        }
        value.to_string().into_bytes()
    });
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        any_json().prop_map(|value| value.to_string().into_bytes()),
        named,
    ]
}

fn vars() -> impl Strategy<Value = Vec<(String, String)>> {
    let command = prop_oneof![
        prop::sample::select(&["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"][..])
            .prop_map(str::to_owned),
        "\\PC{0,8}",
    ];
    let text = prop_oneof!["[a-z0-9]{1,12}", "\\PC{0,40}"];
    let path = prop_oneof![
        Just("/proc/self/ns/net".to_owned()),
        Just(String::new()),
        "\\PC{0,30}"
    ];
    (
        command,
        text.clone(),
        text.clone(),
        path,
        text,
        any::<bool>(),
    )
        .prop_map(|(command, id, ifname, netns, args, own)| {
            [
                ("CNI_COMMAND", command),
                ("CNI_CONTAINERID", id),
                ("CNI_IFNAME", ifname),
                ("CNI_NETNS", netns),
                ("CNI_ARGS", args),
                ("CNI_NETNS_OVERRIDE", own.to_string()),
            ]
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn plugin_answers_properly(vars in vars(), stdin in stdin(), ipam in any::<bool>()) {
        let directory = tempfile::tempdir().expect("directory");
        let mut vars = vars;
        for (name, file) in [
            ("MARGAY_CNI_SOCKET", "sock"),
            ("MARGAY_CNI_STATE", "state"),
            ("MARGAY_STATUS_FILE", "status"),
        ] {
            vars.push((name.to_owned(), directory.path().join(file).display().to_string()));
        }
        vars.push(("MARGAY_CNI_WAIT_MS".to_owned(), "0".to_owned()));
        let program = if ipam { "calico-ipam" } else { "margay" };
        let output = plugin::run(program, &[], vars, &mut stdin.as_slice());
        match &output.stdout {
            None => prop_assert_eq!(output.code, 0),
            Some(text) => {
                let document: Value = serde_json::from_str(text).expect("JSON");
                let code = document["code"].as_u64();
                prop_assert_eq!(output.code == 1, code.is_some_and(|code| code > 0));
                prop_assert!(output.code == 0 || document["msg"].is_string());
                prop_assert_ne!(code, Some(999));
            }
        }
    }

    #[test]
    fn parsers_survive_any_json(value in any_json()) {
        let text = value.to_string();
        let _ = LenientConfig::parse(text.as_bytes());
        let _ = serde_json::from_str::<Attachment>(&text);
        if let Ok(result) = AddResult::from_json(&value) {
            for version in margay_cni::CniVersion::SUPPORTED {
                let _ = result.to_json(version);
            }
        }
    }
}
