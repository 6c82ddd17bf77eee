//! DEL and GC.

use serde_json::json;

use super::lab::{Lab, new_netns, reaches, run_in};
use margay_cni::{CniError, Code};

#[tokio::test(flavor = "multi_thread")]
async fn del_leaves_nothing() {
    let lab = Lab::new().await;
    let pod = new_netns();
    lab.attach("c1", "nginx", &pod).await;
    lab.cni("DEL", "c1", Some(&pod)).run().await.silent();
    // Before DEL answers: no address, no record, no route. The interface goes with the next group.
    assert!(lab.addresses.held().is_empty());
    assert_eq!(lab.record("c1"), None);
    assert_eq!(
        lab.host_command(&["ip", "route", "show", "10.65.0.2"])
            .await,
        ""
    );
    lab.is_clean_soon().await;
    let inside = run_in(&pod, &["ip", "-o", "link"]).await;
    assert!(!inside.contains("eth0"), "{inside}");
    assert_eq!(
        std::fs::read_dir(lab.path("endpoint-status"))
            .expect("directory")
            .count(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn del_succeeds_whatever_is_missing_or_broken() {
    let lab = Lab::new().await;
    let pod = new_netns();
    let calls = [
        ("never added", lab.cni("DEL", "c9", Some(&pod)), false),
        ("empty namespace", lab.cni("DEL", "c1", None), true),
        (
            "path gone",
            lab.cni("DEL", "c1", None)
                .var("CNI_NETNS", "/run/netns/gone"),
            true,
        ),
        (
            "plain file",
            lab.cni("DEL", "c1", None).var("CNI_NETNS", "/etc/hostname"),
            true,
        ),
        (
            "host namespace",
            lab.cni("DEL", "c1", None)
                .var("CNI_NETNS", "/proc/self/ns/net"),
            true,
        ),
        (
            "garbage",
            lab.cni("DEL", "c1", Some(&pod)).stdin("{{{"),
            true,
        ),
        (
            "nothing on stdin",
            lab.cni("DEL", "c1", Some(&pod)).stdin(""),
            true,
        ),
        (
            "bad arguments",
            lab.cni("DEL", "c1", Some(&pod)).var("CNI_ARGS", "x"),
            true,
        ),
        (
            "bad result",
            lab.cni("DEL", "c1", Some(&pod))
                .set("prevResult", json!([7])),
            true,
        ),
        (
            "other network",
            lab.cni("DEL", "c1", Some(&pod))
                .set("name", json!("other-net")),
            true,
        ),
    ];
    for (what, call, attached) in calls {
        let pod = new_netns();
        if attached {
            lab.attach("c1", "nginx", &pod).await;
        }
        let answer = call.run().await;
        assert_eq!(
            (answer.exit, answer.stdout.as_str()),
            (0, ""),
            "{what}: {answer:?}"
        );
        let again = call.run().await;
        assert_eq!(
            (again.exit, again.stdout.as_str()),
            (0, ""),
            "{what}, again: {again:?}"
        );
        assert!(lab.addresses.held().is_empty(), "{what}");
        lab.is_clean_soon().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_del_of_an_old_sandbox_leaves_the_new_one_alone() {
    let lab = Lab::new().await;
    let (old, new) = (new_netns(), new_netns());
    let first = lab.attach("c1", "nginx", &old).await;
    let second = lab.attach("c2", "nginx", &new).await;
    assert_ne!(first, second);
    assert_eq!(lab.addresses.held().len(), 2);
    lab.cni("DEL", "c1", Some(&old)).run().await.silent();
    assert_eq!(
        lab.addresses.held().keys().copied().collect::<Vec<_>>(),
        [second]
    );
    assert!(reaches(&lab.host, &new, second).await);
    assert_eq!(lab.host_interfaces().await, ["calic440f455693"]);
    lab.cni("DEL", "c2", Some(&new)).run().await.silent();
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_record_does_not_keep_the_interface_or_the_address() {
    let mut lab = Lab::new().await;
    let pod = new_netns();
    lab.attach("c1", "nginx", &pod).await;
    lab.stop().await;
    std::fs::remove_file(lab.path("state/attachments/c1@eth0.json")).expect("remove");
    lab.restart().await;
    lab.cni("DEL", "c1", Some(&pod)).run().await.silent();
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn address_that_cannot_be_released_now_is_released_later() {
    let lab = Lab::new().await;
    let pod = new_netns();
    lab.attach("c1", "nginx", &pod).await;
    let away = CniError::new(Code::TRY_AGAIN, "the API is away");
    *lab.addresses.release_error.lock().expect("lock") = Some(away);
    lab.cni("DEL", "c1", Some(&pod)).run().await.silent();
    assert_eq!(lab.addresses.held().len(), 1);
    assert!(lab.record("c1").is_some());
    *lab.addresses.release_error.lock().expect("lock") = None;
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !lab.addresses.held().is_empty() || lab.record("c1").is_some() {
        assert!(std::time::Instant::now() < deadline, "not released");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_removes_what_is_not_listed() {
    let lab = Lab::new().await;
    let (first, second) = (new_netns(), new_netns());
    lab.attach("c1", "one", &first).await;
    let kept = lab.attach("c2", "two", &second).await;
    let gc = lab.cni("GC", "", None).set("cniVersion", json!("1.1.0"));
    gc.run().await.silent();
    assert_eq!(lab.addresses.held().len(), 2);
    let valid = json!([{"containerID":"c2","ifname":"eth0"}]);
    gc.set("cni.dev/valid-attachments", valid)
        .run()
        .await
        .silent();
    assert_eq!(
        lab.addresses.held().keys().copied().collect::<Vec<_>>(),
        [kept]
    );
    assert!(reaches(&lab.host, &second, kept).await);
    assert_eq!(lab.record("c1"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn gc_removes_interfaces_without_a_record() {
    let lab = Lab::new().await;
    for (name, alias) in [
        ("cali0000orphan", "margay:gone:eth0"),
        ("cali0000known", "margay:c2:eth0"),
        ("cali0000other", "x"),
    ] {
        let peer = format!("p{}", &name[8..]);
        lab.host_command(&[
            "ip", "link", "add", name, "type", "veth", "peer", "name", &peer,
        ])
        .await;
        lab.host_command(&["ip", "link", "set", name, "alias", alias])
            .await;
    }
    let valid = json!([{"containerID":"c2","ifname":"eth0"}]);
    let gc = lab.cni("GC", "", None).set("cniVersion", json!("1.1.0"));
    gc.set("cni.dev/valid-attachments", valid)
        .run()
        .await
        .silent();
    let mut left = lab.host_interfaces().await;
    left.sort();
    assert_eq!(left, ["cali0000known", "cali0000other"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn namespace_may_be_attached_again_right_after_del() {
    let lab = Lab::new().await;
    let pod = new_netns();
    for id in ["c1", "c2", "c3"] {
        let address = lab.attach(id, "nginx", &pod).await;
        assert!(reaches(&lab.host, &pod, address).await);
        lab.cni("DEL", id, Some(&pod)).run().await.silent();
    }
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tombstone_of_a_running_agent_is_dealt_with_too() {
    let lab = Lab::new().await;
    let pod = new_netns();
    lab.attach("c1", "nginx", &pod).await;
    let text = json!({"schema":1,"containerID":"c1","ifname":"eth0","network":"k8s-pod-network","args":"","created":1});
    let path = lab.path("state/pending-del/c1@eth0.json");
    std::fs::write(&path, text.to_string()).expect("write");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while path.exists() {
        assert!(std::time::Instant::now() < deadline, "tombstone stays");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn add_outlives_the_tombstone_of_its_predecessor() {
    let lab = Lab::new().await;
    let pod = new_netns();
    let text = json!({"schema":1,"containerID":"c1","ifname":"eth0","created":1});
    let path = lab.path("state/pending-del/c1@eth0.json");
    std::fs::write(&path, text.to_string()).expect("write");
    let address = lab.attach("c1", "nginx", &pod).await;
    assert!(!path.exists());
    assert!(reaches(&lab.host, &pod, address).await);
}
