//! Random interleavings of several nodes over a store that loses requests and replies.

use proptest::prelude::*;

use super::*;
use crate::block::faults;

#[derive(Debug, Clone)]
enum Step {
    Assign { node: usize, count: usize },
    Release { pick: usize },
    Kill { node: usize },
    Pass { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..3, 1usize..4).prop_map(|(node, count)| Step::Assign { node, count }),
        4 => (0usize..100).prop_map(|pick| Step::Release { pick }),
        1 => (0usize..3).prop_map(|node| Step::Kill { node }),
        2 => (0u64..40).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// What the test believes to be in use.
#[derive(Default)]
struct Model {
    used: BTreeMap<IpAddr, String>,
    owner: BTreeMap<String, usize>,
}

impl Model {
    fn give(&mut self, node: usize, handle: &str, assigned: &Assigned) {
        for ip in assigned.ips() {
            let before = self.used.insert(ip.ip, handle.to_owned());
            assert_eq!(before, None, "{} handed out twice", ip.ip);
        }
        self.owner.insert(handle.to_owned(), node);
    }

    fn take(&mut self, handle: &str) {
        self.used.retain(|_, held| held != handle);
        self.owner.remove(handle);
    }
}

async fn run(steps: Vec<Step>, settings: Settings, seed: u64, trouble: f64) {
    let cluster = Cluster::new();
    cluster.sized("p", "10.0.0.0/26", 29);
    cluster.sized("q", "10.1.0.0/24", 27);
    let names = ["n0", "n1", "n2"];
    let mut agents = Vec::new();
    for name in names {
        agents.push(cluster.agent(name, settings).await);
    }
    cluster.store.misbehave(seed, trouble);
    let mut model = Model::default();
    let mut pending = Vec::new();
    let mut next = 0;
    for step in steps {
        match step {
            Step::Assign { node, count } => {
                let handle = format!("h{next}");
                next += 1;
                let ipam = agents[node].clone();
                let named = handle.clone();
                let call = tokio::spawn(async move { ipam.auto_assign(pods(&named, count)).await });
                pending.push((node, handle, call));
                // Several run at once.
                if pending.len() >= 3 {
                    settle(&mut model, &mut pending).await;
                }
            }
            Step::Release { pick } => {
                settle(&mut model, &mut pending).await;
                let Some((handle, node)) = model
                    .owner
                    .iter()
                    .nth(pick % model.owner.len().max(1))
                    .map(|(h, n)| (h.clone(), *n))
                else {
                    continue;
                };
                // From the moment it is asked for, the address may go to others.
                model.take(&handle);
                let _ = agents[node].release_by_handle(&handle).await;
            }
            Step::Kill { node } => {
                settle(&mut model, &mut pending).await;
                agents[node] = cluster.agent(names[node], settings).await;
            }
            Step::Pass { seconds } => {
                settle(&mut model, &mut pending).await;
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
        }
        for object in cluster.all::<IPAMBlock>().await {
            assert_eq!(faults(&object.spec), vec![]);
        }
    }
    settle(&mut model, &mut pending).await;
    cluster.store.behave();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let held = cluster.held().await;
    for (ip, handle) in &model.used {
        assert_eq!(held.get(ip), Some(handle), "{ip}");
    }
    if trouble == 0.0 && settings == Settings::write_through() {
        cluster.check_handles().await;
        assert_eq!(held, model.used);
    }
    check_counts(&cluster).await;
}

/// Handles never count less than the blocks hold.
async fn check_counts(cluster: &Cluster) {
    for handle in cluster.all::<IPAMHandle>().await {
        for (cidr, count) in handle.spec.block {
            let cidr = cidr.parse().expect("a network");
            let block = cluster
                .try_get::<IPAMBlock>(&crate::names::block_name(&cidr))
                .await;
            let held = block.map_or(0, |b| {
                Block::open(b)
                    .expect("valid")
                    .held_by(&handle.spec.handle_id)
                    .len()
            });
            assert!(
                count >= held as i64,
                "{}: {count} < {held}",
                handle.spec.handle_id
            );
        }
    }
}

type Call = tokio::task::JoinHandle<Result<Assigned, crate::request::AssignError>>;

async fn settle(model: &mut Model, pending: &mut Vec<(usize, String, Call)>) {
    for (node, handle, call) in pending.drain(..) {
        if let Ok(assigned) = call.await.expect("does not panic") {
            model.give(node, &handle, &assigned);
        }
    }
}

fn simulate(steps: Vec<Step>, settings: Settings, seed: u64, trouble: f64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(run(steps, settings, seed, trouble));
}

/// A few cases by default, as many as wanted when PROPTEST_CASES says so.
fn cases() -> ProptestConfig {
    let wanted = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|text| text.parse().ok());
    ProptestConfig::with_cases(wanted.unwrap_or(48))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn no_address_is_ever_handed_out_twice_with_a_reserve(
        steps in proptest::collection::vec(step(), 1..40),
        seed: u64,
        trouble in prop_oneof![Just(0.0), Just(0.1), Just(0.4)],
    ) {
        simulate(steps, Settings::default(), seed, trouble);
    }

    #[test]
    fn no_address_is_ever_handed_out_twice_when_all_is_written_at_once(
        steps in proptest::collection::vec(step(), 1..40),
        seed: u64,
        trouble in prop_oneof![Just(0.0), Just(0.1), Just(0.4)],
    ) {
        simulate(steps, Settings::write_through(), seed, trouble);
    }
}
