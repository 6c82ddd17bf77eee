//! Callers that go away, lie, or may not call.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use margay_cni::{frame, proto};
use serde_json::{Value, json};

use super::lab::{Lab, new_netns, reaches};

#[tokio::test(flavor = "multi_thread")]
async fn killed_caller_leaves_nothing() {
    let lab = Lab::new().await;
    lab.add_pod("nginx");
    *lab.pods.delay.lock().expect("lock") = Duration::from_millis(300);
    let pod = new_netns();
    for wait in [50, 305, 330] {
        let mut child = lab.cni("ADD", "c1", Some(&pod)).spawn();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        child.kill().expect("kill");
        child.wait().expect("wait");
        tokio::time::sleep(Duration::from_millis(400)).await;
        lab.is_clean_soon().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deadline_of_the_caller_is_kept() {
    let lab = Lab::new().await;
    *lab.pods.delay.lock().expect("lock") = Duration::from_secs(600);
    let request = json!({"proto":proto::PROTO,"cmd":"ADD","deadline_ms":1000,
        "env":{"CNI_CONTAINERID":"c1","CNI_IFNAME":"eth0","CNI_NETNS":"/x",
            "CNI_ARGS":"K8S_POD_NAMESPACE=default;K8S_POD_NAME=nginx"},
        "conf":"{\"name\":\"k8s-pod-network\",\"cniVersion\":\"1.0.0\"}"});
    let pod = new_netns();
    let started = Instant::now();
    let answer = exchange(&lab, &request, Some(&pod)).await;
    assert_eq!(answer["error"]["code"], 11, "{answer}");
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn not_ready_agent_says_why() {
    let lab = Lab::new().await;
    lab.add_pod("nginx");
    lab.state
        .send_modify(|state| state.not_ready = Some("datastore locked".to_owned()));
    let pod = new_netns();
    let add = lab.cni("ADD", "c1", Some(&pod));
    let waiting = tokio::spawn({
        let add = add.clone();
        async move { add.run().await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    lab.state.send_modify(|state| state.not_ready = None);
    assert_eq!(waiting.await.expect("task").exit, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_protocol_versions_are_refused_with_ours() {
    let lab = Lab::new().await;
    let request = json!({"proto":proto::PROTO + 1,"cmd":"PING","deadline_ms":1000});
    let answer = exchange(&lab, &request, None).await;
    assert_eq!(
        (answer["proto"].as_u64(), answer["ok"].as_bool()),
        (Some(u64::from(proto::PROTO)), Some(false))
    );
    let request = json!({"proto":proto::PROTO,"cmd":"PING","deadline_ms":1000,"news":[1]});
    assert_eq!(exchange(&lab, &request, None).await["ok"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_oversized_requests_do_no_harm() {
    let lab = Lab::new().await;
    let path = lab.path("cni.sock");
    tokio::task::spawn_blocking(move || {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[0xff; 64],
            &[0, 0, 0, 3, b'{', b'{', b'{'],
        ] {
            let mut stream = UnixStream::connect(&path).expect("connect");
            stream
                .set_read_timeout(Some(Duration::from_secs(10)))
                .expect("timeout");
            stream.write_all(bytes).expect("write");
            let answer = frame::read(&mut stream).expect("an error");
            let answer: Value = serde_json::from_slice(&answer).expect("json");
            assert_eq!(answer["error"]["code"], 6);
        }
    })
    .await
    .expect("task");
    let pod = new_netns();
    let address = lab.attach("c1", "nginx", &pod).await;
    assert!(reaches(&lab.host, &pod, address).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_are_paths_never_reach_the_disk() {
    let lab = Lab::new().await;
    let request = json!({"proto":proto::PROTO,"cmd":"DEL","deadline_ms":1000,
        "env":{"CNI_CONTAINERID":"../../x","CNI_IFNAME":"eth0"}});
    assert_eq!(exchange(&lab, &request, None).await["error"]["code"], 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_root_may_call() {
    let lab = Lab::new().await;
    let socket = lab.path("cni.sock");
    let mode = std::fs::metadata(&socket)
        .expect("socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // Even if somebody opens the file to all, the peer's identity decides.
    for path in [lab.directory.path(), &socket] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("mode");
    }
    let call = lab.cni("ADD", "c1", None).uid(65534);
    let own = call
        .var("CNI_NETNS", "/proc/self/ns/net")
        .var("CNI_NETNS_OVERRIDE", "1");
    let answer = own.run().await;
    assert_eq!(answer.code(), 11);
    assert!(
        answer.json()["msg"]
            .as_str()
            .is_some_and(|msg| msg.contains("broke off")),
        "{answer:?}"
    );
    assert!(lab.addresses.held().is_empty());
}

async fn exchange(
    lab: &Lab,
    request: &Value,
    netns: Option<&margay_felix::kernel::Netns>,
) -> Value {
    use std::os::fd::AsFd;
    let (path, message, netns) = (lab.path("cni.sock"), request.to_string(), netns.cloned());
    tokio::task::spawn_blocking(move || {
        let mut stream = UnixStream::connect(path).expect("connect");
        let framed = frame::encode(message.as_bytes()).expect("short");
        margay_cni::scm::send(&stream, &framed, netns.as_ref().map(AsFd::as_fd)).expect("send");
        let answer = frame::read(&mut stream).expect("answer");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("end");
        assert!(rest.is_empty());
        serde_json::from_slice(&answer).expect("json")
    })
    .await
    .expect("task")
}
