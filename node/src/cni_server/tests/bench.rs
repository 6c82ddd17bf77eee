//! What ADD and DEL cost, with the executable and without an API.

use std::time::{Duration, Instant};

use super::lab::{Lab, new_netns};

#[tokio::test(flavor = "multi_thread")]
async fn add_and_del_stay_within_their_budget() {
    let lab = Lab::new().await;
    let (mut adds, mut dels) = (Vec::new(), Vec::new());
    for round in 0..20 {
        let (pod, name) = (new_netns(), format!("pod-{round}"));
        lab.add_pod(&name);
        let add = lab.cni("ADD", &name, Some(&pod)).pod(&name);
        let started = Instant::now();
        assert_eq!(add.run().await.exit, 0);
        adds.push(started.elapsed());
        let started = Instant::now();
        lab.cni("DEL", &name, Some(&pod))
            .pod(&name)
            .run()
            .await
            .silent();
        dels.push(started.elapsed());
    }
    adds.sort_unstable();
    dels.sort_unstable();
    eprintln!(
        "ADD median {:?}, max {:?}; DEL median {:?}, max {:?}",
        adds[10], adds[19], dels[10], dels[19]
    );
    // A debug build on a busy machine: only gross mistakes (waiting for a timer, a grace period) fail here.
    assert!(adds[10] < Duration::from_millis(500), "{adds:?}");
    assert!(dels[10] < Duration::from_millis(500), "{dels:?}");
}
