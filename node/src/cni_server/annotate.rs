//! The pod's address annotations, written after ADD and DEL have answered: other programs learn the addresses from them
//! before the kubelet reports them, but a pod need not wait for that.

use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use margay_cni::attachment::Attachment;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::deps::{PodPatch, PodSource, PodUpdate};

const POD_IP: &str = "cni.projectcalico.org/podIP";
const POD_IPS: &str = "cni.projectcalico.org/podIPs";
const CONTAINER_ID: &str = "cni.projectcalico.org/containerID";

/// First pause after a failure; doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// A patch that fails this often is given up: the kubelet's own status says the same by then.
const ATTEMPTS: u32 = 20;

/// A patch to be written some time soon.
#[derive(Debug)]
pub(super) struct Annotation(Option<PodPatch>);

impl Annotation {
    /// The addresses of an attachment.
    pub(super) fn set(record: &Attachment) -> Annotation {
        let all: Vec<String> = record.ips.iter().map(IpNet::to_string).collect();
        let first = all.first().cloned().unwrap_or_default();
        Annotation::of(
            record,
            None,
            vec![
                (POD_IP.to_owned(), first),
                (POD_IPS.to_owned(), all.join(",")),
                (CONTAINER_ID.to_owned(), record.key.container_id.clone()),
            ],
        )
    }

    /// No addresses any more, unless another container of the pod has set its own by now.
    pub(super) fn clear(record: &Attachment) -> Annotation {
        Annotation::of(
            record,
            Some(record.key.container_id.clone()),
            vec![
                (POD_IP.to_owned(), String::new()),
                (POD_IPS.to_owned(), String::new()),
            ],
        )
    }

    fn of(
        record: &Attachment,
        only_container: Option<String>,
        annotations: Vec<(String, String)>,
    ) -> Annotation {
        Annotation(record.pod.as_ref().map(|pod| PodPatch {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            only_container,
            annotations,
        }))
    }
}

/// Writes annotations in the background, those of one pod in order.
pub(super) struct Annotator {
    queue: mpsc::UnboundedSender<PodPatch>,
}

impl Annotator {
    pub(super) fn start(pods: Arc<dyn PodSource>, stop: CancellationToken) -> Annotator {
        let (queue, mut patches) = mpsc::unbounded_channel::<PodPatch>();
        tokio::spawn(async move {
            let mut writers: std::collections::HashMap<String, mpsc::UnboundedSender<PodPatch>> =
                std::collections::HashMap::new();
            while let Some(patch) = patches.recv().await {
                writers.retain(|_, writer| !writer.is_closed());
                let name = format!("{}/{}", patch.namespace, patch.name);
                let patch = match writers.get(&name) {
                    Some(writer) => match writer.send(patch) {
                        Ok(()) => continue,
                        Err(mpsc::error::SendError(patch)) => patch,
                    },
                    None => patch,
                };
                let (writer, rest) = mpsc::unbounded_channel();
                let _ = writer.send(patch);
                writers.insert(name, writer);
                tokio::spawn(write_all(Arc::clone(&pods), rest, stop.clone()));
            }
        });
        Annotator { queue }
    }

    pub(super) fn queue(&self, annotation: Annotation) {
        if let Some(patch) = annotation.0 {
            let _ = self.queue.send(patch);
        }
    }
}

async fn write_all(
    pods: Arc<dyn PodSource>,
    mut patches: mpsc::UnboundedReceiver<PodPatch>,
    stop: CancellationToken,
) {
    while let Some(patch) = next(&mut patches) {
        let mut pause = FIRST_PAUSE;
        for attempt in 1..=ATTEMPTS {
            match pods.patch(patch.clone()).await {
                Ok(PodUpdate::Done) => break,
                Ok(PodUpdate::Gone) => {
                    tracing::debug!(
                        namespace = patch.namespace,
                        pod = patch.name,
                        "pod is gone, not annotated"
                    );
                    break;
                }
                Err(error) => {
                    tracing::debug!(namespace = patch.namespace, pod = patch.name, %error, attempt, "pod not annotated");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = MAX_PAUSE.min(pause * 2);
        }
    }
}

/// The next patch; closes the queue when it is empty, so that a later one starts a new writer.
fn next(patches: &mut mpsc::UnboundedReceiver<PodPatch>) -> Option<PodPatch> {
    if let Ok(patch) = patches.try_recv() {
        return Some(patch);
    }
    patches.close();
    patches.try_recv().ok()
}
