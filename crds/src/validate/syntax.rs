//! Small texts: interface names, communities, regular expressions by their brackets.

/// True for a name an interface can have: 1-15 of `[a-zA-Z0-9_.-]`, and of `extra`.
pub(super) fn is_interface(text: &str, extra: &str) -> bool {
    let allowed =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') || extra.contains(c);
    (1..=15).contains(&text.len()) && text.chars().all(allowed)
}

/// Checks a community: `aa:nn` of 16 bits each (RFC 1997) or `aa:nn:mm` of 32 bits each (RFC 8092).
pub(super) fn community(text: &str) -> Result<(), String> {
    let parts: Vec<&str> = text.split(':').collect();
    let greatest = match parts.len() {
        2 => u64::from(u16::MAX),
        3 => u64::from(u32::MAX),
        _ => return Err("is not a community aa:nn or aa:nn:mm".to_owned()),
    };
    let fits = |part: &&str| {
        part.bytes().all(|byte| byte.is_ascii_digit())
            && part.parse::<u64>().is_ok_and(|number| number <= greatest)
    };
    match parts.iter().find(|part| !fits(part)) {
        Some(part) => Err(format!(
            "has the part {part:?}, which is not a number from 0 to {greatest}"
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communities_have_two_parts_of_16_or_three_of_32_bits() {
        for text in ["0:0", "65535:65535", "4294967295:0:1"] {
            assert_eq!(community(text), Ok(()), "{text}");
        }
        for text in [
            "65536:1",
            "1:65536",
            "4294967296:0:0",
            "1",
            "1:2:3:4",
            "a:b",
            "no-export",
            ":",
            "1:+2",
        ] {
            assert!(community(text).is_err(), "{text}");
        }
    }

    #[test]
    fn interface_names_are_short() {
        assert!(
            is_interface("eth0", "") && is_interface("eth*", "*") && is_interface("vlan.100", "")
        );
        assert!(!is_interface("", "") && !is_interface("eth*", "") && !is_interface("a b", "*"));
        assert!(!is_interface("sixteen-letters-", ""));
    }
}
