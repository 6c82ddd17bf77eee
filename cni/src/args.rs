//! `CNI_ARGS`: `KEY=VALUE` pairs separated by semicolons; Kubernetes runtimes name the pod there.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::error::{CniError, Code};

/// What `CNI_ARGS` says about the container. Unknown keys are ignored, whatever `IgnoreUnknown` says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodArgs {
    /// `K8S_POD_NAMESPACE`.
    pub namespace: String,
    /// `K8S_POD_NAME`.
    pub name: String,
    /// `K8S_POD_UID`; older runtimes do not send it.
    pub uid: String,
    /// `IP`: the runtime asks for this address.
    pub ip: Option<IpAddr>,
    /// `MAC`: the runtime asks for this container-side MAC; unparsed.
    pub mac: Option<String>,
}

impl PodArgs {
    /// Parses the variable; empty pairs are ignored.
    ///
    /// # Errors
    /// Code 4 for a pair that is not exactly `KEY=VALUE`, or an unparsable `IP`.
    pub fn parse(text: &str) -> Result<PodArgs, CniError> {
        let mut args = PodArgs::default();
        for pair in text.split(';').filter(|pair| !pair.is_empty()) {
            let invalid = || {
                CniError::new(
                    Code::BAD_ENVIRONMENT,
                    format!("ARGS: invalid pair {pair:?}"),
                )
            };
            let (key, value) = pair.split_once('=').ok_or_else(invalid)?;
            if value.contains('=') {
                return Err(invalid());
            }
            match key {
                "K8S_POD_NAMESPACE" => args.namespace = value.to_owned(),
                "K8S_POD_NAME" => args.name = value.to_owned(),
                "K8S_POD_UID" => args.uid = value.to_owned(),
                "IP" if !value.is_empty() => {
                    // CRI-O may add a prefix length; only the address counts, pods have /32 and /128.
                    let address = value.split_once('/').map_or(value, |(address, _)| address);
                    args.ip = Some(address.parse().map_err(|_| invalid())?);
                }
                "MAC" if !value.is_empty() => args.mac = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(args)
    }

    /// Whether the container belongs to a Kubernetes pod.
    pub fn is_pod(&self) -> bool {
        !self.namespace.is_empty() && !self.name.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_in_any_order() {
        let args = PodArgs::parse(
            "K8S_POD_UID=u1;IgnoreUnknown=1;K8S_POD_NAME=nginx;K8S_POD_NAMESPACE=default;X=y;",
        )
        .expect("valid");
        assert!(args.is_pod());
        assert_eq!(
            (
                args.namespace.as_str(),
                args.name.as_str(),
                args.uid.as_str()
            ),
            ("default", "nginx", "u1")
        );
    }

    #[test]
    fn one_half_of_a_pod_name_is_no_pod() {
        assert!(
            !PodArgs::parse("K8S_POD_NAME=nginx")
                .expect("valid")
                .is_pod()
        );
        assert!(!PodArgs::parse("").expect("valid").is_pod());
    }

    #[test]
    fn malformed_pairs_are_errors() {
        for text in ["K8S_POD_NAME", "a=b=c", "IP=abc"] {
            assert_eq!(
                PodArgs::parse(text).expect_err(text).code,
                Code::BAD_ENVIRONMENT
            );
        }
    }

    #[test]
    fn address_may_carry_a_prefix_length() {
        let args = PodArgs::parse("IP=10.65.0.9/24;MAC=02:00:00:00:00:01").expect("valid");
        assert_eq!(args.ip, Some("10.65.0.9".parse().expect("address")));
        assert_eq!(args.mac.as_deref(), Some("02:00:00:00:00:01"));
    }
}
