//! Addresses automatic assignment must not choose.

use std::net::IpAddr;

use ipnet::IpNet;
use margay_crds::IPReservation;

use crate::cidr::{Family, number};

/// The union of all reservations, as disjoint ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservations {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
}

impl Reservations {
    /// The union of the given objects. Spaces around an entry and bare addresses are accepted; entries that are neither
    /// address nor network are logged and ignored.
    pub fn new<'a>(objects: impl IntoIterator<Item = &'a IPReservation>) -> Self {
        let mut all = Reservations::default();
        for object in objects {
            for text in object
                .spec
                .reserved_cidrs
                .iter()
                .flatten()
                .map(|text| text.trim())
            {
                match parse(text) {
                    Some(net) => all.add(&net),
                    None if text.is_empty() => {}
                    None => tracing::warn!(
                        reservation = object.metadata.name.as_deref().unwrap_or_default(),
                        value = text,
                        "entry of spec.reservedCIDRs ignored: neither an address nor a network"
                    ),
                }
            }
        }
        all.merged()
    }

    /// The union of networks.
    pub fn of<'a>(networks: impl IntoIterator<Item = &'a IpNet>) -> Self {
        let mut all = Reservations::default();
        networks.into_iter().for_each(|net| all.add(net));
        all.merged()
    }

    fn merged(mut self) -> Self {
        merge(&mut self.v4);
        merge(&mut self.v6);
        self
    }

    fn add(&mut self, net: &IpNet) {
        let range = (number(net.network()), number(net.broadcast()));
        match Family::of_net(net) {
            Family::V4 => self.v4.push(range),
            Family::V6 => self.v6.push(range),
        }
    }

    fn ranges(&self, family: Family) -> &[(u128, u128)] {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    /// The ranges that meet the network.
    fn meeting(&self, net: &IpNet) -> &[(u128, u128)] {
        let ranges = self.ranges(Family::of_net(net));
        let (first, last) = (number(net.network()), number(net.broadcast()));
        let from = ranges.partition_point(|(_, end)| *end < first);
        let to = ranges.partition_point(|(start, _)| *start <= last);
        &ranges[from..to.max(from)]
    }

    /// True when the address is reserved.
    pub fn contains(&self, ip: IpAddr) -> bool {
        !self.meeting(&IpNet::from(ip)).is_empty()
    }

    /// True when any address of the network is reserved.
    pub fn touches(&self, net: &IpNet) -> bool {
        !self.meeting(net).is_empty()
    }

    /// True when all addresses of the network are reserved.
    pub fn covers(&self, net: &IpNet) -> bool {
        let whole = |(start, end): &(u128, u128)| {
            *start <= number(net.network()) && *end >= number(net.broadcast())
        };
        self.meeting(net).first().is_some_and(whole)
    }

    /// Number of reserved addresses of the network, at most `u128::MAX`.
    pub fn count(&self, net: &IpNet) -> u128 {
        let (first, last) = (number(net.network()), number(net.broadcast()));
        self.meeting(net)
            .iter()
            .map(|(start, end)| ((*end).min(last) - (*start).max(first)).saturating_add(1))
            .fold(0, u128::saturating_add)
    }
}

fn parse(text: &str) -> Option<IpNet> {
    text.parse::<IpNet>()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

/// Sorts ranges and joins those that overlap or touch.
fn merge(ranges: &mut Vec<(u128, u128)>) {
    ranges.sort_unstable();
    let mut joined: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
    for (start, end) in ranges.drain(..) {
        match joined.last_mut() {
            Some((_, last)) if start <= last.saturating_add(1) => *last = (*last).max(end),
            _ => joined.push((start, end)),
        }
    }
    *ranges = joined;
}

#[cfg(test)]
mod tests {
    use margay_crds::IPReservationSpec;

    use super::*;

    fn reserve(cidrs: &[&str]) -> Reservations {
        let spec = IPReservationSpec {
            reserved_cidrs: Some(cidrs.iter().map(|text| (*text).to_owned()).collect()),
        };
        Reservations::new([&IPReservation::new("r", spec)])
    }

    fn net(text: &str) -> IpNet {
        text.parse().expect("a network")
    }

    #[test]
    fn entries_are_a_union_and_nonsense_is_ignored() {
        let all = reserve(&[
            " 10.0.0.1 ",
            "10.0.0.32/30",
            "10.0.0.33/32",
            "",
            "x",
            "10.0.0.0/33",
        ]);
        assert!(all.contains("10.0.0.1".parse().expect("address")));
        assert!(all.contains("10.0.0.35".parse().expect("address")));
        assert!(!all.contains("10.0.0.36".parse().expect("address")));
        assert_eq!(all.count(&net("10.0.0.0/26")), 5);
        assert!(all.touches(&net("10.0.0.0/26")) && !all.covers(&net("10.0.0.0/26")));
        assert!(all.covers(&net("10.0.0.32/31")));
    }

    #[test]
    fn neighbouring_halves_cover_the_whole() {
        let all = reserve(&["10.0.0.0/27", "10.0.0.32/27", "::/0"]);
        assert!(all.covers(&net("10.0.0.0/26")));
        assert!(all.covers(&net("fd00::/122")));
        assert_eq!(all.count(&net("::/0")), u128::MAX);
    }
}
