//! CHECK: is everything ADD made still there? Additions by others are fine.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::attachment::{Attachment, State};
use crate::error::{CniError, Code};
use crate::result::AddResult;

/// What the previous result says against the record; empty when they agree. Interfaces are matched by name, because a
/// later plugin may have inserted its own; the container's MAC may have been changed by one.
///
/// # Errors
/// Code 7 when there is no previous result.
pub fn compare_result(
    record: &Attachment,
    netns_path: &str,
    previous: Option<&AddResult>,
) -> Result<Vec<String>, CniError> {
    let previous = previous.ok_or_else(|| CniError::invalid("CHECK needs prevResult"))?;
    let mut findings = Vec::new();
    let ifname = &record.key.ifname;
    let container = previous
        .interfaces
        .iter()
        .find(|interface| interface.name == *ifname && interface.sandbox.is_some());
    match container.and_then(|interface| interface.sandbox.as_deref()) {
        None => findings.push(format!("prevResult has no interface {ifname}")),
        Some(sandbox) if sandbox != netns_path => {
            findings.push(format!(
                "prevResult has {ifname} in {sandbox}, not in {netns_path}"
            ));
        }
        Some(_) => {}
    }
    if !previous
        .interfaces
        .iter()
        .any(|interface| interface.name == record.host_if)
    {
        findings.push(format!("prevResult has no interface {}", record.host_if));
    }
    let known: Vec<IpAddr> = previous.ips.iter().map(|ip| ip.address.addr()).collect();
    for address in record.ips.iter().map(IpNet::addr) {
        if !known.contains(&address) {
            findings.push(format!("prevResult lacks address {address}"));
        }
    }
    Ok(findings)
}

/// The record CHECK works on.
///
/// # Errors
/// Code 3 when there is none, code 103 when it is not complete.
pub fn usable(record: Option<&Attachment>) -> Result<&Attachment, CniError> {
    let record = record.ok_or_else(|| {
        CniError::new(
            Code::UNKNOWN_CONTAINER,
            "this container is not attached to the network",
        )
    })?;
    match record.state {
        State::Ready if !record.superseded => Ok(record),
        State::Ready => Err(CniError::kernel(
            "a newer sandbox of the pod took its interface over",
        )),
        State::Preparing | State::Deleting => {
            Err(CniError::kernel("the container is not fully attached"))
        }
    }
}

/// The verdict on all findings.
///
/// # Errors
/// Code 103 with every finding in the details.
pub fn verdict(findings: &[String]) -> Result<(), CniError> {
    if findings.is_empty() {
        return Ok(());
    }
    Err(
        CniError::kernel("the container's network is not as it was set up")
            .with_details(findings.join("; ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attachment::tests::sample;
    use crate::result::{Interface, IpConfig};

    fn previous() -> AddResult {
        let named = |name: &str, sandbox: Option<&str>| Interface {
            name: name.into(),
            sandbox: sandbox.map(str::to_owned),
            ..Interface::default()
        };
        AddResult {
            interfaces: vec![
                named("bwp1", None),
                named("calic440f455693", None),
                named("eth0", Some("/run/netns/p1")),
            ],
            ips: vec![IpConfig {
                interface: Some(2),
                address: "10.65.0.2/32".parse().expect("prefix"),
                gateway: None,
            }],
            ..AddResult::default()
        }
    }

    #[test]
    fn chained_plugins_may_add_interfaces() {
        let findings = compare_result(&sample("c1"), "/run/netns/p1", Some(&previous()));
        assert_eq!(findings, Ok(vec![]));
    }

    #[test]
    fn each_difference_is_named() {
        let mut result = previous();
        result.ips.clear();
        result.interfaces.remove(1);
        let findings =
            compare_result(&sample("c1"), "/run/netns/p2", Some(&result)).expect("compared");
        assert_eq!(findings.len(), 3, "{findings:?}");
        let error = verdict(&findings).expect_err("different");
        assert_eq!(error.code, Code::KERNEL);
        assert!(error.details.contains("10.65.0.2") && error.details.contains("calic440f455693"));
    }

    #[test]
    fn previous_result_is_required_and_the_record_must_be_ready() {
        let error = compare_result(&sample("c1"), "/run/netns/p1", None).expect_err("none");
        assert_eq!(error.code, Code::INVALID_CONFIG);
        assert_eq!(
            usable(None).expect_err("none").code,
            Code::UNKNOWN_CONTAINER
        );
        let mut record = sample("c1");
        record.state = State::Deleting;
        assert_eq!(
            usable(Some(&record)).expect_err("deleting").code,
            Code::KERNEL
        );
    }
}
