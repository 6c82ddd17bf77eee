//! Names derived from a workload. All of them are deterministic and equal to Calico's, so that both can find what the
//! other made.

use std::fmt::Write as _;

use sha1::{Digest, Sha1};

use crate::args::PodArgs;
use crate::environment::MAX_IFNAME;
use crate::error::CniError;

/// Start of host-side interface names unless `interfacePrefix` says otherwise.
pub const DEFAULT_PREFIX: &str = "cali";

/// Namespace of endpoints that are no Kubernetes pods.
pub const DEFAULT_NAMESPACE: &str = "default";

/// The network name of Calico's and our own configuration; part of IPAM handles.
pub const DEFAULT_NETWORK: &str = "k8s-pod-network";

/// How much of the hash, or of the container ID, follows the prefix.
const SUFFIX: usize = 11;

/// The host-side interface of a pod: prefix and the first 11 hex digits of SHA-1 of `<namespace>.<pod>`; of any other
/// container: prefix and the first 11 characters of its ID.
///
/// # Errors
/// Code 7 when the prefix is empty or longer than 4 bytes, since the name would exceed 15 bytes.
pub fn host_interface(prefix: &str, pod: &PodArgs, container_id: &str) -> Result<String, CniError> {
    if prefix.is_empty() || prefix.len() + SUFFIX > MAX_IFNAME {
        return Err(CniError::invalid(format!(
            "interface prefix {prefix:?} must have 1 to {} bytes",
            MAX_IFNAME - SUFFIX
        )));
    }
    let mut name = prefix.to_owned();
    if pod.is_pod() {
        let digest = Sha1::digest(format!("{}.{}", pod.namespace, pod.name));
        for byte in digest.iter().take(SUFFIX.div_ceil(2)) {
            let _ = write!(name, "{byte:02x}");
        }
        name.truncate(prefix.len() + SUFFIX);
    } else {
        // Container IDs are ASCII (`environment::is_identifier`), so characters are bytes.
        name.extend(container_id.chars().take(SUFFIX));
    }
    Ok(name)
}

/// The IPAM handle of an attachment.
pub fn ipam_handle(network: &str, container_id: &str) -> String {
    format!("{network}.{container_id}")
}

/// The handle very old Calico versions used: `<namespace>.<pod>` for pods, else the container ID.
pub fn legacy_handle(pod: &PodArgs, container_id: &str) -> String {
    if pod.is_pod() {
        format!("{}.{}", pod.namespace, pod.name)
    } else {
        container_id.to_owned()
    }
}

/// The interface alias that marks a host end as the one of this attachment.
pub fn alias(container_id: &str, ifname: &str) -> String {
    format!("margay:{container_id}:{ifname}")
}

/// The WorkloadEndpoint name: four segments joined by `-`, in which every `-` is doubled.
///
/// # Errors
/// Code 7 when a segment is empty or begins or ends with a dash, because the name could not be taken apart again.
pub fn workload_endpoint(
    node: &str,
    pod: &PodArgs,
    container_id: &str,
    ifname: &str,
) -> Result<String, CniError> {
    let (orchestrator, workload) = if pod.is_pod() {
        ("k8s", pod.name.as_str())
    } else {
        ("cni", container_id)
    };
    let mut name = String::new();
    for segment in [node, orchestrator, workload, ifname] {
        if segment.is_empty() || segment.starts_with('-') || segment.ends_with('-') {
            return Err(CniError::invalid(format!(
                "{segment:?} cannot be part of an endpoint name: it is empty or begins or ends with a dash"
            )));
        }
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&segment.replace('-', "--"));
    }
    Ok(name)
}

/// Takes an endpoint name apart: node, orchestrator, workload, interface. `None` unless there are exactly four parts.
pub fn parse_workload_endpoint(name: &str) -> Option<[String; 4]> {
    let mut parts = vec![String::new()];
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let last = parts.last_mut()?;
        if c != '-' || last.is_empty() {
            last.push(c);
        } else if chars.peek() == Some(&'-') {
            chars.next();
            last.push('-');
        } else {
            parts.push(String::new());
        }
    }
    parts
        .try_into()
        .ok()
        .filter(|parts: &[String; 4]| parts.iter().all(|part| !part.is_empty()))
}

/// The profiles of a pod: its namespace's and, if it has one, its service account's.
pub fn profiles(namespace: &str, service_account: &str) -> Vec<String> {
    let mut profiles = vec![format!("kns.{namespace}")];
    if !service_account.is_empty() {
        profiles.push(format!("ksa.{namespace}.{service_account}"));
    }
    profiles
}

/// The file name of an endpoint's status below `endpoint_status_dir`.
pub fn status_file(pod: &PodArgs, container_id: &str, ifname: &str) -> String {
    let (orchestrator, workload) = if pod.is_pod() {
        ("k8s", format!("{}/{}", pod.namespace, pod.name))
    } else {
        ("cni", format!("{DEFAULT_NAMESPACE}/{container_id}"))
    };
    format!(
        "{orchestrator} {} {}",
        path_escape(&workload),
        path_escape(ifname)
    )
}

/// Percent-encodes what may not stand in a URL path segment (RFC 3986 section 3.3, less the sub-delimiters Go keeps).
fn path_escape(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => escaped.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b':' | b'=' | b'@' => {
                escaped.push(char::from(byte));
            }
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(namespace: &str, name: &str) -> PodArgs {
        PodArgs {
            namespace: namespace.into(),
            name: name.into(),
            ..PodArgs::default()
        }
    }

    #[test]
    fn host_interface_names_are_those_of_calico() {
        for (namespace, name, expected) in [
            ("default", "nginx", "calic440f455693"),
            (
                "default",
                "workload-endpoint-status-tests-0-idx3",
                "cali22bf70d285d",
            ),
            ("kube-system", "coredns-5dd5756b68-br76z", "cali81a91fa13bb"),
        ] {
            assert_eq!(
                host_interface("cali", &pod(namespace, name), "c1").expect("name"),
                expected
            );
        }
        let other = PodArgs::default();
        assert_eq!(
            host_interface("cali", &other, "abc123").expect("name"),
            "caliabc123"
        );
        assert_eq!(
            host_interface("tap", &other, "0123456789abcdef").expect("name"),
            "tap0123456789a"
        );
    }

    #[test]
    fn long_prefix_is_refused() {
        assert!(host_interface("calic", &pod("a", "b"), "c1").is_err());
        assert!(host_interface("", &pod("a", "b"), "c1").is_err());
    }

    #[test]
    fn endpoint_names_round_trip() {
        let name = workload_endpoint("node-1", &pod("default", "nginx-abc"), "c1", "eth0");
        assert_eq!(name.as_deref(), Ok("node--1-k8s-nginx--abc-eth0"));
        let parts = parse_workload_endpoint("node--1-k8s-nginx--abc-eth0").expect("parts");
        assert_eq!(parts, ["node-1", "k8s", "nginx-abc", "eth0"]);
        assert_eq!(
            workload_endpoint("n1", &PodArgs::default(), "abc123", "eth0").as_deref(),
            Ok("n1-cni-abc123-eth0")
        );
        assert!(workload_endpoint("-n", &pod("a", "b"), "c1", "eth0").is_err());
        assert_eq!(parse_workload_endpoint("a-b-c"), None);
        assert_eq!(parse_workload_endpoint("a-b-c-d-e"), None);
    }

    #[test]
    fn pods_with_a_common_start_do_not_collide() {
        let first = host_interface("cali", &pod("ns", "p"), "c").expect("name");
        let second = host_interface("cali", &pod("ns", "p-1"), "c").expect("name");
        assert_ne!(first, second);
    }

    #[test]
    fn status_file_escapes_the_slash() {
        assert_eq!(
            status_file(&pod("default", "nginx"), "c1", "eth0"),
            "k8s default%2Fnginx eth0"
        );
    }
}
