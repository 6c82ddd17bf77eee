//! Making a lab.

use super::builder::{Builder, Step};
use super::{Lab, blocking, client, down, network, objects, units};
use crate::error::{Error, Kind, Result, Tried};
use crate::names::LabName;
use crate::namespaces::{self, PrivatePaths};
use crate::preflight;
use crate::programs::Programs;
use crate::state::{Node, Phase, Router, Shape, State, lock_all};
use crate::tor;
use crate::underlay::{API_PORT, MAX_NODES};
use futures::future::try_join_all;
use std::fs;
use std::time::{Duration, Instant};

/// How long the API server may take until it is ready.
const API_READY: Duration = Duration::from_secs(30);

pub(super) async fn up(builder: Builder) -> Result<Lab> {
    check(&builder.shape)?;
    preflight::machine()?;
    let programs = Programs::find()?;
    if builder.recreate {
        down::down(&builder.name)?;
    }
    if let Some(lab) = existing(&builder).await? {
        return Ok(lab);
    }
    let state = claim(&builder)?;
    let result = Box::pin(make(&builder, &programs, state)).await;
    match result {
        Ok(lab) => Ok(lab),
        // A lab that is complete but does not converge is worth a look; anything less is not.
        Err(e) if !builder.bound && is_complete(&builder.name) => {
            let name = &builder.name;
            Err(e.remedy(format!(
                "the lab still runs: margayctl lab status {name}; logs are in {}",
                name.dir().display()
            )))
        }
        Err(e) => {
            down::down(&builder.name)?;
            Err(e)
        }
    }
}

fn check(shape: &Shape) -> Result<()> {
    if shape.nodes == 0 || usize::from(shape.nodes) > MAX_NODES {
        let why = format!("must be 1 to {MAX_NODES}");
        return Err(Error::new("number of nodes", why).kind(Kind::Usage));
    }
    Ok(())
}

fn is_complete(name: &LabName) -> bool {
    State::load(name)
        .ok()
        .flatten()
        .is_some_and(|s| s.phase == Phase::Running)
}

/// The lab of this name, if it runs and has this shape.
async fn existing(builder: &Builder) -> Result<Option<Lab>> {
    let name = &builder.name;
    let Some(found) = super::list::look(name)? else {
        return Ok(None);
    };
    match (found.condition, found.shape) {
        (super::Condition::Starting, _) => Err(Error::new(
            format!("lab {name}"),
            "another process is making it just now",
        )
        .kind(Kind::Exists)),
        (super::Condition::Broken(why), _) => {
            Err(Error::new(format!("lab {name} is left over"), why)
                .kind(Kind::Leftover)
                .remedy(format!(
                    "margayctl lab down {name}, or the same command with --recreate"
                )))
        }
        (super::Condition::Running, Some(shape)) if shape == builder.shape => {
            let lab = Lab::open(name).await?;
            if builder.wait {
                lab.converged(super::converge::LIMIT).await?;
            }
            Ok(Some(lab))
        }
        (super::Condition::Running, shape) => {
            let has = shape.map_or_else(|| "an unknown shape".to_owned(), |s| s.words());
            Err(Error::new(
                format!("lab {name} runs already"),
                format!("with {has}, not {}", builder.shape.words()),
            )
            .kind(Kind::Exists)
            .remedy(format!(
                "margayctl lab down {name}, or --recreate, or another name"
            )))
        }
    }
}

/// Takes the name: folder, first namespace, file. Nobody else can take it from here on.
fn claim(builder: &Builder) -> Result<State> {
    let name = &builder.name;
    let _lock = lock_all()?;
    namespaces::prepare_directory()?;
    fs::create_dir(name.dir()).tried(|| format!("cannot make {}", name.dir().display()))?;
    let made = namespaces::mount_lab_folder(name).and_then(|()| {
        let state = State::new(name.clone(), builder.shape.clone(), builder.bound)?;
        state.save()?;
        namespaces::create(&state.fabric)?;
        Ok(state)
    });
    made.inspect_err(|_| {
        namespaces::delete(&name.netns("fabric")).unwrap_or_default();
        namespaces::unmount(&name.dir());
        // An empty folder is all that is left; the next attempt reports it if it cannot be removed.
        let _ = fs::remove_dir(name.dir());
    })
}

struct Steps<'a> {
    builder: &'a Builder,
    done: usize,
    of: usize,
}

impl Steps<'_> {
    fn next(&mut self, what: impl Into<String>) {
        (self.builder.progress)(&Step {
            done: self.done,
            of: self.of,
            what: what.into(),
        });
        self.done += 1;
    }
}

async fn make(builder: &Builder, programs: &Programs, mut state: State) -> Result<Lab> {
    let start = Instant::now();
    let mut steps = Steps {
        builder,
        done: 0,
        of: 7,
    };
    steps.next("namespaces");
    let fabric = state.fabric.clone();
    blocking(move || preflight::kernel(&fabric)).await?;
    (state.nodes, state.tor) = members(&state);
    state.save()?;
    let all = state.clone();
    blocking(move || make_namespaces(&all)).await?;
    network::connect(&state).await?;
    state
        .nodes
        .iter()
        .try_for_each(|node| units::install_cni(programs, node))?;

    steps.next("API server");
    let (sockets, port) = units::api_sockets(&state, builder.api_port)?;
    state.api_url = format!("https://127.0.0.1:{port}");
    state.fabric_url = match state.shape.families.fabric().first() {
        Some(ip) if ip.is_ipv6() => format!("https://[{ip}]:{API_PORT}"),
        Some(ip) => format!("https://{ip}:{API_PORT}"),
        None => state.api_url.clone(),
    };
    let server = units::apiserver(&state, programs, sockets);
    let pid = server.start(state.name.as_str())?;
    state.processes.insert("apiserver".into(), pid);
    state.save()?;
    let kube = api_ready(&state, pid).await?;
    let lab = Lab {
        name: state.name.clone(),
        programs: programs.clone(),
        kube,
        bound: builder.bound,
    };

    steps.next("objects");
    let settings = units::AgentSettings {
        default_pools: builder.pools.is_empty(),
        nat_outgoing: builder.nat_outgoing,
    };
    settings.save(&state)?;
    let (files, registered) = tokio::join!(
        kubeconfigs(&state, programs),
        objects::register_nodes(&lab.kube, &state)
    );
    files.and(registered)?;
    for manifest in &builder.pools {
        lab.apply(manifest).await?;
    }
    if state.tor.is_some() {
        lab.apply_for(super::manifests::TOR_PEERS, state.shape.families)
            .await?;
    }

    steps.next("agents");
    state.processes.insert(
        "controller".into(),
        units::controller(&state, programs).start(state.name.as_str())?,
    );
    for node in &state.nodes {
        let agent = units::agent(&state, programs, node, &settings);
        state
            .processes
            .insert(node.name.clone(), agent.start(state.name.as_str())?);
    }
    // On file before anything else can fail, so that a later `down` finds them.
    state.save()?;
    if let Some(router) = state.tor.clone() {
        steps.next(format!("router {} ({})", router.name, router.kind.as_str()));
        let started = units::start_router(&state, programs, &router).await?;
        state.processes.extend(started);
    } else {
        steps.done += 1;
    }
    state.phase = Phase::Running;
    state.save()?;

    steps.next(format!(
        "pods {}",
        usize::from(state.shape.nodes) * usize::from(state.shape.pods_per_node)
    ));
    lab.start_pods(&state).await?;
    if builder.wait {
        steps.next("convergence");
        lab.converged(super::converge::LIMIT).await?;
    }
    steps.done = steps.of;
    steps.next(format!("{:.1}s", start.elapsed().as_secs_f64()));
    Ok(lab)
}

fn members(state: &State) -> (Vec<Node>, Option<Router>) {
    let (name, families) = (&state.name, state.shape.families);
    let nodes = (1..=state.shape.nodes).map(|i| {
        let member = format!("n{i}");
        let folder = name.dir().join(&member);
        Node {
            netns: name.netns(&member),
            mount_namespace: name.dir().join(format!("{member}.mnt")),
            admin_socket: folder.join("run/margay/admin.sock"),
            addresses: families.node(i),
            folder,
            name: member,
        }
    });
    let tor = state.shape.tor.map(|kind| Router {
        name: "tor1".into(),
        kind,
        netns: name.netns("tor1"),
        folder: name.dir().join("tor1"),
        mount_namespace: name.dir().join("tor1.mnt"),
        addresses: families.tor(),
        behind: families.behind_tor(),
    });
    (nodes.collect(), tor)
}

/// Network and mount namespaces of all members, side by side.
fn make_namespaces(state: &State) -> Result<()> {
    let nodes = state.nodes.iter().map(|n| {
        (
            &n.netns,
            &n.folder,
            &n.mount_namespace,
            units::NODE_PATHS,
            Vec::new(),
        )
    });
    let tor = state.tor.iter().map(|t| {
        (
            &t.netns,
            &t.folder,
            &t.mount_namespace,
            tor::PRIVATE_PATHS,
            tor::private_files(t.kind),
        )
    });
    let members: Vec<_> = nodes.chain(tor).collect();
    // First all names: a mount namespace made afterwards then has them from the beginning.
    std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .iter()
            .map(|(netns, ..)| scope.spawn(|| namespaces::create(netns)))
            .collect();
        join(threads)
    })?;
    std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .iter()
            .map(|(_, folder, file, paths, files)| {
                let private = PrivatePaths {
                    folder: (*folder).clone(),
                    paths,
                    files: files.clone(),
                };
                scope.spawn(|| namespaces::keep_mount_namespace(&state.name, private, file))
            })
            .collect();
        join(threads)
    })
}

fn join(threads: Vec<std::thread::ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    let results = threads.into_iter().map(|t| {
        t.join()
            .unwrap_or_else(|_| Err(Error::new("cannot make a namespace", "the thread panicked")))
    });
    results.collect()
}

/// Waits until the API server is ready; its administrator's kubeconfig becomes the lab's.
async fn api_ready(state: &State, pid: crate::process::Pid) -> Result<kube::Client> {
    let written = units::data_dir(state).join("admin.kubeconfig");
    let log = units::log_of(state, "apiserver");
    units::until(API_READY, "the API server", &log, pid, || written.exists()).await?;
    fs::copy(&written, &state.kubeconfig)
        .tried(|| format!("cannot write {}", state.kubeconfig.display()))?;
    let kube = client(&state.kubeconfig).await?;
    let deadline = Instant::now() + API_READY;
    loop {
        let request = http::Request::get("/readyz")
            .body(Vec::new())
            .tried(|| "readyz".to_owned())?;
        match kube.request_text(request).await {
            Ok(_) => return Ok(kube),
            Err(e) if Instant::now() >= deadline || !pid.is_alive() => {
                let why = format!("{e}; its log says: {}", crate::process::tail(&log, 5));
                return Err(Error::new("the API server is not ready", why));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn kubeconfigs(state: &State, programs: &Programs) -> Result<()> {
    let of_nodes = state.nodes.iter().map(|node| {
        (
            format!("system:node:{}", node.name),
            "system:nodes",
            node.folder.join("kubeconfig"),
        )
    });
    let controller = state.name.dir().join("controller.kubeconfig");
    let of_controller = (
        "system:serviceaccount:kube-system:margay-controller".to_owned(),
        "system:serviceaccounts",
        controller,
    );
    let jobs = of_nodes.chain([of_controller]).map(|(user, group, out)| {
        let (state, programs) = (state.clone(), programs.clone());
        blocking(move || units::issue_kubeconfig(&state, &programs, &user, group, &out))
    });
    try_join_all(jobs).await.map(|_| ())
}
