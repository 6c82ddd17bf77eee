//! What a rule means for packets of one IP version.

use ipnet::IpNet;

use crate::values::{parse_cidr, protocol_number};
use crate::{EntityRule, Rule};

/// IP version of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    fn holds(self, net: &IpNet) -> bool {
        net.addr().is_ipv4() == (self == Family::V4)
    }
}

/// The rule with the addresses of one IP version only; absent when it matches no packet of that version: because of its
/// ipVersion or protocol, or because a list of addresses has none of that version. So `notNets` of IPv4 addresses
/// matches no IPv6 packet. An entry that is not an address range belongs to no version, so it never makes a rule match
/// more.
pub fn rule_for_family(rule: &Rule, family: Family) -> Option<Rule> {
    let version = match family {
        Family::V4 => 4,
        Family::V6 => 6,
    };
    let protocol = rule
        .protocol
        .as_ref()
        .and_then(|protocol| protocol_number(protocol).ok());
    let foreign_protocol = match family {
        Family::V4 => 58,
        Family::V6 => 1,
    };
    if rule.ip_version.is_some_and(|wanted| wanted != version) || protocol == Some(foreign_protocol)
    {
        return None;
    }
    let mut rule = rule.clone();
    for entity in [&mut rule.source, &mut rule.destination]
        .into_iter()
        .flatten()
    {
        keep(entity, family)?;
    }
    Some(rule)
}

fn keep(entity: &mut EntityRule, family: Family) -> Option<()> {
    for list in [&mut entity.nets, &mut entity.not_nets]
        .into_iter()
        .flatten()
    {
        let had_entries = !list.is_empty();
        list.retain(|text| parse_cidr(text).is_ok_and(|net| family.holds(&net)));
        if had_entries && list.is_empty() {
            return None;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn families(rule: Value) -> (bool, bool) {
        let rule: Rule = serde_json::from_value(rule).expect("decodes");
        (
            rule_for_family(&rule, Family::V4).is_some(),
            rule_for_family(&rule, Family::V6).is_some(),
        )
    }

    #[test]
    fn a_rule_is_absent_for_the_version_it_cannot_match() {
        assert_eq!(families(json!({"action": "Allow"})), (true, true));
        assert_eq!(
            families(json!({"action": "Allow", "source": {"notNets": ["10.0.0.0/8"]}})),
            (true, false)
        );
        assert_eq!(
            families(json!({"action": "Allow", "source": {"nets": ["10.0.0.0/8", "fd00::/8"]}})),
            (true, true)
        );
        assert_eq!(
            families(json!({"action": "Allow", "ipVersion": 6})),
            (false, true)
        );
        assert_eq!(
            families(json!({"action": "Allow", "protocol": "ICMP"})),
            (true, false)
        );
        assert_eq!(
            families(json!({"action": "Allow", "protocol": 58})),
            (false, true)
        );
        assert_eq!(
            families(json!({"action": "Allow", "source": {"nets": []}})),
            (true, true)
        );
    }

    #[test]
    fn an_unreadable_address_never_makes_a_rule_match_everything() {
        assert_eq!(
            families(json!({"action": "Allow", "source": {"nets": ["bogus"]}})),
            (false, false)
        );
    }

    #[test]
    fn only_addresses_of_the_version_remain() {
        let rule: Rule = serde_json::from_value(
            json!({"action": "Deny", "destination": {"nets": ["10.0.0.0/8", "fd00::/8"]}}),
        )
        .expect("decodes");
        let nets = rule_for_family(&rule, Family::V6).and_then(|rule| rule.destination?.nets);
        assert_eq!(nets, Some(vec!["fd00::/8".to_owned()]));
    }
}
