//! Connection collisions (RFC 4271 section 6.8, RFC 6286 section 2.3).

use std::net::Ipv4Addr;

/// Of two connections to one peer, true when the one dialled by this side survives: the side with
/// the higher identifier keeps the connection it opened; equal identifiers, legal between two AS,
/// are decided by the higher AS number.
pub(crate) fn dialled_by_us_survives(own: (Ipv4Addr, u32), peer: (Ipv4Addr, u32)) -> bool {
    (u32::from(own.0), own.1) > (u32::from(peer.0), peer.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_higher_identifier_wins_as_a_number_and_the_as_breaks_ties() {
        let id = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        assert!(dialled_by_us_survives(
            (id("10.0.0.10"), 1),
            (id("10.0.0.9"), 2)
        ));
        assert!(!dialled_by_us_survives(
            (id("1.1.1.1"), 9),
            (id("200.0.0.1"), 1)
        ));
        assert!(dialled_by_us_survives(
            (id("1.1.1.1"), 2),
            (id("1.1.1.1"), 1)
        ));
    }
}
