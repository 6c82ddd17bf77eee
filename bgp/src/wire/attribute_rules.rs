//! One table of what each path attribute must look like and what happens when it does not
//! (RFC 4271 section 5, RFC 7606 section 7). Decoding, validation and encoding all read it.

/// Attribute types.
pub(super) mod kind {
    pub(crate) const ORIGIN: u8 = 1;
    pub(crate) const AS_PATH: u8 = 2;
    pub(crate) const NEXT_HOP: u8 = 3;
    pub(crate) const MED: u8 = 4;
    pub(crate) const LOCAL_PREF: u8 = 5;
    pub(crate) const ATOMIC_AGGREGATE: u8 = 6;
    pub(crate) const AGGREGATOR: u8 = 7;
    pub(crate) const COMMUNITIES: u8 = 8;
    pub(crate) const ORIGINATOR_ID: u8 = 9;
    pub(crate) const CLUSTER_LIST: u8 = 10;
    pub(crate) const MP_REACH: u8 = 14;
    pub(crate) const MP_UNREACH: u8 = 15;
    pub(crate) const EXTENDED_COMMUNITIES: u8 = 16;
    pub(crate) const AS4_PATH: u8 = 17;
    pub(crate) const AS4_AGGREGATOR: u8 = 18;
    pub(crate) const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
    pub(crate) const LARGE_COMMUNITIES: u8 = 32;
    pub(crate) const ONLY_TO_CUSTOMER: u8 = 35;
}

/// Flags octet.
pub(super) const OPTIONAL: u8 = 0x80;
pub(super) const TRANSITIVE: u8 = 0x40;
pub(super) const PARTIAL: u8 = 0x20;
pub(super) const EXTENDED_LENGTH: u8 = 0x10;

/// What a malformed attribute does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// The attribute is left out (RFC 7606 "attribute discard").
    Discard,
    /// The prefixes of the message count as withdrawn (RFC 7606 "treat-as-withdraw").
    Withdraw,
    /// The session is reset.
    Reset,
}

/// Legal lengths of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    Exactly(usize),
    /// A multiple of it, at least once.
    Multiple(usize),
    /// The parser of the value decides.
    Parsed,
    AtLeast(usize),
}

impl Length {
    pub(super) fn fits(self, length: usize) -> bool {
        match self {
            Length::Exactly(wanted) => length == wanted,
            Length::Multiple(unit) => length > 0 && length.is_multiple_of(unit),
            Length::Parsed => true,
            Length::AtLeast(least) => length >= least,
        }
    }
}

/// Properties of one attribute type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) kind: u8,
    pub(super) name: &'static str,
    /// Optional and transitive bits it must have.
    pub(super) flags: u8,
    pub(super) length: Length,
    pub(super) malformed: Outcome,
    /// Meaningless from an external peer: left out unseen.
    pub(super) internal_only: bool,
    /// Meaningless from a peer with 4-octet AS numbers: left out unseen.
    pub(super) two_octet_only: bool,
}

const WELL_KNOWN: u8 = TRANSITIVE;
const OPTIONAL_TRANSITIVE: u8 = OPTIONAL | TRANSITIVE;

const fn rule(kind: u8, name: &'static str, flags: u8, length: Length) -> Rule {
    Rule {
        kind,
        name,
        flags,
        length,
        malformed: Outcome::Withdraw,
        internal_only: false,
        two_octet_only: false,
    }
}

const fn internal(rule: Rule) -> Rule {
    Rule {
        internal_only: true,
        ..rule
    }
}

const fn two_octet(rule: Rule) -> Rule {
    Rule {
        two_octet_only: true,
        malformed: Outcome::Discard,
        ..rule
    }
}

const fn outcome(rule: Rule, malformed: Outcome) -> Rule {
    Rule { malformed, ..rule }
}

use Length::{AtLeast, Exactly, Multiple, Parsed};

const RULES: &[Rule] = &[
    rule(kind::ORIGIN, "ORIGIN", WELL_KNOWN, Exactly(1)),
    rule(kind::AS_PATH, "AS_PATH", WELL_KNOWN, Parsed),
    rule(kind::NEXT_HOP, "NEXT_HOP", WELL_KNOWN, Exactly(4)),
    rule(kind::MED, "MULTI_EXIT_DISC", OPTIONAL, Exactly(4)),
    internal(rule(kind::LOCAL_PREF, "LOCAL_PREF", WELL_KNOWN, Exactly(4))),
    outcome(
        rule(
            kind::ATOMIC_AGGREGATE,
            "ATOMIC_AGGREGATE",
            WELL_KNOWN,
            Exactly(0),
        ),
        Outcome::Discard,
    ),
    outcome(
        rule(kind::AGGREGATOR, "AGGREGATOR", OPTIONAL_TRANSITIVE, Parsed),
        Outcome::Discard,
    ),
    rule(
        kind::COMMUNITIES,
        "COMMUNITIES",
        OPTIONAL_TRANSITIVE,
        Multiple(4),
    ),
    internal(rule(
        kind::ORIGINATOR_ID,
        "ORIGINATOR_ID",
        OPTIONAL,
        Exactly(4),
    )),
    internal(rule(
        kind::CLUSTER_LIST,
        "CLUSTER_LIST",
        OPTIONAL,
        Multiple(4),
    )),
    outcome(
        rule(kind::MP_REACH, "MP_REACH_NLRI", OPTIONAL, AtLeast(5)),
        Outcome::Reset,
    ),
    outcome(
        rule(kind::MP_UNREACH, "MP_UNREACH_NLRI", OPTIONAL, AtLeast(3)),
        Outcome::Reset,
    ),
    rule(
        kind::EXTENDED_COMMUNITIES,
        "EXTENDED COMMUNITIES",
        OPTIONAL_TRANSITIVE,
        Multiple(8),
    ),
    two_octet(rule(
        kind::AS4_PATH,
        "AS4_PATH",
        OPTIONAL_TRANSITIVE,
        Parsed,
    )),
    two_octet(rule(
        kind::AS4_AGGREGATOR,
        "AS4_AGGREGATOR",
        OPTIONAL_TRANSITIVE,
        Exactly(8),
    )),
    rule(
        kind::IPV6_EXTENDED_COMMUNITIES,
        "IPv6 EXTENDED COMMUNITIES",
        OPTIONAL_TRANSITIVE,
        Multiple(20),
    ),
    rule(
        kind::LARGE_COMMUNITIES,
        "LARGE_COMMUNITY",
        OPTIONAL_TRANSITIVE,
        Multiple(12),
    ),
    rule(
        kind::ONLY_TO_CUSTOMER,
        "ONLY_TO_CUSTOMER",
        OPTIONAL_TRANSITIVE,
        Exactly(4),
    ),
];

/// The rule of a type; `None` for types this speaker does not know.
pub(super) fn rule_of(kind: u8) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.kind == kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_type_order_and_has_each_type_once() {
        assert!(RULES.is_sorted_by(|a, b| a.kind < b.kind));
    }
}
