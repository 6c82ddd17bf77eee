//! Expressions on the wire.
//!
//! Each is written and read here, so that a rule read back equals the rule written. What the kernel adds on its own
//! (counter values, implied flags, alternative register numbers) is dropped on reading.

use super::expr::{CmpOp, Expr, MetaKey, NatKind, Verdict};
use crate::kernel::netlink::{Attr, Attrs, Encoder};

const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
pub(super) const NFTA_LIST_ELEM: u16 = 1;
pub(super) const NFTA_DATA_VALUE: u16 = 1;
pub(super) const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;
/// Flags that the kernel sets by itself according to the registers given.
const NAT_IMPLIED: u32 = 0x1 | 0x2;
/// Header that a payload offset counts from.
const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const FULLY_RANDOM: u32 = 0x10;
const FIB_ADDRESS_TYPE: u32 = 3;
const FIB_SOURCE: u32 = 0x1;
const FIB_OIF: u32 = 0x10;
/// An address of this node (`RTN_LOCAL`).
pub(crate) const LOCAL_ADDRESS: u32 = 2;

impl Verdict {
    fn code(&self) -> i32 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Continue => -1,
            Self::Jump(_) => -3,
            Self::Goto(_) => -4,
            Self::Return => -5,
        }
    }

    pub(super) fn encode(&self, m: &mut Encoder) {
        m.nest(NFTA_DATA_VERDICT, |v| {
            v.be32(NFTA_VERDICT_CODE, self.code() as u32);
            if let Self::Jump(chain) | Self::Goto(chain) = self {
                v.string(NFTA_VERDICT_CHAIN, chain);
            }
        });
    }

    pub(super) fn decode(attrs: Attrs<'_>) -> Option<Self> {
        let chain = || attrs.find(NFTA_VERDICT_CHAIN).map(|a| a.text());
        Some(match attrs.find(NFTA_VERDICT_CODE)?.be32()? as i32 {
            0 => Self::Drop,
            1 => Self::Accept,
            -1 => Self::Continue,
            -3 => Self::Jump(chain()?),
            -4 => Self::Goto(chain()?),
            -5 => Self::Return,
            _ => return None,
        })
    }
}

impl MetaKey {
    fn number(self) -> u32 {
        match self {
            Self::Mark => 3,
            Self::InputInterface => 6,
            Self::OutputInterface => 7,
            Self::Protocol => 16,
        }
    }

    fn from_number(number: u32) -> Option<Self> {
        [
            Self::Mark,
            Self::InputInterface,
            Self::OutputInterface,
            Self::Protocol,
        ]
        .into_iter()
        .find(|k| k.number() == number)
    }
}

impl Expr {
    /// The wire form, also the identity used for fingerprints.
    pub(super) fn encoded(&self) -> Vec<u8> {
        let mut encoder = Encoder::new();
        self.encode(&mut encoder);
        encoder.bytes().to_vec()
    }

    pub(super) fn encode(&self, m: &mut Encoder) {
        m.nest(NFTA_LIST_ELEM, |m| {
            m.string(NFTA_EXPR_NAME, self.name());
            m.nest(NFTA_EXPR_DATA, |d| self.encode_data(d));
        });
    }

    fn name(&self) -> &str {
        match self {
            Self::Meta { .. } | Self::SetMeta { .. } => "meta",
            Self::Network { .. } | Self::Transport { .. } => "payload",
            Self::Cmp { .. } => "cmp",
            Self::Lookup { .. } | Self::VerdictMap { .. } => "lookup",
            Self::Load { .. } | Self::Verdict(_) => "immediate",
            Self::SourceType { .. } => "fib",
            Self::Counter => "counter",
            Self::Masquerade { .. } => "masq",
            Self::Nat { .. } => "nat",
            Self::Unknown { name, .. } => name,
        }
    }

    fn encode_data(&self, d: &mut Encoder) {
        let payload = |d: &mut Encoder, base, offset, length, register| {
            d.be32(1, register);
            d.be32(2, base);
            d.be32(3, offset);
            d.be32(4, length);
        };
        match self {
            Self::Meta { key, register } => {
                d.be32(2, key.number());
                d.be32(1, *register);
            }
            Self::SetMeta { key, register } => {
                d.be32(2, key.number());
                d.be32(3, *register);
            }
            Self::Network {
                offset,
                length,
                register,
            } => {
                payload(d, NETWORK_HEADER, *offset, *length, *register);
            }
            Self::Transport {
                offset,
                length,
                register,
            } => {
                payload(d, TRANSPORT_HEADER, *offset, *length, *register);
            }
            Self::Cmp {
                op,
                register,
                value,
            } => {
                d.be32(1, *register);
                d.be32(2, u32::from(*op == CmpOp::NotEqual));
                d.nest(3, |v| v.attr(NFTA_DATA_VALUE, value));
            }
            Self::Lookup {
                set,
                register,
                invert,
            } => {
                d.string(1, set);
                d.be32(2, *register);
                if *invert {
                    d.be32(5, 1);
                }
            }
            Self::VerdictMap { map, register } => {
                d.string(1, map);
                d.be32(2, *register);
                d.be32(3, 0);
            }
            Self::Load { register, value } => {
                d.be32(1, *register);
                d.nest(2, |v| v.attr(NFTA_DATA_VALUE, value));
            }
            Self::Verdict(verdict) => {
                d.be32(1, 0);
                d.nest(2, |v| verdict.encode(v));
            }
            Self::SourceType {
                of_output_interface,
                register,
            } => {
                let oif = if *of_output_interface { FIB_OIF } else { 0 };
                d.be32(1, *register);
                d.be32(2, FIB_ADDRESS_TYPE);
                d.be32(3, FIB_SOURCE | oif);
            }
            Self::Counter => {}
            Self::Masquerade {
                fully_random,
                ports,
            } => {
                d.be32(1, nat_flags(*fully_random, ports.is_some()));
                if let Some((low, high)) = ports {
                    d.be32(2, *low);
                    d.be32(3, *high);
                }
            }
            Self::Nat {
                kind,
                family,
                address,
                ports,
                fully_random,
            } => {
                d.be32(1, u32::from(*kind == NatKind::Destination));
                d.be32(2, u32::from(*family));
                d.be32(3, *address);
                if let Some((low, high)) = ports {
                    d.be32(5, *low);
                    d.be32(6, *high);
                }
                if *fully_random {
                    d.be32(7, FULLY_RANDOM);
                }
            }
            Self::Unknown { data, .. } => d.raw(data),
        }
    }

    /// Reads one element of an expression list.
    pub(super) fn decode(element: &Attr<'_>) -> Option<Self> {
        let name = element.nested().find(NFTA_EXPR_NAME)?.text();
        let data = element.nested().find(NFTA_EXPR_DATA);
        let attrs = data.map_or(Attrs(&[]), |d| d.nested());
        let known = Self::decode_data(&name, attrs);
        Some(known.unwrap_or_else(|| Self::Unknown {
            name,
            data: attrs.0.to_vec(),
        }))
    }

    fn decode_data(name: &str, attrs: Attrs<'_>) -> Option<Self> {
        let number = |kind| attrs.find(kind).and_then(|a| a.be32());
        let register = |kind| number(kind).map(plain_register);
        let ports = |low, high| Some((register(low)?, register(high)?));
        Some(match name {
            "meta" => {
                let key = MetaKey::from_number(number(2)?)?;
                match (register(1), register(3)) {
                    (Some(register), None) => Self::Meta { key, register },
                    (None, Some(register)) => Self::SetMeta { key, register },
                    _ => return None,
                }
            }
            "payload" => {
                let (register, base) = (register(1)?, number(2)?);
                let (offset, length) = (number(3)?, number(4)?);
                match base {
                    NETWORK_HEADER => Self::Network {
                        offset,
                        length,
                        register,
                    },
                    TRANSPORT_HEADER => Self::Transport {
                        offset,
                        length,
                        register,
                    },
                    _ => return None,
                }
            }
            "cmp" => Self::Cmp {
                op: match number(2)? {
                    0 => CmpOp::Equal,
                    1 => CmpOp::NotEqual,
                    _ => return None,
                },
                register: register(1)?,
                value: attrs.find(3)?.nested().find(NFTA_DATA_VALUE)?.data.to_vec(),
            },
            "lookup" => {
                let (set, source) = (attrs.find(1)?.text(), register(2)?);
                match (number(3), number(5).unwrap_or(0)) {
                    (None, flags) => Self::Lookup {
                        set,
                        register: source,
                        invert: flags & 1 != 0,
                    },
                    (Some(0), 0) => Self::VerdictMap {
                        map: set,
                        register: source,
                    },
                    _ => return None,
                }
            }
            "immediate" => {
                let data = attrs.find(2)?;
                match data.nested().find(NFTA_DATA_VERDICT) {
                    Some(verdict) => Self::Verdict(Verdict::decode(verdict.nested())?),
                    None => Self::Load {
                        register: register(1)?,
                        value: data.nested().find(NFTA_DATA_VALUE)?.data.to_vec(),
                    },
                }
            }
            "fib" => {
                let flags = number(3)?;
                if number(2)? != FIB_ADDRESS_TYPE || flags & !FIB_OIF != FIB_SOURCE {
                    return None;
                }
                let of_output_interface = flags & FIB_OIF != 0;
                Self::SourceType {
                    of_output_interface,
                    register: register(1)?,
                }
            }
            "counter" => Self::Counter,
            "masq" => {
                let flags = number(1).unwrap_or(0) & !NAT_IMPLIED;
                if flags & !FULLY_RANDOM != 0 {
                    return None;
                }
                Self::Masquerade {
                    fully_random: flags != 0,
                    ports: ports(2, 3),
                }
            }
            "nat" => {
                let flags = number(7).unwrap_or(0) & !NAT_IMPLIED;
                let address = register(3)?;
                if flags & !FULLY_RANDOM != 0 || register(4).is_some_and(|max| max != address) {
                    return None;
                }
                Self::Nat {
                    kind: if number(1)? == 0 {
                        NatKind::Source
                    } else {
                        NatKind::Destination
                    },
                    family: u8::try_from(number(2)?).ok()?,
                    address,
                    ports: ports(5, 6),
                    fully_random: flags != 0,
                }
            }
            _ => return None,
        })
    }
}

fn nat_flags(fully_random: bool, ports: bool) -> u32 {
    (if fully_random { FULLY_RANDOM } else { 0 }) | if ports { 0x2 } else { 0 }
}

/// The 32-bit register that begins a 16-octet one has two numbers.
fn plain_register(register: u32) -> u32 {
    match register {
        8 => 1,
        12 => 2,
        16 => 3,
        20 => 4,
        other => other,
    }
}
