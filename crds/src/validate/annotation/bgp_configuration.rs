//! Annotations of a BGPConfiguration.

use std::time::Duration;

use super::{Annotations, Reader, finished};
use crate::validate::{FieldError, Findings};

/// Annotations of a BGPConfiguration. Absent ones are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BgpConfigurationAnnotations {
    /// Hold time of mesh sessions.
    pub mesh_hold_time: Option<Duration>,
    /// Use BFD on mesh sessions.
    pub mesh_bfd: Option<bool>,
    /// Protocol number of BGP routes in the kernel.
    pub route_protocol: Option<u8>,
    /// `host:port` of a BMP station (RFC 7854).
    pub bmp_server: Option<String>,
    /// Directory of MRT dumps (RFC 6396).
    pub mrt_dir: Option<String>,
}

impl BgpConfigurationAnnotations {
    /// Reads the annotations of a BGPConfiguration.
    ///
    /// # Errors
    /// Every invalid value; the last good value of a setting stays in force.
    pub fn read(annotations: &Annotations) -> Result<Self, Vec<FieldError>> {
        let mut findings = Findings::default();
        let mut reader = Reader {
            annotations,
            findings: &mut findings,
        };
        let read = BgpConfigurationAnnotations {
            mesh_hold_time: reader.hold_time("mesh-hold-time"),
            mesh_bfd: reader.switch("mesh-bfd"),
            route_protocol: reader.get("route-protocol", |text| match text.parse::<u8>() {
                Ok(number) if ![0, 2, 3, 80].contains(&number) => Ok(number),
                _ => Err("must be a number from 1 to 255 other than 2, 3 and 80".to_owned()),
            }),
            bmp_server: reader.get("bmp-server", |text| match text.rsplit_once(':') {
                Some((host, port))
                    if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) =>
                {
                    Ok(text.to_owned())
                }
                _ => Err("must be host:port".to_owned()),
            }),
            mrt_dir: reader.get("mrt-dir", |text| match text.starts_with('/') {
                true => Ok(text.to_owned()),
                false => Err("must be an absolute path".to_owned()),
            }),
        };
        finished(read, findings)
    }
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
    fn configuration_annotations_are_read_and_refused() {
        let good = annotations(&[
            ("route-protocol", "12"),
            ("bmp-server", "[fd00::1]:5000"),
            ("mesh-bfd", "Disabled"),
        ]);
        let read = BgpConfigurationAnnotations::read(&good).expect("valid");
        assert_eq!(
            (read.route_protocol, read.mesh_bfd),
            (Some(12), Some(false))
        );
        for (name, value) in [
            ("route-protocol", "3"),
            ("route-protocol", "80"),
            ("bmp-server", "host"),
            ("mrt-dir", "dumps"),
        ] {
            assert!(
                BgpConfigurationAnnotations::read(&annotations(&[(name, value)])).is_err(),
                "{name}={value}"
            );
        }
    }
}
