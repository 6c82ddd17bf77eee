//! What a lab shall be.

use super::{Lab, down, up};
use crate::error::Result;
use crate::names::LabName;
use crate::state::{Shape, Tor};
use crate::underlay::Families;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How far the start has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Steps done.
    pub done: usize,
    /// All steps.
    pub of: usize,
    /// What is being done now.
    pub what: String,
}

/// Told about each step.
pub type Progress = Arc<dyn Fn(&Step) + Send + Sync>;

/// A lab to be made.
#[derive(Clone)]
pub struct Builder {
    pub(super) name: LabName,
    pub(super) shape: Shape,
    /// Manifests applied before the agents start; without any, the agents make the default pools.
    pub(super) pools: Vec<String>,
    pub(super) api_port: Option<u16>,
    pub(super) bound: bool,
    pub(super) recreate: bool,
    pub(super) wait: bool,
    pub(super) nat_outgoing: bool,
    pub(super) progress: Progress,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("name", &self.name)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn named(name: LabName) -> Self {
        Self {
            name,
            shape: Shape {
                nodes: 3,
                tor: None,
                families: Families::V4,
                pods_per_node: 4,
            },
            pools: Vec::new(),
            api_port: None,
            bound: false,
            recreate: false,
            wait: true,
            nat_outgoing: true,
            progress: Arc::new(|_| {}),
        }
    }

    /// A lab of a test: one pod per node, a name of its own, gone with the value. Also takes down labs whose test
    /// process was killed.
    pub(super) fn bound() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("t{}x{number}", std::process::id());
        // Letters and digits only, at most 1 + 10 + 1 + 10 of them.
        #[expect(clippy::expect_used, reason = "the pattern above is always a lab name")]
        let name = LabName::new(&name).expect("a lab name");
        let named = Self::named(name);
        let shape = Shape {
            pods_per_node: 1,
            ..named.shape
        };
        Self {
            shape,
            bound: true,
            ..named
        }
    }

    /// Number of nodes, 1 to 250.
    pub fn nodes(mut self, nodes: u8) -> Self {
        self.shape.nodes = nodes;
        self
    }

    /// Adds a top-of-rack router that all nodes peer with.
    pub fn tor(mut self, tor: impl Into<Option<Tor>>) -> Self {
        self.shape.tor = tor.into();
        self
    }

    /// Address families of nodes and pods.
    pub fn families(mut self, families: Families) -> Self {
        self.shape.families = families;
        self
    }

    /// Pods started on each node.
    pub fn pods_per_node(mut self, pods: u16) -> Self {
        self.shape.pods_per_node = pods;
        self
    }

    /// Applies these manifests before the agents start; the agents then make no default pools.
    pub fn pools(mut self, manifest: impl Into<String>) -> Self {
        self.pools.push(manifest.into());
        self
    }

    /// `natOutgoing` of the default IPv4 pool.
    pub fn nat_outgoing(mut self, on: bool) -> Self {
        self.nat_outgoing = on;
        self
    }

    /// Loopback port of the API server; without it a free one is taken.
    pub fn api_port(mut self, port: impl Into<Option<u16>>) -> Self {
        self.api_port = port.into();
        self
    }

    /// Takes down what is left of a lab of this name first.
    pub fn recreate(mut self, yes: bool) -> Self {
        self.recreate = yes;
        self
    }

    /// Whether [`Builder::up`] waits until every session is up and everybody reaches everybody; it does by default.
    pub fn wait(mut self, yes: bool) -> Self {
        self.wait = yes;
        self
    }

    /// Who is told about progress.
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = progress;
        self
    }

    /// Makes the lab and waits until it has converged. A healthy lab of the same shape is left as it is.
    ///
    /// # Errors
    /// [`crate::Kind::Preflight`] when the machine lacks something, [`crate::Kind::Exists`] for a lab of another shape,
    /// [`crate::Kind::Leftover`] for a broken one, [`crate::Kind::Timeout`] when it does not converge. Nothing is left
    /// of a lab that could not be made; one that merely does not converge stays for inspection unless it is bound.
    pub async fn up(self) -> Result<Lab> {
        if self.bound {
            down::sweep_orphans();
        }
        up::up(self).await
    }
}
