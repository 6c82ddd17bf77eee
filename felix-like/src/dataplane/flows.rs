//! Forgetting tracked connections, on a thread of its own: reading a large table takes longer than a pod should wait.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::mpsc;

use ipnet::IpNet;

use super::reactor::Input;
use crate::kernel::conntrack::{Conntrack, Flow};
use crate::kernel::{KernelError, NetnsError};

/// What to forget.
#[derive(Debug, Clone)]
pub(super) enum FlowJob {
    /// Everything these addresses take part in; a notice follows when it is done, because the addresses' new routes
    /// wait for it.
    Of(Vec<IpAddr>),
    /// Flows out of `from` to anywhere but `inside` and `hosts` whose source is not translated: they began before the
    /// rule that would.
    Untranslated {
        from: Vec<IpNet>,
        inside: Vec<IpNet>,
        hosts: Vec<IpAddr>,
    },
}

/// Starts the thread; it ends with the sender.
pub(super) fn start(input: mpsc::Sender<Input>) -> Result<mpsc::Sender<FlowJob>, NetnsError> {
    let (jobs, queue) = mpsc::channel::<FlowJob>();
    // Inherits the namespace of the calling thread.
    std::thread::Builder::new()
        .name("conntrack".to_owned())
        .spawn(move || {
            let mut socket = None;
            while let Ok(job) = queue.recv() {
                let mut jobs = vec![job];
                jobs.extend(queue.try_iter());
                if let Err(error) = work(&mut socket, &jobs) {
                    tracing::warn!(%error, "connection tracking entries not forgotten");
                    socket = None;
                }
                for job in jobs {
                    if let FlowJob::Of(ips) = job
                        && input.send(Input::FlowsForgotten(ips)).is_err()
                    {
                        return;
                    }
                }
            }
        })
        .map_err(|e| NetnsError::Thread(e.to_string()))?;
    Ok(jobs)
}

fn work(socket: &mut Option<Conntrack>, jobs: &[FlowJob]) -> Result<(), KernelError> {
    let conntrack = match socket {
        Some(open) => open,
        None => socket.insert(Conntrack::open()?),
    };
    let ips: HashSet<IpAddr> = jobs
        .iter()
        .flat_map(|job| match job {
            FlowJob::Of(ips) => ips.as_slice(),
            FlowJob::Untranslated { .. } => &[],
        })
        .copied()
        .collect();
    let of_address = |flow: &Flow| {
        [flow.source, flow.destination, flow.reply_source]
            .iter()
            .any(|ip| ips.contains(ip))
    };
    let untranslated = |flow: &Flow| {
        jobs.iter().any(|job| match job {
            FlowJob::Of(_) => false,
            FlowJob::Untranslated {
                from,
                inside,
                hosts,
            } => {
                let within = |nets: &[IpNet], ip: &IpAddr| nets.iter().any(|n| n.contains(ip));
                flow.keeps_source()
                    && within(from, &flow.source)
                    && !within(inside, &flow.reply_source)
                    && !hosts.contains(&flow.reply_source)
            }
        })
    };
    for ipv6 in [false, true] {
        let forgotten = conntrack.forget(ipv6, |flow| of_address(flow) || untranslated(flow))?;
        if forgotten > 0 {
            tracing::debug!(forgotten, ipv6, "connection tracking entries forgotten");
        }
    }
    Ok(())
}
