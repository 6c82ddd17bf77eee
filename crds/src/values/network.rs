//! Addresses and ranges in the forms fields of resources take.

use std::net::IpAddr;

use ipnet::IpNet;

/// Reads a range in CIDR notation; bits behind the prefix may be set.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_cidr(text: &str) -> Result<IpNet, String> {
    let wrong = || "is not a range in CIDR notation, such as 10.0.0.0/8".to_owned();
    let (address, length) = text.split_once('/').ok_or_else(wrong)?;
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    if length.starts_with('+') || (length.len() > 1 && length.starts_with('0')) {
        return Err(wrong());
    }
    IpNet::new(address, length.parse().map_err(|_| wrong())?).map_err(|_| wrong())
}

/// Reads a range in CIDR notation without bits behind the prefix.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_masked_cidr(text: &str) -> Result<IpNet, String> {
    let network = parse_cidr(text)?;
    if network.trunc() == network {
        Ok(network)
    } else {
        Err(format!(
            "has bits set behind the prefix, write {}",
            network.trunc()
        ))
    }
}

/// Reads an address or a range; an address is a range of one.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_address_or_cidr(text: &str) -> Result<IpNet, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(IpNet::from(address)),
        Err(_) => parse_cidr(text)
            .map_err(|_| "is neither an IP address nor a range in CIDR notation".to_owned()),
    }
}

/// True when the two ranges have an address in common.
pub fn overlap(a: &IpNet, b: &IpNet) -> bool {
    a.contains(b) || b.contains(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_strictly() {
        assert!(parse_cidr("10.0.0.1/8").is_ok());
        assert!(parse_masked_cidr("10.0.0.0/8").is_ok());
        assert_eq!(
            parse_masked_cidr("10.0.0.1/24"),
            Err("has bits set behind the prefix, write 10.0.0.0/24".into())
        );
        for text in [
            "10.0.0.0",
            "10.01.0.0/16",
            "10.0.0.0/33",
            "10.0.0.0/08",
            "10.0.0.0/+8",
            "x/8",
            "",
            "/",
            "::/129",
        ] {
            assert!(parse_cidr(text).is_err(), "{text:?}");
        }
        assert_eq!(
            parse_address_or_cidr("10.0.0.1").map(|net| net.to_string()),
            Ok("10.0.0.1/32".into())
        );
    }

    #[test]
    fn overlap_needs_a_common_address() {
        let net = |text: &str| parse_cidr(text).expect(text);
        assert!(overlap(&net("10.0.0.0/16"), &net("10.0.1.0/24")));
        assert!(overlap(&net("10.0.1.0/24"), &net("10.0.0.0/16")));
        assert!(!overlap(&net("10.0.0.0/24"), &net("10.0.1.0/24")));
        assert!(!overlap(&net("0.0.0.0/0"), &net("::/0")));
    }
}
