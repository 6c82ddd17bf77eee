//! The controller against a real API server.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use margay_apiserver::{Config, Server};
use margay_controller::{ControllerConfig, Report};
use margay_crds::{BlockAffinity, IP_POOL_FINALIZER, IPAMBlock, IPAMHandle, IPPool, Tier};
use margay_ipam::{AssignRequest, Ipam, IpamConfig, KubeStore, Settings};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

struct Cluster {
    folder: tempfile::TempDir,
    server: Server,
    client: Client,
}

struct Replica {
    stop: watch::Sender<bool>,
    report: watch::Receiver<Report>,
    task: JoinHandle<()>,
}

impl Cluster {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::new(folder.path().join("data"));
        config.listen = vec!["127.0.0.1:0".parse().expect("an address")];
        config.crds = margay_crds::manifests::ALL;
        let server = Server::start(config).await.expect("starts");
        let kubeconfig =
            kube::config::Kubeconfig::read_from(folder.path().join("data/admin.kubeconfig"))
                .expect("written");
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default())
            .await
            .expect("usable");
        Cluster {
            client: Client::try_from(config).expect("a client"),
            folder,
            server,
        }
    }

    fn controller(&self, identity: &str) -> Replica {
        let config = ControllerConfig {
            dead_node_after: Duration::from_secs(2),
            leftover_after: Duration::from_secs(1),
            sweep_interval: Duration::from_millis(500),
            lease_duration: Duration::from_secs(3),
            renew_deadline: Duration::from_secs(2),
            retry_period: Duration::from_millis(200),
            ..ControllerConfig::new("kube-system", identity)
        };
        let (stop, stopping) = watch::channel(false);
        let (reports, report) = watch::channel(Report::default());
        let task = tokio::spawn(margay_controller::run(
            self.client.clone(),
            config,
            reports,
            stopping,
        ));
        Replica { stop, report, task }
    }

    async fn agent(&self, node: &str) -> Ipam {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": node}})).expect("a node");
        let _ = nodes.create(&PostParams::default(), &object).await;
        let config = IpamConfig {
            journal: self.folder.path().join(node).join("journal"),
            settings: Settings::default(),
            ..IpamConfig::for_node(node)
        };
        let ipam = Ipam::start(KubeStore::new(self.client.clone()), config).expect("starts");
        ipam.wait_synced().await;
        ipam
    }

    fn pools(&self) -> Api<IPPool> {
        Api::all(self.client.clone())
    }

    async fn pool(&self, name: &str, spec: serde_json::Value) {
        let pool = json!({"apiVersion": "projectcalico.org/v3", "kind": "IPPool", "metadata": {"name": name}, "spec": spec});
        let pool = serde_json::from_value(pool).expect("a pool");
        self.pools()
            .create(&PostParams::default(), &pool)
            .await
            .expect("created");
    }

    async fn condition(&self, pool: &str) -> Option<(String, String, String)> {
        let pool = self.pools().get_opt(pool).await.expect("readable")?;
        let condition = pool.status?.conditions?.into_iter().next()?;
        Some((condition.status, condition.reason, condition.message))
    }

    async fn count<K>(&self) -> usize
    where
        K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        let api: Api<K> = Api::all(self.client.clone());
        api.list(&ListParams::default())
            .await
            .expect("readable")
            .items
            .len()
    }
}

impl Replica {
    async fn leading(&mut self) {
        let wait = self
            .report
            .wait_for(|report| report.leading && report.synced);
        tokio::time::timeout(Duration::from_secs(20), wait)
            .await
            .expect("in time")
            .expect("runs");
    }

    async fn stop(self) {
        self.stop.send_replace(true);
        tokio::time::timeout(Duration::from_secs(5), self.task)
            .await
            .expect("in time")
            .expect("ends");
    }
}

async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !check().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn pod(handle: &str) -> AssignRequest {
    AssignRequest::workload(handle, 1, 0)
        .attr("pod", handle)
        .attr("namespace", "shop")
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_get_their_verdict_and_bad_ones_an_event() {
    let cluster = Cluster::start().await;
    let mut controller = cluster.controller("c1");
    controller.leading().await;
    cluster.pool("main", json!({"cidr": "10.244.0.0/16"})).await;
    eventually("main is allocatable", || async {
        cluster
            .condition("main")
            .await
            .is_some_and(|(status, reason, _)| status == "True" && reason == "OK")
    })
    .await;
    let main = cluster.pools().get("main").await.expect("there");
    assert_eq!(main.finalizers(), [IP_POOL_FINALIZER]);

    cluster
        .pool("a-late", json!({"cidr": "10.244.0.0/17"}))
        .await;
    cluster
        .pool(
            "typo",
            json!({"cidr": "10.5.0.0/16", "nodeSelector": "zone ="}),
        )
        .await;
    eventually("the late pool is refused", || async {
        cluster
            .condition("a-late")
            .await
            .is_some_and(|(_, reason, _)| reason == "CIDROverlap")
    })
    .await;
    eventually("the typo is refused", || async {
        cluster
            .condition("typo")
            .await
            .is_some_and(|(status, _, message)| {
                status == "False" && message.contains("spec.nodeSelector")
            })
    })
    .await;
    let events: Api<Event> = Api::all(cluster.client.clone());
    eventually("there are Events", || async {
        let events = events
            .list(&ListParams::default())
            .await
            .expect("readable")
            .items;
        ["a-late", "typo"].iter().all(|pool| {
            events.iter().any(|event| {
                event.reason.as_deref() == Some("PoolInvalid")
                    && event.reporting_controller.as_deref() == Some("margay.io/controller")
                    && event.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(*pool)
            })
        })
    })
    .await;
    let ipam = cluster.agent("n1").await;
    let assigned = ipam.auto_assign(pod("c1")).await.expect("assigned");
    assert_eq!(assigned.v4.ips[0].pool.as_deref(), Some("main"));

    // Repairing what was written is enough.
    let patch = Patch::Merge(json!({"spec": {"nodeSelector": "zone == 'a'"}}));
    cluster
        .pools()
        .patch("typo", &PatchParams::default(), &patch)
        .await
        .expect("patched");
    eventually("the typo is gone", || async {
        cluster
            .condition("typo")
            .await
            .is_some_and(|(status, ..)| status == "True")
    })
    .await;
    controller.stop().await;
    cluster.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_pool_waits_for_its_last_address() {
    let cluster = Cluster::start().await;
    let mut controller = cluster.controller("c1");
    controller.leading().await;
    cluster.pool("main", json!({"cidr": "10.244.0.0/16"})).await;
    cluster.pool("next", json!({"cidr": "10.245.0.0/16"})).await;
    eventually("main is guarded", || async {
        !cluster
            .pools()
            .get("main")
            .await
            .expect("there")
            .finalizers()
            .is_empty()
    })
    .await;
    let ipam = cluster.agent("n1").await;
    ipam.auto_assign(pod("c1")).await.expect("assigned");
    cluster
        .pools()
        .delete("main", &DeleteParams::default())
        .await
        .expect("deleted");
    eventually("the block is nobody's", || async {
        cluster.count::<BlockAffinity>().await == 0
    })
    .await;
    assert_eq!(
        cluster.condition("main").await.map(|c| c.1).as_deref(),
        Some("Terminating")
    );
    eventually("the agent knows", || async { ipam.own_blocks().is_empty() }).await;
    let assigned = ipam.auto_assign(pod("c2")).await.expect("assigned");
    assert_eq!(assigned.v4.ips[0].pool.as_deref(), Some("next"));
    assert!(
        cluster
            .pools()
            .get_opt("main")
            .await
            .expect("readable")
            .is_some()
    );
    ipam.configure(Settings {
        reuse_floor: Duration::ZERO,
        flush_interval: Duration::from_millis(200),
        ..Settings::default()
    });
    ipam.release_by_handle("c1").await.expect("released");
    eventually("the pool is gone", || async {
        cluster
            .pools()
            .get_opt("main")
            .await
            .expect("readable")
            .is_none()
    })
    .await;
    controller.stop().await;
    cluster.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_a_node_that_is_gone_are_released_when_its_pods_are_gone_too() {
    let cluster = Cluster::start().await;
    let mut controller = cluster.controller("c1");
    controller.leading().await;
    cluster.pool("main", json!({"cidr": "10.244.0.0/16"})).await;
    let (dead, alive) = (cluster.agent("dead").await, cluster.agent("alive").await);
    for ipam in [&dead, &alive] {
        ipam.auto_assign(pod(&format!("pod-{}", ipam.status().node)))
            .await
            .expect("assigned");
    }
    let kept: Vec<IpAddr> = alive
        .own_blocks()
        .iter()
        .map(|block| block.cidr.network())
        .collect();
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let bound = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "dead", "containers": [{"name": "c", "image": "i"}]}});
    pods.create(
        &PostParams::default(),
        &serde_json::from_value(bound).expect("a pod"),
    )
    .await
    .expect("created");
    dead.stop(Duration::from_secs(1)).await;
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    nodes
        .delete("dead", &DeleteParams::default())
        .await
        .expect("deleted");
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(
        cluster.count::<IPAMBlock>().await,
        2,
        "a pod is still bound to it"
    );
    pods.delete("p", &DeleteParams::default())
        .await
        .expect("deleted");
    eventually("its block is gone", || async {
        cluster.count::<IPAMBlock>().await == 1 && cluster.count::<BlockAffinity>().await == 1
    })
    .await;
    let left: Vec<IpAddr> = alive
        .own_blocks()
        .iter()
        .map(|block| block.cidr.network())
        .collect();
    assert_eq!(left, kept);
    controller.stop().await;
    cluster.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_crashes_leave_behind_is_swept() {
    let cluster = Cluster::start().await;
    cluster.pool("main", json!({"cidr": "10.244.0.0/16"})).await;
    let ipam = cluster.agent("n1").await;
    ipam.configure(Settings::write_through());
    ipam.auto_assign(pod("kept")).await.expect("assigned");
    let handles: Api<IPAMHandle> = Api::all(cluster.client.clone());
    let orphan = json!({"apiVersion": "projectcalico.org/v3", "kind": "IPAMHandle", "metadata": {"name": "orphan"},
        "spec": {"handleID": "orphan", "block": {"10.244.0.0/26": 1}, "deleted": false}});
    handles
        .create(
            &PostParams::default(),
            &serde_json::from_value(orphan).expect("a handle"),
        )
        .await
        .expect("created");
    let affinities: Api<BlockAffinity> = Api::all(cluster.client.clone());
    let stale = margay_ipam::write::affinity_for(
        &margay_ipam::block::Owner::Host("n1".into()),
        &"10.244.99.0/26".parse().expect("a network"),
        margay_crds::AffinityState::Pending,
    );
    affinities
        .create(&PostParams::default(), &stale)
        .await
        .expect("created");
    let mut controller = cluster.controller("c1");
    controller.leading().await;
    eventually("the leftovers are gone", || async {
        cluster.count::<IPAMHandle>().await == 1 && cluster.count::<BlockAffinity>().await == 1
    })
    .await;
    assert!(handles.get_opt("kept").await.expect("readable").is_some());
    assert_eq!(ipam.own_blocks().len(), 1);
    controller.stop().await;
    cluster.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_built_in_tiers_exist_and_are_guarded() {
    let cluster = Cluster::start().await;
    let mut controller = cluster.controller("c1");
    controller.leading().await;
    let tiers: Api<Tier> = Api::all(cluster.client.clone());
    eventually("three tiers", || async {
        let tiers = tiers
            .list(&ListParams::default())
            .await
            .expect("readable")
            .items;
        tiers.len() == 3 && tiers.iter().all(|tier| !tier.finalizers().is_empty())
    })
    .await;
    controller.stop().await;
    cluster.server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_leads_and_the_next_takes_over() {
    let cluster = Cluster::start().await;
    let mut first = cluster.controller("c1");
    first.leading().await;
    let mut second = cluster.controller("c2");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!second.report.borrow().leading);
    // Given back on a clean stop: no need to wait for the lease to run out.
    first.stop().await;
    let start = Instant::now();
    second.leading().await;
    assert!(start.elapsed() < Duration::from_secs(3));
    // A replica that dies without a word is followed after the duration of the lease.
    second.task.abort();
    let mut third = cluster.controller("c3");
    third.leading().await;
    third.stop().await;
    cluster.server.stop().await;
}
