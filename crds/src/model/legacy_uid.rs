//! UIDs as an aggregated Calico API server shows them.

/// Turns the UID of a stored object into the one the aggregated server showed for it, and back: the bits of each byte
/// are reversed, but for bytes 6 and 8, which hold version and variant (RFC 9562 section 4). Absent when `uid` is not a
/// UUID in its usual form.
pub fn swap_legacy_uid(uid: &str) -> Option<String> {
    let hyphens = [8, 13, 18, 23];
    if uid.len() != 36 || !hyphens.iter().all(|at| uid.as_bytes()[*at] == b'-') {
        return None;
    }
    let digits: Vec<u8> = uid.bytes().filter(|byte| *byte != b'-').collect();
    let mut swapped = String::with_capacity(36);
    for (index, pair) in digits.chunks(2).enumerate() {
        let text = std::str::from_utf8(pair)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        let byte = u8::from_str_radix(text, 16).ok()?;
        if hyphens.contains(&swapped.len()) {
            swapped.push('-');
        }
        let byte = if index == 6 || index == 8 {
            byte
        } else {
            byte.reverse_bits()
        };
        swapped.push_str(&format!("{byte:02x}"));
    }
    (swapped.len() == 36).then_some(swapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapping_twice_gives_the_uid_back() {
        let stored = "30316465-6365-4463-ad63-3564622d3638";
        let shown = "0c8c26a6-c6a6-44c6-adc6-ac2646b46c1c";
        assert_eq!(swap_legacy_uid(stored).as_deref(), Some(shown));
        assert_eq!(swap_legacy_uid(shown).as_deref(), Some(stored));
        for text in [
            "",
            "30316465",
            "30316465-6365-4463-ad63-3564622d363g",
            "3031646506365-4463-ad63-3564622d3638-",
        ] {
            assert_eq!(swap_legacy_uid(text), None, "{text:?}");
        }
    }
}
