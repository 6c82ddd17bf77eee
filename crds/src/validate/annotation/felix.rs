//! Annotations of a FelixConfiguration.

use std::time::Duration;

use super::{Annotations, Reader, finished, one_of};
use crate::validate::{FieldError, Findings};

/// Who serves hostPorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostPortMode {
    /// The agent.
    Agent,
    /// A chained plugin.
    Chained,
    /// Nobody.
    Off,
}

/// Annotations of a FelixConfiguration. Absent ones are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FelixAnnotations {
    /// Who serves hostPorts.
    pub hostport_mode: Option<HostPortMode>,
    /// Host ports that are never served, as (IP protocol number, port).
    pub hostport_deny: Option<Vec<(u8, u16)>>,
    /// Own the nf_tables tables, so that other programs cannot change them.
    pub nft_table_owner: Option<bool>,
    /// Cut flows that policy denies from now on.
    pub cut_denied_flows: Option<bool>,
    /// Greatest number of addresses kept ready per family.
    pub ipam_reserve_max: Option<u8>,
    /// Least time before a released address is used again.
    pub ipam_reuse_floor: Option<Duration>,
    /// Write IPAMHandle objects for pods.
    pub ipam_handles: Option<bool>,
    /// Offer the CNI verb STATUS.
    pub cni_status: Option<bool>,
}

impl FelixAnnotations {
    /// Reads the annotations of a FelixConfiguration.
    ///
    /// # Errors
    /// Every invalid value; the last good value of a setting stays in force.
    pub fn read(annotations: &Annotations) -> Result<Self, Vec<FieldError>> {
        let mut findings = Findings::default();
        let mut reader = Reader {
            annotations,
            findings: &mut findings,
        };
        let read = FelixAnnotations {
            hostport_mode: reader.get("hostport-mode", |text| {
                one_of(
                    text,
                    &[
                        ("agent", HostPortMode::Agent),
                        ("chained", HostPortMode::Chained),
                        ("off", HostPortMode::Off),
                    ],
                )
            }),
            hostport_deny: reader.get("hostport-deny", host_ports),
            nft_table_owner: reader.switch("nft-table-owner"),
            cut_denied_flows: reader.switch("cut-denied-flows"),
            ipam_reserve_max: reader.small("ipam-reserve-max", 0, 32),
            ipam_reuse_floor: reader.duration(
                "ipam-reuse-floor",
                Duration::ZERO,
                Duration::from_secs(1200),
            ),
            ipam_handles: reader.get("ipam-handles", |text| {
                one_of(text, &[("Always", true), ("Never", false)])
            }),
            cni_status: reader.switch("cni-status"),
        };
        finished(read, findings)
    }
}

/// A comma-separated list of `proto:port`; empty text is an empty list.
fn host_ports(text: &str) -> Result<Vec<(u8, u16)>, String> {
    let wrong = || "must be a list of protocol:port, such as tcp:80,udp:53".to_owned();
    let entries = text
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let (protocol, port) = entry.split_once(':').ok_or_else(wrong)?;
            let protocol = one_of(
                &protocol.to_ascii_lowercase(),
                &[("tcp", 6), ("udp", 17), ("sctp", 132)],
            )?;
            let port = port
                .parse()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(wrong)?;
            Ok((protocol, port))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> Annotations {
        pairs
            .iter()
            .map(|(name, value)| (format!("margay.io/{name}"), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn agent_annotations_are_read_and_refused() {
        let good = annotations(&[
            ("hostport-deny", "tcp:22, UDP:53"),
            ("hostport-mode", "chained"),
            ("ipam-reserve-max", "32"),
            ("ipam-reuse-floor", "20m"),
            ("ipam-handles", "Always"),
        ]);
        let read = FelixAnnotations::read(&good).expect("valid");
        assert_eq!(read.hostport_deny, Some(vec![(6, 22), (17, 53)]));
        assert_eq!(read.ipam_handles, Some(true));
        for (name, value) in [
            ("hostport-deny", "tcp"),
            ("hostport-deny", "icmp:1"),
            ("ipam-reserve-max", "33"),
            ("ipam-reuse-floor", "21m"),
            ("hostport-mode", "Agent"),
        ] {
            assert!(
                FelixAnnotations::read(&annotations(&[(name, value)])).is_err(),
                "{name}={value}"
            );
        }
    }
}
