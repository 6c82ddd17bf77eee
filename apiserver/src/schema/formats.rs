//! String and number formats the API server enforces (Kubernetes: supported formats of structural schemas).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

/// Whether `value` fits; unknown formats are not enforced.
pub(super) fn fits(format: &str, value: &Value) -> bool {
    match (format, value) {
        ("int32", Value::Number(n)) => n
            .as_f64()
            .is_none_or(|n| (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&n)),
        (_, Value::String(text)) => text_fits(format, text),
        _ => true,
    }
}

fn text_fits(format: &str, text: &str) -> bool {
    match format {
        "cidr" => is_cidr(text),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "ip" => text.parse::<IpAddr>().is_ok(),
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD
                .decode(text)
                .is_ok()
        }
        "uuid" => uuid::Uuid::parse_str(text).is_ok(),
        "mac" => is_mac(text),
        "duration" => is_go_duration(text),
        _ => true,
    }
}

/// Address, slash, prefix length without leading zeros (Go `net.ParseCIDR`).
fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let (Ok(address), Ok(bits)) = (address.parse::<IpAddr>(), length.parse::<u8>()) else {
        return false;
    };
    let canonical = length == bits.to_string();
    canonical && bits <= if address.is_ipv4() { 32 } else { 128 }
}

fn is_mac(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    matches!(parts.len(), 6 | 8 | 20)
        && parts
            .iter()
            .all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Go durations: an optional sign, then one or more `<decimal><unit>`; `0` needs no unit.
fn is_go_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(0);
        if digits == 0 || rest[..digits].parse::<f64>().is_err() {
            return false;
        }
        rest = &rest[digits..];
        let unit = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"]
            .iter()
            .find(|u| rest.starts_with(**u));
        match unit {
            Some(unit) => rest = &rest[unit.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_follow_go_parsers() {
        for good in ["10.0.0.0/8", "10.0.0.1/24", "::/0", "fd00::/112"] {
            assert!(text_fits("cidr", good), "{good}");
        }
        for bad in [
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "10.0.0.0/08",
            "a/8",
        ] {
            assert!(!text_fits("cidr", bad), "{bad}");
        }
        for good in ["1.5s", "1h2m", "0", "-3ms"] {
            assert!(text_fits("duration", good), "{good}");
        }
        for bad in ["", "5", "s", "1x", "1..5s"] {
            assert!(!text_fits("duration", bad), "{bad}");
        }
        assert!(!fits("int32", &Value::from(4_294_967_295u64)));
        assert!(text_fits("whatever", "x"));
    }
}
