//! Expressions: the instructions a rule consists of.
//!
//! Their form on the wire is in [`super::expr_wire`].

/// What happens to the packet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Ends this base chain.
    Accept,
    /// Final.
    Drop,
    /// Back to the calling chain.
    Return,
    /// Next rule.
    Continue,
    /// Into a chain, then back.
    Jump(String),
    /// Into a chain, not back.
    Goto(String),
}

/// Facts about a packet besides its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaKey {
    /// Packet mark, host order.
    Mark,
    /// Name of the incoming interface, 16 octets.
    InputInterface,
    /// Name of the outgoing interface, 16 octets.
    OutputInterface,
    /// Transport protocol, one octet.
    Protocol,
}

/// Comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CmpOp {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
}

/// Which address is translated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatKind {
    /// Source.
    Source,
    /// Destination.
    Destination,
}

/// One instruction. Registers are numbered 1 to 4, 16 octets each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// Loads a fact into a register.
    Meta {
        /// Which fact.
        key: MetaKey,
        /// Register.
        register: u32,
    },
    /// Sets a fact from a register.
    SetMeta {
        /// Which fact.
        key: MetaKey,
        /// Register.
        register: u32,
    },
    /// Loads part of the network header.
    Network {
        /// First octet.
        offset: u32,
        /// Number of octets.
        length: u32,
        /// Register.
        register: u32,
    },
    /// Loads part of the transport header.
    Transport {
        /// First octet.
        offset: u32,
        /// Number of octets.
        length: u32,
        /// Register.
        register: u32,
    },
    /// Goes on only if the register compares so.
    Cmp {
        /// How.
        op: CmpOp,
        /// Register.
        register: u32,
        /// Value.
        value: Vec<u8>,
    },
    /// Goes on only if the register is (not) in a set.
    Lookup {
        /// Set.
        set: String,
        /// Register.
        register: u32,
        /// True: only if it is not in the set.
        invert: bool,
    },
    /// Does what a verdict map says for the register; goes on if the key is not there.
    VerdictMap {
        /// Map.
        map: String,
        /// Register.
        register: u32,
    },
    /// Loads a value into a register.
    Load {
        /// Register.
        register: u32,
        /// Value.
        value: Vec<u8>,
    },
    /// Loads what kind of address the source is (`RTN_*`, host order): 2 when it is one of this node's.
    SourceType {
        /// Only addresses of the outgoing interface count.
        of_output_interface: bool,
        /// Register.
        register: u32,
    },
    /// Counts packets and octets.
    Counter,
    /// Ends the rule with a verdict.
    Verdict(Verdict),
    /// Replaces the source by the address of the outgoing interface.
    Masquerade {
        /// Choose the source port at random.
        fully_random: bool,
        /// Registers with the lowest and highest source port.
        ports: Option<(u32, u32)>,
    },
    /// Replaces source or destination by the address in a register.
    Nat {
        /// Which.
        kind: NatKind,
        /// Address family number.
        family: u8,
        /// Register with the address.
        address: u32,
        /// Registers with the lowest and highest port.
        ports: Option<(u32, u32)>,
        /// Choose the port at random.
        fully_random: bool,
    },
    /// An instruction we never write; equal only to itself.
    Unknown {
        /// Its name.
        name: String,
        /// Its attributes.
        data: Vec<u8>,
    },
}

impl Expr {
    /// Source address of a packet of a family.
    pub fn source_address(family: super::Family) -> Self {
        if family.is_ipv6() {
            Self::Network {
                offset: 8,
                length: 16,
                register: 1,
            }
        } else {
            Self::Network {
                offset: 12,
                length: 4,
                register: 1,
            }
        }
    }

    /// Destination address of a packet of a family.
    pub fn destination_address(family: super::Family) -> Self {
        if family.is_ipv6() {
            Self::Network {
                offset: 24,
                length: 16,
                register: 1,
            }
        } else {
            Self::Network {
                offset: 16,
                length: 4,
                register: 1,
            }
        }
    }
}
