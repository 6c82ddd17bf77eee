//! ADD and CHECK.

use std::time::{Duration, Instant};

use serde_json::json;

use super::lab::{Lab, new_netns, reaches, run_in};

#[tokio::test(flavor = "multi_thread")]
async fn result_is_what_calico_prints() {
    let lab = Lab::new().await;
    lab.add_pod("nginx");
    let pod = new_netns();
    let call = lab.cni("ADD", "c1", Some(&pod));
    let answer = call.run().await;
    assert_eq!((answer.exit, answer.stderr.as_str()), (0, ""), "{answer:?}");
    let result = answer.json();
    let mac = result["interfaces"][1]["mac"]
        .as_str()
        .expect("mac")
        .to_owned();
    let sandbox = super::lab::netns_path(&pod);
    assert_eq!(
        result,
        json!({"cniVersion":"1.0.0",
            "interfaces":[{"name":"calic440f455693"},
                {"name":"eth0","mac":mac,"mtu":1450,"sandbox":sandbox}],
            "ips":[{"interface":1,"address":"10.65.0.2/32"}],
            "routes":[{"dst":"10.65.0.2/32"}]})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn kernel_is_set_up_as_documented() {
    let lab = Lab::new().await;
    let pod = new_netns();
    lab.attach("c1", "nginx", &pod).await;
    let link = lab
        .host_command(&["ip", "link", "show", "calic440f455693"])
        .await;
    assert!(
        link.contains("mtu 1450") && link.contains("ee:ee:ee:ee:ee:ee"),
        "{link}"
    );
    assert!(
        link.contains("alias margay:c1:eth0") && link.contains(",UP"),
        "{link}"
    );
    let route = lab
        .host_command(&["ip", "route", "show", "10.65.0.2"])
        .await;
    assert!(
        route.contains("dev calic440f455693") && route.contains("scope link"),
        "{route}"
    );
    let neighbours = lab
        .host_command(&["ip", "neigh", "show", "dev", "calic440f455693"])
        .await;
    assert!(
        neighbours.contains("10.65.0.2") && neighbours.contains("PERMANENT"),
        "{neighbours}"
    );
    for (key, value) in [
        ("ipv4/conf/calic440f455693/proxy_arp", "1"),
        ("ipv4/neigh/calic440f455693/proxy_delay", "0"),
        ("ipv4/conf/calic440f455693/route_localnet", "1"),
        ("ipv4/conf/calic440f455693/forwarding", "1"),
        ("ipv6/conf/calic440f455693/accept_ra", "0"),
    ] {
        let found = lab
            .host_command(&["cat", &format!("/proc/sys/net/{key}")])
            .await;
        assert_eq!(found.trim(), value, "{key}");
    }
    let addresses = run_in(&pod, &["ip", "addr", "show", "eth0"]).await;
    assert!(
        addresses.contains("mtu 1450") && addresses.contains("10.65.0.2/32"),
        "{addresses}"
    );
    let routes = run_in(&pod, &["ip", "route"]).await;
    assert!(
        routes.contains("default via 169.254.1.1 dev eth0"),
        "{routes}"
    );
    assert!(
        routes.contains("169.254.1.1 dev eth0 scope link"),
        "{routes}"
    );
    let neighbours = run_in(&pod, &["ip", "neigh"]).await;
    assert!(
        neighbours.contains("169.254.1.1 dev eth0 lladdr ee:ee:ee:ee:ee:ee PERMANENT"),
        "{neighbours}"
    );
    let forwarding = run_in(&pod, &["cat", "/proc/sys/net/ipv4/ip_forward"]).await;
    assert_eq!(forwarding.trim(), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pods_and_the_host_reach_each_other_without_a_default_route() {
    let lab = Lab::new().await;
    let (first, second) = (new_netns(), new_netns());
    let one = lab.attach("c1", "one", &first).await;
    let two = lab.attach("c2", "two", &second).await;
    assert_ne!(one, two);
    assert!(reaches(&first, &second, two).await);
    assert!(reaches(&second, &first, one).await);
    assert!(reaches(&lab.host, &first, one).await);
    assert!(reaches(&first, &lab.host, "192.0.2.1".parse().expect("address")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn dual_stack_pods_reach_each_other_and_nothing_is_tentative() {
    let lab = Lab::new().await;
    *lab.addresses.has_v6.lock().expect("lock") = true;
    lab.add_pod("one");
    lab.add_pod("two");
    let pods = [new_netns(), new_netns()];
    let ipam = json!({"type":"calico-ipam","assign_ipv6":"true"});
    let mut addresses = Vec::new();
    for (netns, name) in pods.iter().zip(["one", "two"]) {
        let add = lab
            .cni("ADD", name, Some(netns))
            .pod(name)
            .set("ipam", ipam.clone());
        let answer = add.run().await;
        let text = answer.json()["ips"][1]["address"]
            .as_str()
            .expect("IPv6")
            .to_owned();
        addresses.push(text.trim_end_matches("/128").parse().expect("address"));
    }
    let inside = run_in(&pods[0], &["ip", "-6", "addr", "show", "eth0"]).await;
    assert!(
        inside.contains("/128") && !inside.contains("tentative"),
        "{inside}"
    );
    let routes = run_in(&pods[0], &["ip", "-6", "route"]).await;
    assert!(
        routes.contains("default via fe80::ecee:eeff:feee:eeee"),
        "{routes}"
    );
    assert!(reaches(&pods[0], &pods[1], addresses[1]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_family_fails_the_whole_add() {
    let lab = Lab::new().await;
    lab.add_pod("nginx");
    let pod = new_netns();
    let ipam = json!({"type":"calico-ipam","assign_ipv6":"true"});
    let answer = lab
        .cni("ADD", "c1", Some(&pod))
        .set("ipam", ipam)
        .run()
        .await;
    assert_eq!(answer.code(), 101);
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn older_versions_get_their_own_layout() {
    let lab = Lab::new().await;
    lab.add_pod("nginx");
    let pod = new_netns();
    let add = lab
        .cni("ADD", "c1", Some(&pod))
        .set("cniVersion", json!("0.2.0"));
    let result = add.run().await.json();
    assert_eq!(
        result["ip4"],
        json!({"ip":"10.65.0.2/32","routes":[{"dst":"10.65.0.2/32"}]})
    );
    assert_eq!(result.get("interfaces"), None);
    let again = lab
        .cni("ADD", "c1", Some(&pod))
        .set("cniVersion", json!("0.4.0"))
        .run()
        .await
        .json();
    assert_eq!(again["ips"][0]["version"], "4");
    assert_eq!(again["interfaces"][1].get("mtu"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn second_add_prints_the_same_and_changes_nothing() {
    let lab = Lab::new().await;
    lab.add_pod("nginx");
    let pod = new_netns();
    let call = lab.cni("ADD", "c1", Some(&pod));
    let first = call.run().await;
    let before = lab.record("c1").expect("record");
    let second = call.run().await;
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(lab.record("c1"), Some(before));
    assert_eq!(lab.addresses.held().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn recreated_namespace_keeps_the_address() {
    let lab = Lab::new().await;
    let old = new_netns();
    let address = lab.attach("c1", "nginx", &old).await;
    let other = lab.attach("c2", "other", &new_netns()).await;
    drop(old);
    let pod = new_netns();
    assert_eq!(lab.attach("c1", "nginx", &pod).await, address);
    assert!(reaches(&lab.host, &pod, address).await);
    assert_ne!(address, other);
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_interface_is_left_alone_and_nothing_is_allocated() {
    let lab = Lab::new().await;
    lab.add_pod("nginx");
    let pod = new_netns();
    run_in(
        &pod,
        &[
            "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x",
        ],
    )
    .await;
    let before = run_in(&pod, &["ip", "-o", "link", "show", "eth0"]).await;
    let answer = lab.cni("ADD", "c1", Some(&pod)).run().await;
    assert_eq!(answer.code(), 102);
    assert_eq!(
        run_in(&pod, &["ip", "-o", "link", "show", "eth0"]).await,
        before
    );
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn host_namespace_is_refused() {
    let lab = Lab::new().await;
    lab.add_pod("nginx");
    let answer = lab
        .cni("ADD", "c1", None)
        .var("CNI_NETNS", "/proc/self/ns/net")
        .run()
        .await;
    assert_eq!(answer.code(), 8);
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_annotations_and_other_pods_are_refused_before_allocation() {
    let lab = Lab::new().await;
    let pod = new_netns();
    let with = |pairs: &[(&str, &str)]| {
        let mut facts = lab.add_pod("nginx");
        for (name, value) in pairs {
            facts
                .annotations
                .insert(format!("cni.projectcalico.org/{name}"), (*value).to_owned());
        }
        lab.set_pod("nginx", facts);
        lab.cni("ADD", "c1", Some(&pod))
    };
    assert_eq!(
        with(&[("allowedSourcePrefixes", "x")]).run().await.code(),
        7
    );
    let both = [
        ("ipAddrs", r#"["10.65.0.9"]"#),
        ("ipAddrsNoIpam", r#"["10.65.0.9"]"#),
    ];
    assert_eq!(
        with(&both).run().await.json()["msg"],
        "can't have both annotations: 'ipAddrs' and 'ipAddrsNoIpam' in use at the same time"
    );
    let mut facts = lab.add_pod("nginx");
    facts.uid = "another".to_owned();
    lab.set_pod("nginx", facts.clone());
    assert_eq!(lab.cni("ADD", "c1", Some(&pod)).run().await.code(), 104);
    lab.is_clean_soon().await;
    facts
        .annotations
        .insert("kubernetes.io/config.mirror".into(), "uid-nginx".into());
    lab.set_pod("nginx", facts);
    assert_eq!(lab.cni("ADD", "c1", Some(&pod)).run().await.exit, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn wished_address_and_mac_are_given() {
    let lab = Lab::new().await;
    let mut facts = lab.add_pod("nginx");
    let annotations = &mut facts.annotations;
    annotations.insert(
        "cni.projectcalico.org/ipAddrs".into(),
        r#"["10.65.0.40"]"#.into(),
    );
    annotations.insert(
        "cni.projectcalico.org/hwAddr".into(),
        "02:00:00:00:00:42".into(),
    );
    lab.set_pod("nginx", facts);
    let pod = new_netns();
    let result = lab.cni("ADD", "c1", Some(&pod)).run().await.json();
    assert_eq!(result["ips"][0]["address"], "10.65.0.40/32");
    assert_eq!(result["interfaces"][1]["mac"], "02:00:00:00:00:42");
    assert!(reaches(&lab.host, &pod, "10.65.0.40".parse().expect("address")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_names_everything_that_is_missing() {
    let lab = Lab::new().await;
    lab.add_pod("nginx");
    let pod = new_netns();
    let added = lab.cni("ADD", "c1", Some(&pod)).run().await.json();
    let check = lab.cni("CHECK", "c1", Some(&pod)).set("prevResult", added);
    check.run().await.silent();
    run_in(
        &pod,
        &[
            "ip",
            "route",
            "add",
            "192.0.2.0/24",
            "via",
            "169.254.1.1",
            "onlink",
            "dev",
            "eth0",
        ],
    )
    .await;
    check.run().await.silent();
    run_in(&pod, &["ip", "route", "del", "default"]).await;
    run_in(&pod, &["ip", "neigh", "del", "169.254.1.1", "dev", "eth0"]).await;
    let answer = check.run().await;
    assert_eq!(answer.code(), 103);
    let details = answer.json()["details"]
        .as_str()
        .expect("details")
        .to_owned();
    assert!(
        details.contains("0.0.0.0/0") && details.contains("neighbour"),
        "{details}"
    );
    run_in(&pod, &["ip", "link", "del", "eth0"]).await;
    assert_eq!(check.run().await.code(), 103);
    assert_eq!(
        lab.cni("CHECK", "c9", Some(&pod))
            .set("prevResult", json!({"cniVersion":"1.0.0"}))
            .run()
            .await
            .code(),
        3
    );
    assert_eq!(lab.cni("CHECK", "c1", Some(&pod)).run().await.code(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_pods_at_once() {
    let lab = Lab::new().await;
    let pods: Vec<_> = (0..60)
        .map(|n| (format!("c{n}"), format!("pod-{n}"), new_netns()))
        .collect();
    let started = Instant::now();
    let calls = pods
        .iter()
        .map(|(id, name, netns)| lab.attach(id, name, netns));
    let addresses: std::collections::BTreeSet<_> =
        futures::future::join_all(calls).await.into_iter().collect();
    eprintln!("60 concurrent ADDs: {:?}", started.elapsed());
    assert_eq!(addresses.len(), 60);
    assert_eq!(lab.host_interfaces().await.len(), 60);
    let calls = pods.iter().map(|(id, name, netns)| {
        let call = lab.cni("DEL", id, Some(netns)).pod(name);
        async move { call.run().await }
    });
    for answer in futures::future::join_all(calls).await {
        answer.silent();
    }
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn adds_and_dels_of_different_pods_run_together() {
    let lab = Lab::new().await;
    let old: Vec<_> = (0..10)
        .map(|n| (format!("old{n}"), format!("old-{n}"), new_netns()))
        .collect();
    let new: Vec<_> = (0..10)
        .map(|n| (format!("new{n}"), format!("new-{n}"), new_netns()))
        .collect();
    futures::future::join_all(old.iter().map(|(id, name, ns)| lab.attach(id, name, ns))).await;
    let dels = futures::future::join_all(old.iter().map(|(id, name, ns)| {
        let call = lab.cni("DEL", id, Some(ns)).pod(name);
        async move { call.run().await.silent() }
    }));
    let adds = futures::future::join_all(new.iter().map(|(id, name, ns)| lab.attach(id, name, ns)));
    let (_, addresses) = tokio::join!(dels, adds);
    let distinct: std::collections::BTreeSet<_> = addresses.into_iter().collect();
    assert_eq!(distinct.len(), 10);
    assert_eq!(lab.addresses.held().len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn annotations_are_written_after_the_answer() {
    let lab = Lab::new().await;
    let pod = new_netns();
    lab.attach("c1", "nginx", &pod).await;
    let deadline = Instant::now() + Duration::from_secs(5);
    while lab.pods.patches.lock().expect("lock").is_empty() {
        assert!(Instant::now() < deadline, "no patch");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let patch = lab.pods.patches.lock().expect("lock")[0].clone();
    assert_eq!(
        (patch.uid.as_str(), patch.only_container),
        ("uid-nginx", None)
    );
    let value = |name: &str| {
        let name = format!("cni.projectcalico.org/{name}");
        patch
            .annotations
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, value)| value.clone())
    };
    assert_eq!(value("podIP").as_deref(), Some("10.65.0.2/32"));
    assert_eq!(value("podIPs").as_deref(), Some("10.65.0.2/32"));
    assert_eq!(value("containerID").as_deref(), Some("c1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_are_listed_for_the_admin_api() {
    let lab = Lab::new().await;
    let address = lab.attach("c1", "nginx", &new_netns()).await;
    let endpoints = lab.server().endpoints();
    assert_eq!(endpoints.len(), 1);
    assert_eq!(
        (endpoints[0].pod.as_str(), endpoints[0].addresses.clone()),
        ("nginx", vec![address])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn address_of_a_live_pod_is_returned_to_it() {
    let lab = Lab::new().await;
    let first = new_netns();
    let address = lab.attach("c1", "one", &first).await;
    lab.addresses.held().remove(&address);
    let second = new_netns();
    let other = lab.attach("c2", "two", &second).await;
    assert_ne!(other, address);
    assert_eq!(
        lab.addresses.held().get(&address).map(String::as_str),
        Some("k8s-pod-network.c1")
    );
    assert!(reaches(&second, &first, address).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn left_over_interface_of_a_forgotten_sandbox_is_replaced() {
    let lab = Lab::new().await;
    lab.host_command(&[
        "ip",
        "link",
        "add",
        "calic440f455693",
        "type",
        "veth",
        "peer",
        "name",
        "x",
    ])
    .await;
    lab.host_command(&[
        "ip",
        "link",
        "set",
        "calic440f455693",
        "alias",
        "margay:dead:eth0",
    ])
    .await;
    let pod = new_netns();
    let address = lab.attach("c1", "nginx", &pod).await;
    assert!(reaches(&lab.host, &pod, address).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn ipam_half_assigns_without_interfaces() {
    use margay_cni::plugin::Personality;
    assert_eq!(
        Personality::of("/opt/cni/bin/calico-ipam"),
        Personality::Ipam
    );
    let lab = Lab::new().await;
    lab.add_pod("nginx");
    let named = lab.path("calico-ipam");
    std::os::unix::fs::symlink(super::lab::executable(), &named).expect("link");
    let run = |command: &str| {
        let call = lab
            .cni(command, "c1", None)
            .var("CNI_NETNS", "/run/netns/none");
        let (named, directory) = (named.clone(), lab.directory.path().to_owned());
        tokio::task::spawn_blocking(move || {
            use std::io::Write;
            let mut child = std::process::Command::new(named)
                .env_clear()
                .envs(call.vars.clone())
                .env("MARGAY_CNI_SOCKET", directory.join("cni.sock"))
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("start");
            child
                .stdin
                .take()
                .expect("piped")
                .write_all(call.stdin.as_bytes())
                .expect("write");
            child.wait_with_output().expect("wait")
        })
    };
    let output = run("ADD").await.expect("task");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!(result["ips"], json!([{"address":"10.65.0.2/32"}]));
    assert_eq!(result["routes"], json!([{"dst":"10.65.0.2/32"}]));
    assert_eq!(result.get("interfaces"), None);
    assert!(run("DEL").await.expect("task").stdout.is_empty());
    assert!(lab.addresses.held().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_may_get_its_name_back_at_once() {
    let lab = Lab::new().await;
    for round in 0..5 {
        let pod = new_netns();
        let id = format!("c{round}");
        let address = lab.attach(&id, "nginx", &pod).await;
        assert!(reaches(&lab.host, &pod, address).await);
        lab.cni("DEL", &id, Some(&pod)).run().await.silent();
    }
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_made_anew_is_waited_for() {
    let lab = Lab::new().await;
    let mut old = lab.add_pod("nginx");
    old.uid = "the-pod-before".to_owned();
    lab.set_pod("nginx", old);
    let pod = new_netns();
    let add = lab.cni("ADD", "c1", Some(&pod));
    let running = tokio::spawn(async move { add.run().await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    lab.add_pod("nginx");
    assert_eq!(running.await.expect("task").exit, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_add_after_a_take_over_leaves_nothing_behind() {
    let lab = Lab::new().await;
    let (old, new) = (new_netns(), new_netns());
    lab.attach("c1", "nginx", &old).await;
    // The second sandbox takes the name over, then fails: the interface in its way seems to be somebody else's.
    lab.host_command(&["ip", "link", "set", "calic440f455693", "alias", "somebody"])
        .await;
    assert_eq!(lab.cni("ADD", "c2", Some(&new)).run().await.code(), 103);
    assert_eq!(lab.addresses.held().len(), 1);
    lab.host_command(&[
        "ip",
        "link",
        "set",
        "calic440f455693",
        "alias",
        "margay:c1:eth0",
    ])
    .await;
    lab.cni("DEL", "c2", Some(&new)).run().await.silent();
    lab.cni("DEL", "c1", Some(&old)).run().await.silent();
    lab.is_clean_soon().await;
}
