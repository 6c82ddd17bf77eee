//! Applying a policy to a route.

use std::borrow::Cow;

use ipnet::IpNet;

use super::{Action, Condition, Policy, Source, Verdict};
use crate::Family;
use crate::wire::Attributes;

/// A route on its way through a policy.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The prefix.
    pub prefix: IpNet,
    /// Where it was learned; never [`Source::Learned`].
    pub source: Source,
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// LOCAL_PREF that counts when the attribute is missing.
    pub default_local_pref: u32,
}

/// A route a policy accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision<'a> {
    /// Its attributes, borrowed when nothing was changed.
    pub attributes: Cow<'a, Attributes>,
    /// AS numbers to put in front of the path, first one first.
    pub prepend: Vec<u32>,
    /// Preference, when an action set it.
    pub preference: Option<u32>,
}

impl Policy {
    /// Puts a route through the rules; `None` when it is rejected.
    pub fn apply<'a>(&self, subject: Subject<'a>) -> Option<Decision<'a>> {
        let mut decision = Decision {
            attributes: Cow::Borrowed(subject.attributes),
            prepend: Vec::new(),
            preference: None,
        };
        for rule in &self.rules {
            let holds = |condition: &Condition| condition.holds(&subject, &decision.attributes);
            if !rule.conditions.iter().all(holds) {
                continue;
            }
            rule.actions.iter().for_each(|action| decision.act(action));
            match rule.verdict {
                Some(Verdict::Accept) => return Some(decision),
                Some(Verdict::Reject) => return None,
                None => {}
            }
        }
        (self.default == Verdict::Accept).then_some(decision)
    }
}

/// True when `inner` is equal to `outer` or inside it.
fn within(inner: &IpNet, outer: &IpNet) -> bool {
    outer.contains(inner)
}

impl Condition {
    fn holds(&self, subject: &Subject<'_>, attributes: &Attributes) -> bool {
        let prefix = &subject.prefix;
        match self {
            Condition::PrefixIs(list) => list.iter().any(|candidate| candidate.trunc() == *prefix),
            Condition::PrefixWithin(list) => list.iter().any(|outer| within(prefix, outer)),
            Condition::PrefixRange {
                within: outer,
                min_length,
                max_length,
            } => {
                within(prefix, outer) && (*min_length..=*max_length).contains(&prefix.prefix_len())
            }
            Condition::Family(family) => Family::of_prefix(prefix) == *family,
            Condition::Source(Source::Learned) => subject.source != Source::Local,
            Condition::Source(source) => subject.source == *source,
            Condition::HasCommunities(list) => list
                .iter()
                .all(|community| attributes.communities.contains(community)),
            Condition::HasLargeCommunities(list) => list
                .iter()
                .all(|community| attributes.large_communities.contains(community)),
            Condition::AsPathBegins(numbers) => {
                let mut path = attributes.as_path.numbers();
                numbers.iter().all(|number| path.next() == Some(*number))
            }
            Condition::LocalPref { min, max } => {
                let value = attributes.local_pref.unwrap_or(subject.default_local_pref);
                (*min..=*max).contains(&value)
            }
            Condition::Not(inner) => !inner.holds(subject, attributes),
        }
    }
}

impl Decision<'_> {
    fn act(&mut self, action: &Action) {
        match action {
            Action::SetLocalPref(value) => self.attributes.to_mut().local_pref = Some(*value),
            Action::SetMed(value) => self.attributes.to_mut().med = *value,
            Action::AddCommunities(list) => {
                add(&mut self.attributes.to_mut().communities, list);
            }
            Action::RemoveCommunities(list) => {
                self.attributes
                    .to_mut()
                    .communities
                    .retain(|value| !list.contains(value));
            }
            Action::AddLargeCommunities(list) => {
                add(&mut self.attributes.to_mut().large_communities, list);
            }
            Action::PrependAsPath(numbers) => {
                self.prepend.splice(0..0, numbers.iter().copied());
            }
            Action::SetPreference(value) => self.preference = Some(*value),
        }
    }
}

/// Adds values to a sorted list without repetition.
fn add<T: Ord + Copy>(list: &mut Vec<T>, values: &[T]) {
    list.extend_from_slice(values);
    list.sort_unstable();
    list.dedup();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Rule;
    use crate::wire::{AsPath, Community};

    fn subject<'a>(prefix: &str, attributes: &'a Attributes) -> Subject<'a> {
        Subject {
            prefix: prefix.parse().unwrap(),
            source: Source::External,
            attributes,
            default_local_pref: 100,
        }
    }

    fn accepts(policy: &Policy, prefix: &str) -> bool {
        policy
            .apply(subject(prefix, &Attributes::default()))
            .is_some()
    }

    fn rule(condition: Condition, verdict: Verdict) -> Rule {
        Rule::new(vec![condition], verdict)
    }

    #[test]
    fn own_blocks_leave_and_what_is_inside_them_does_not() {
        let block = vec!["192.168.1.64/26".parse().unwrap()];
        let pool = vec!["192.168.0.0/16".parse().unwrap()];
        let policy = Policy {
            rules: vec![
                rule(Condition::PrefixIs(block.clone()), Verdict::Accept),
                rule(Condition::PrefixWithin(block), Verdict::Reject),
                rule(Condition::PrefixWithin(pool), Verdict::Accept),
            ],
            default: Verdict::Reject,
        };
        assert!(accepts(&policy, "192.168.1.64/26"));
        assert!(!accepts(&policy, "192.168.1.65/32"));
        assert!(accepts(&policy, "192.168.3.5/32"));
        assert!(!accepts(&policy, "10.0.0.0/8"));
        assert!(
            !accepts(&policy, "192.0.0.0/8"),
            "a shorter prefix is not inside"
        );
    }

    #[test]
    fn an_action_without_verdict_goes_on_and_later_rules_see_the_change() {
        let attributes = Attributes {
            as_path: AsPath::sequence([1, 2]),
            ..Attributes::default()
        };
        let policy = Policy {
            rules: vec![
                Rule {
                    conditions: vec![Condition::AsPathBegins(vec![1])],
                    actions: vec![
                        Action::SetLocalPref(300),
                        Action::AddCommunities(vec![Community(5), Community(5)]),
                        Action::PrependAsPath(vec![65000, 65001]),
                    ],
                    verdict: None,
                },
                rule(Condition::LocalPref { min: 300, max: 300 }, Verdict::Accept),
            ],
            default: Verdict::Reject,
        };
        let decision = policy.apply(subject("10.0.0.0/8", &attributes)).unwrap();
        assert_eq!(decision.attributes.local_pref, Some(300));
        assert_eq!(decision.attributes.communities, vec![Community(5)]);
        assert_eq!(decision.prepend, vec![65000, 65001]);
    }

    #[test]
    fn an_unchanged_route_is_borrowed() {
        let attributes = Attributes::default();
        let decision = Policy::accept_all()
            .apply(subject("10.0.0.0/8", &attributes))
            .unwrap();
        assert!(matches!(decision.attributes, Cow::Borrowed(_)));
    }

    #[test]
    fn negation_family_range_and_source() {
        let policy = Policy {
            rules: vec![
                rule(Condition::Family(Family::Ipv6), Verdict::Reject),
                rule(
                    Condition::PrefixRange {
                        within: "10.0.0.0/8".parse().unwrap(),
                        min_length: 24,
                        max_length: 26,
                    },
                    Verdict::Accept,
                ),
                rule(
                    Condition::Not(Box::new(Condition::Source(Source::Learned))),
                    Verdict::Accept,
                ),
            ],
            default: Verdict::Reject,
        };
        assert!(accepts(&policy, "10.1.2.0/25"));
        assert!(!accepts(&policy, "10.1.2.0/27"));
        assert!(!accepts(&policy, "fd00::/64"));
        let attributes = Attributes::default();
        let local = Subject {
            source: Source::Local,
            ..subject("9.0.0.0/8", &attributes)
        };
        assert!(policy.apply(local).is_some());
    }
}
