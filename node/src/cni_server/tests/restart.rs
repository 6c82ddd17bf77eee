//! The agent stops, dies, comes back.

use std::time::{Duration, Instant};

use serde_json::json;

use super::lab::{Lab, new_netns, reaches};

#[tokio::test(flavor = "multi_thread")]
async fn pods_stay_connected_across_a_restart() {
    let mut lab = Lab::new().await;
    let (first, second) = (new_netns(), new_netns());
    lab.attach("c1", "one", &first).await;
    let two = lab.attach("c2", "two", &second).await;
    lab.stop().await;
    assert!(reaches(&first, &second, two).await);
    lab.restart().await;
    assert!(reaches(&first, &second, two).await);
    assert_eq!(lab.server().endpoints().len(), 2);
    lab.cni("DEL", "c1", Some(&first))
        .pod("one")
        .run()
        .await
        .silent();
    lab.cni("DEL", "c2", Some(&second))
        .pod("two")
        .run()
        .await
        .silent();
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn add_without_an_agent_is_to_be_tried_again() {
    let mut lab = Lab::new().await;
    lab.stop().await;
    lab.add_pod("nginx");
    let pod = new_netns();
    let started = Instant::now();
    assert_eq!(
        lab.cni("ADD", "c1", Some(&pod))
            .wait_ms(1000)
            .run()
            .await
            .code(),
        11
    );
    assert!(
        started.elapsed() >= Duration::from_millis(900),
        "{:?}",
        started.elapsed()
    );
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn add_waits_for_an_agent_that_is_starting() {
    let mut lab = Lab::new().await;
    lab.stop().await;
    lab.add_pod("nginx");
    let pod = new_netns();
    let add = lab.cni("ADD", "c1", Some(&pod));
    let waiting = tokio::spawn(async move { add.run().await });
    lab.start().await;
    let answer = waiting.await.expect("task");
    assert_eq!(answer.exit, 0, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn del_without_an_agent_is_done_when_it_is_back() {
    let mut lab = Lab::new().await;
    let pod = new_netns();
    lab.attach("c1", "nginx", &pod).await;
    lab.stop().await;
    let started = Instant::now();
    lab.cni("DEL", "c1", Some(&pod))
        .wait_ms(200)
        .run()
        .await
        .silent();
    assert!(started.elapsed() < Duration::from_secs(6));
    let tombstone = lab.path("state/pending-del/c1@eth0.json");
    assert!(tombstone.exists());
    lab.start().await;
    assert!(!tombstone.exists());
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_another_boot_give_back_their_addresses() {
    let mut lab = Lab::new().await;
    let pod = new_netns();
    lab.attach("c1", "nginx", &pod).await;
    lab.stop().await;
    // A reboot takes the interfaces along.
    drop(pod);
    lab.start_in_boot("boot-2").await;
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn half_made_attachment_is_removed_at_start() {
    let mut lab = Lab::new().await;
    let pod = new_netns();
    lab.attach("c1", "nginx", &pod).await;
    lab.stop().await;
    let path = lab.path("state/attachments/c1@eth0.json");
    let text = std::fs::read_to_string(&path).expect("record");
    std::fs::write(&path, text.replace("\"ready\"", "\"preparing\"")).expect("write");
    lab.start().await;
    lab.is_clean_soon().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_lets_an_add_under_way_finish() {
    let mut lab = Lab::new().await;
    lab.add_pod("nginx");
    *lab.pods.delay.lock().expect("lock") = Duration::from_millis(500);
    let pod = new_netns();
    let add = lab.cni("ADD", "c1", Some(&pod));
    let running = tokio::spawn(async move { add.run().await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    lab.stop().await;
    let answer = running.await.expect("task");
    assert_eq!(answer.exit, 0, "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_survives_a_short_absence_of_the_agent() {
    let mut lab = Lab::new().await;
    let status = lab
        .cni("STATUS", "", None)
        .set("cniVersion", json!("1.1.0"));
    status.run().await.silent();
    lab.state
        .send_modify(|state| state.unhealthy = Some("fenced".to_owned()));
    assert_eq!(status.run().await.code(), 50);
    lab.state.send_modify(|state| state.unhealthy = None);
    let six = status
        .clone()
        .set("ipam", json!({"type":"calico-ipam","assign_ipv6":"true"}));
    assert_eq!(six.run().await.code(), 50);
    lab.stop().await;
    status.run().await.silent();
    let file = std::fs::File::options()
        .append(true)
        .open(lab.path("status"))
        .expect("touched");
    let old = std::time::SystemTime::now() - Duration::from_secs(70);
    file.set_modified(old).expect("set time");
    assert_eq!(status.run().await.code(), 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_allocator_does_not_hold_up_the_start() {
    let mut lab = Lab::new().await;
    for (id, name) in [("c1", "one"), ("c2", "two")] {
        lab.attach(id, name, &new_netns()).await;
    }
    lab.stop().await;
    lab.addresses.hang(true);
    let started = Instant::now();
    lab.start_in_boot("boot-2").await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
    lab.addresses.hang(false);
    let deadline = Instant::now() + Duration::from_secs(30);
    while !lab.addresses.held().is_empty() {
        assert!(
            Instant::now() < deadline,
            "addresses of the last boot are not released"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
