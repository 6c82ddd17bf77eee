use super::*;
use crate::Code;
use crate::environment::Command;

fn config(extra: &str) -> NetworkConfig {
    let text = format!(r#"{{"cniVersion":"1.0.0","name":"n"{extra}}}"#);
    NetworkConfig::parse(Command::Add, text.as_bytes()).expect("valid")
}

fn pod(pairs: &[(&str, &str)]) -> PodFacts {
    let annotations = pairs
        .iter()
        .map(|(name, value)| (format!("{PREFIX}{name}"), (*value).to_owned()))
        .collect();
    PodFacts {
        annotations,
        ..PodFacts::default()
    }
}

fn addresses(extra: &str, pairs: &[(&str, &str)]) -> Result<AddressPlan, CniError> {
    plan(&config(extra), &PodArgs::default(), Some(&pod(pairs)), None).map(|plan| plan.addresses)
}

fn pools(names: &[&str]) -> Option<Vec<String>> {
    Some(names.iter().map(|name| (*name).to_owned()).collect())
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("address")
}

#[test]
fn nothing_special_is_one_ipv4_address() {
    assert_eq!(
        addresses("", &[]),
        Ok(AddressPlan::Automatic {
            v4: pools(&[]),
            v6: None
        })
    );
}

#[test]
fn pools_come_from_the_pod_before_its_namespace_before_the_configuration() {
    let extra = r#","ipam":{"type":"calico-ipam","ipv4_pools":["c"]}"#;
    let v4 = |pairs: &[(&str, &str)], namespace: Option<&str>| {
        let mut facts = pod(pairs);
        if let Some(value) = namespace {
            facts
                .namespace_annotations
                .insert(format!("{PREFIX}ipv4pools"), value.into());
        }
        let plan = plan(&config(extra), &PodArgs::default(), Some(&facts), None).expect("plan");
        match plan.addresses {
            AddressPlan::Automatic { v4, .. } => v4,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(v4(&[], None), pools(&["c"]));
    assert_eq!(v4(&[], Some(r#"["n"]"#)), pools(&["n"]));
    assert_eq!(
        v4(&[("ipv4pools", r#"["10.0.0.0/16","p"]"#)], Some(r#"["n"]"#)),
        pools(&["10.0.0.0/16", "p"])
    );
}

#[test]
fn families_annotation_overrides_both_switches() {
    let both = AddressPlan::Automatic {
        v4: pools(&[]),
        v6: pools(&[]),
    };
    assert_eq!(
        addresses("", &[("ipFamilies", r#"["IPv6","IPv4"]"#)]),
        Ok(both)
    );
    let six = AddressPlan::Automatic {
        v4: None,
        v6: pools(&[]),
    };
    assert_eq!(addresses("", &[("ipFamilies", r#"["IPv6"]"#)]), Ok(six));
    assert_eq!(
        addresses("", &[("ipFamilies", r#"["ipv6"]"#)])
            .expect_err("case")
            .msg,
        "error parsing ipFamilies"
    );
    assert_eq!(
        addresses("", &[("ipFamilies", "[]")])
            .expect_err("none")
            .code,
        Code::INVALID_CONFIG
    );
}

#[test]
fn fixed_addresses() {
    let two = r#"["10.65.0.9","fd00::9"]"#;
    assert_eq!(
        addresses("", &[("ipAddrs", two)]),
        Ok(AddressPlan::Specific(vec![ip("10.65.0.9"), ip("fd00::9")]))
    );
    let message = |pairs: &[(&str, &str)]| addresses("", pairs).expect_err("refused").msg;
    assert_eq!(
        message(&[("ipAddrs", two), ("ipAddrsNoIpam", two)]),
        "can't have both annotations: 'ipAddrs' and 'ipAddrsNoIpam' in use at the same time"
    );
    assert_eq!(
        message(&[("ipAddrsNoIpam", two)]),
        "requested feature is not enabled: ip_addrs_no_ipam"
    );
    assert_eq!(
        message(&[("ipAddrs", r#"["10.0.0.1","10.0.0.2"]"#)]),
        "cannot have more than one IPv4 address for \"ipAddrs\" annotation"
    );
    assert_eq!(
        message(&[("ipAddrs", "[]")]),
        "annotation \"cni.projectcalico.org/ipAddrs\" specified but empty"
    );
    assert_eq!(message(&[("ipAddrs", r#"["x"]"#)]), "invalid IP format: x");
    let gate = r#","feature_control":{"ip_addrs_no_ipam":true}"#;
    assert!(matches!(
        addresses(gate, &[("ipAddrsNoIpam", two)]),
        Ok(AddressPlan::WithoutIpam(_))
    ));
}

#[test]
fn runtime_wishes_yield_to_annotations() {
    let extra = r#","runtimeConfig":{"ips":["10.65.0.7/24"],"mac":"02:00:00:00:00:07"}"#;
    assert_eq!(
        addresses(extra, &[]),
        Ok(AddressPlan::Specific(vec![ip("10.65.0.7")]))
    );
    assert_eq!(
        addresses(extra, &[("ipAddrs", r#"["10.65.0.9"]"#)]),
        Ok(AddressPlan::Specific(vec![ip("10.65.0.9")]))
    );
    let facts = pod(&[("hwAddr", "02:00:00:00:00:09")]);
    let plan = plan(&config(extra), &PodArgs::default(), Some(&facts), None).expect("plan");
    assert_eq!(plan.mac, Some([2, 0, 0, 0, 0, 9]));
}

#[test]
fn external_ipam_excludes_address_annotations() {
    let extra = r#","ipam":{"type":"host-local"}"#;
    assert_eq!(
        addresses(extra, &[("ipAddrs", r#"["10.0.0.1"]"#)])
            .expect_err("refused")
            .msg,
        "ipAddrs is not compatible with configured IPAM: host-local"
    );
    let result = AddResult {
        ips: vec![crate::result::IpConfig {
            interface: None,
            address: "10.65.0.5/24".parse().expect("prefix"),
            gateway: Some(ip("10.65.0.1")),
        }],
        ..AddResult::default()
    };
    let planned = plan(&config(extra), &PodArgs::default(), None, Some(&result)).expect("plan");
    assert_eq!(
        planned.addresses,
        AddressPlan::External(vec![ip("10.65.0.5")])
    );
}

#[test]
fn bad_values_are_refused_before_allocation() {
    for pair in [
        ("allowedSourcePrefixes", "x"),
        ("allowedSourcePrefixes", r#"["x"]"#),
        ("hwAddr", "01:00:5e:00:00:01"),
        ("hwAddr", "00:00:00:00:00:00"),
        ("hwAddr", "2:0:0:0:0:1"),
        ("ipv4pools", "default-pool"),
        ("floatingIPs", r#"["1.2.3.4"]"#),
    ] {
        let facts = pod(&[pair]);
        let error = plan(&config(""), &PodArgs::default(), Some(&facts), None).expect_err(pair.1);
        assert_eq!(error.code, Code::INVALID_CONFIG, "{pair:?}");
    }
}

#[test]
fn source_prefixes_are_normalised() {
    let facts = pod(&[("allowedSourcePrefixes", r#"["10.1.2.3/16"]"#)]);
    let plan = plan(&config(""), &PodArgs::default(), Some(&facts), None).expect("plan");
    assert_eq!(
        plan.allowed_source_prefixes,
        ["10.1.0.0/16".parse::<IpNet>().expect("prefix")]
    );
}

#[test]
fn host_ports_come_from_the_runtime_or_else_from_the_pod() {
    let mapping = PortMapping::new(8080, 80, "tcp", "").expect("mapping");
    let facts = PodFacts {
        host_ports: vec![mapping],
        ..PodFacts::default()
    };
    let ports = |extra: &str| {
        plan(&config(extra), &PodArgs::default(), Some(&facts), None)
            .expect("plan")
            .host_ports
    };
    assert_eq!(ports(""), [mapping]);
    assert_eq!(ports(r#","runtimeConfig":{"portMappings":[]}"#), []);
}
