//! Names of objects.

use super::Findings;

/// Checks a DNS-1123 subdomain: labels of 1-63 lower-case letters, digits and `-`, joined by dots, at most 253.
pub(super) fn subdomain(name: &str, findings: &mut Findings) {
    if name.len() > 253 || !name.split('.').all(is_label) {
        findings.add(
            "metadata.name",
            name,
            "must be at most 253 characters: lower-case letters, digits and - in parts joined by dots, each beginning \
             and ending with a letter or digit",
        );
    }
}

/// True for 1-63 lower-case letters, digits and `-`, beginning and ending with a letter or digit.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Checks the name of a kind of which only `default` has an effect.
pub(super) fn only_default(name: &str, findings: &mut Findings) {
    if name != "default" {
        findings.add(
            "metadata.name",
            name,
            "only the object default has an effect",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains_are_parts_joined_by_dots() {
        let bad = |name: &str| {
            let mut findings = Findings::default();
            subdomain(name, &mut findings);
            !findings.0.is_empty()
        };
        for name in ["a", "default-ipv4-ippool", "node.a-1.example"] {
            assert!(!bad(name), "{name}");
        }
        for name in ["", "A", "a_b", "-a", "a-", "a..b", &"a".repeat(64)] {
            assert!(bad(name), "{name:?}");
        }
    }
}
