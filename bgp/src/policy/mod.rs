//! Ordered rules on routes: first verdict ends.

mod evaluate;

pub use evaluate::{Decision, Subject};

use ipnet::IpNet;

use crate::Family;
use crate::wire::{Community, LargeCommunity};

/// What becomes of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Taken, or sent.
    Accept,
    /// Not taken, or not sent.
    Reject,
}

/// An ordered list of rules and what happens when none decides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The rules, tried in order.
    pub rules: Vec<Rule>,
    /// Verdict when no rule gave one.
    pub default: Verdict,
}

impl Policy {
    /// Accepts everything unchanged.
    pub fn accept_all() -> Self {
        Policy {
            rules: Vec::new(),
            default: Verdict::Accept,
        }
    }

    /// Rejects everything.
    pub fn reject_all() -> Self {
        Policy {
            rules: Vec::new(),
            default: Verdict::Reject,
        }
    }
}

/// One rule: when all conditions hold the actions are done, then the verdict, if any, ends the
/// evaluation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rule {
    /// All must hold; empty always holds.
    pub conditions: Vec<Condition>,
    /// Changes to the route.
    pub actions: Vec<Action>,
    /// `None` goes on with the next rule.
    pub verdict: Option<Verdict>,
}

impl Rule {
    /// A rule without changes.
    pub fn new(conditions: Vec<Condition>, verdict: Verdict) -> Self {
        Rule {
            conditions,
            actions: Vec::new(),
            verdict: Some(verdict),
        }
    }
}

/// Where a route was learned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// Originated by this speaker.
    Local,
    /// Learned from any peer.
    Learned,
    /// Learned from an internal peer.
    Internal,
    /// Learned from an external peer.
    External,
}

/// One condition of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Condition {
    /// The prefix is one of these exactly.
    PrefixIs(Vec<IpNet>),
    /// The prefix is equal to or inside one of these.
    PrefixWithin(Vec<IpNet>),
    /// The prefix is equal to or inside this one and its length is in the range.
    PrefixRange {
        /// Covering prefix.
        within: IpNet,
        /// Shortest length.
        min_length: u8,
        /// Longest length.
        max_length: u8,
    },
    /// Family of the prefix.
    Family(Family),
    /// Where it was learned.
    Source(Source),
    /// All of these communities are present.
    HasCommunities(Vec<Community>),
    /// All of these large communities are present.
    HasLargeCommunities(Vec<LargeCommunity>),
    /// AS_PATH begins with these numbers.
    AsPathBegins(Vec<u32>),
    /// LOCAL_PREF in this inclusive range.
    LocalPref {
        /// Lowest.
        min: u32,
        /// Highest.
        max: u32,
    },
    /// The inner condition does not hold.
    Not(Box<Condition>),
}

/// One change to a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sets LOCAL_PREF.
    SetLocalPref(u32),
    /// Sets or removes MULTI_EXIT_DISC.
    SetMed(Option<u32>),
    /// Adds communities.
    AddCommunities(Vec<Community>),
    /// Removes communities.
    RemoveCommunities(Vec<Community>),
    /// Adds large communities.
    AddLargeCommunities(Vec<LargeCommunity>),
    /// Puts these numbers in front of the AS_PATH, first one first. On export the local AS comes
    /// after them.
    PrependAsPath(Vec<u32>),
    /// Sets the weight against other sources of the prefix, see
    /// [`crate::LocalRoute::preference`]; import only.
    SetPreference(u32),
}
