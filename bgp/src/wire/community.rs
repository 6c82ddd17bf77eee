//! Communities (RFC 1997) and large communities (RFC 8092).

use std::fmt;
use std::str::FromStr;

/// A community, written `AS:VALUE`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Community(pub u32);

impl Community {
    /// Not to external peers.
    pub const NO_EXPORT: Community = Community(0xFFFF_FF01);
    /// Not to any peer.
    pub const NO_ADVERTISE: Community = Community(0xFFFF_FF02);
    /// Not outside the confederation; without one the same as [`Community::NO_EXPORT`].
    pub const NO_EXPORT_SUBCONFED: Community = Community(0xFFFF_FF03);
    /// The path is about to go away (RFC 8326).
    pub const GRACEFUL_SHUTDOWN: Community = Community(0xFFFF_0000);
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0 >> 16, self.0 & 0xFFFF)
    }
}

impl fmt::Debug for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Community {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a community (two numbers up to 65535, A:B)");
        let (high, low) = text.split_once(':').ok_or_else(wrong)?;
        let part = |text: &str| text.parse::<u16>().map_err(|_| wrong());
        Ok(Community(
            u32::from(part(high)?) << 16 | u32::from(part(low)?),
        ))
    }
}

/// A large community, written `GLOBAL:LOCAL1:LOCAL2`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeCommunity {
    /// Global administrator, an AS number.
    pub global: u32,
    /// First local part.
    pub local1: u32,
    /// Second local part.
    pub local2: u32,
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.global, self.local1, self.local2)
    }
}

impl fmt::Debug for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for LargeCommunity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a large community (three numbers, A:B:C)");
        let parts: Vec<u32> = text
            .split(':')
            .map(|part| part.parse().map_err(|_| wrong()))
            .collect::<Result<_, _>>()?;
        match parts[..] {
            [global, local1, local2] => Ok(LargeCommunity {
                global,
                local1,
                local2,
            }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communities_print_the_way_they_parse() {
        assert_eq!(
            "65000:100".parse::<Community>().unwrap(),
            Community(0xFDE8_0064)
        );
        assert_eq!(Community(0xFDE8_0064).to_string(), "65000:100");
        assert!("65536:1".parse::<Community>().is_err());
        let large: LargeCommunity = "64512:1:2".parse().unwrap();
        assert_eq!(large.to_string(), "64512:1:2");
        assert!("1:2".parse::<LargeCommunity>().is_err());
    }
}
