//! Prefixes on the wire (RFC 4271 section 4.3, RFC 7911 section 3).

use std::net::{Ipv4Addr, Ipv6Addr};

use bytes::{BufMut, BytesMut};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::reader::Reader;
use crate::Family;

/// One prefix, with its path identifier where ADD-PATH is in use (0 elsewhere).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nlri {
    /// The prefix, host bits zero.
    pub prefix: IpNet,
    /// Path identifier.
    pub path_id: u32,
}

impl From<IpNet> for Nlri {
    fn from(prefix: IpNet) -> Self {
        Nlri { prefix, path_id: 0 }
    }
}

/// The field does not hold prefixes of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadNlri;

/// Reads prefixes to the end of the field. Host bits are masked.
pub(super) fn decode(
    octets: &[u8],
    family: Family,
    add_path: bool,
    out: &mut Vec<Nlri>,
) -> Result<(), BadNlri> {
    let mut reader = Reader::new(octets);
    while !reader.is_empty() {
        let path_id = if add_path {
            reader.u32().map_err(|_| BadNlri)?
        } else {
            0
        };
        let length = reader.u8().map_err(|_| BadNlri)?;
        if length > family.max_prefix_len() {
            return Err(BadNlri);
        }
        let value = reader
            .take(usize::from(length.div_ceil(8)))
            .map_err(|_| BadNlri)?;
        out.push(Nlri {
            prefix: prefix(family, value, length),
            path_id,
        });
    }
    Ok(())
}

fn prefix(family: Family, value: &[u8], length: u8) -> IpNet {
    match family {
        Family::Ipv4 => {
            let mut octets = [0; 4];
            octets[..value.len()].copy_from_slice(value);
            let net = Ipv4Net::new(Ipv4Addr::from(octets), length);
            IpNet::V4(net.unwrap_or_default().trunc())
        }
        Family::Ipv6 => {
            let mut octets = [0; 16];
            octets[..value.len()].copy_from_slice(value);
            let net = Ipv6Net::new(Ipv6Addr::from(octets), length);
            IpNet::V6(net.unwrap_or_default().trunc())
        }
    }
}

/// Octets the prefix takes on the wire.
pub(super) fn encoded_length(nlri: &Nlri, add_path: bool) -> usize {
    1 + usize::from(nlri.prefix.prefix_len().div_ceil(8)) + if add_path { 4 } else { 0 }
}

/// Writes one prefix.
pub(super) fn encode(nlri: &Nlri, add_path: bool, out: &mut BytesMut) {
    if add_path {
        out.put_u32(nlri.path_id);
    }
    let length = nlri.prefix.prefix_len();
    out.put_u8(length);
    let count = usize::from(length.div_ceil(8));
    match nlri.prefix {
        IpNet::V4(net) => out.put_slice(&net.addr().octets()[..count]),
        IpNet::V6(net) => out.put_slice(&net.addr().octets()[..count]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn host_bits_are_masked() {
        let mut out = Vec::new();
        decode(&[23, 10, 1, 0xFF], Family::Ipv4, false, &mut out).unwrap();
        assert_eq!(
            out,
            vec![Nlri::from("10.1.254.0/23".parse::<IpNet>().unwrap())]
        );
    }

    #[test]
    fn a_length_beyond_the_family_and_a_cut_prefix_are_refused() {
        let mut out = Vec::new();
        assert_eq!(
            decode(&[33, 1, 2, 3, 4, 5], Family::Ipv4, false, &mut out),
            Err(BadNlri)
        );
        assert_eq!(
            decode(&[24, 1, 2], Family::Ipv4, false, &mut out),
            Err(BadNlri)
        );
        assert_eq!(
            decode(&[0, 0, 0, 1], Family::Ipv4, true, &mut out),
            Err(BadNlri)
        );
    }

    proptest! {
        #[test]
        fn prefixes_read_back_as_written(
            v4 in any::<(u32, u8, u32)>(),
            v6 in any::<(u128, u8, u32)>(),
            add_path: bool,
        ) {
            let four = Ipv4Net::new(Ipv4Addr::from(v4.0), v4.1 % 33).unwrap().trunc();
            let six = Ipv6Net::new(Ipv6Addr::from(v6.0), v6.1 % 129).unwrap().trunc();
            let id = |id| if add_path { id } else { 0 };
            for (family, nlri) in [
                (Family::Ipv4, Nlri { prefix: four.into(), path_id: id(v4.2) }),
                (Family::Ipv6, Nlri { prefix: six.into(), path_id: id(v6.2) }),
            ] {
                let mut octets = BytesMut::new();
                encode(&nlri, add_path, &mut octets);
                prop_assert_eq!(octets.len(), encoded_length(&nlri, add_path));
                let mut out = Vec::new();
                prop_assert_eq!(decode(&octets, family, add_path, &mut out), Ok(()));
                prop_assert_eq!(out, vec![nlri]);
            }
        }
    }
}
