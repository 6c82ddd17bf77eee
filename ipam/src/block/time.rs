//! Times as the objects store them.

use jiff::Timestamp;

/// RFC 3339 with a resolution of one second.
pub fn stored_time(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second())
        .unwrap_or(at)
        .to_string()
}

/// Reads a stored time; absent when it is not one.
pub fn wall(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// The text Go prints for a time in UTC, as the attribute `timestamp` of an address has it:
/// `2026-03-04 05:07:09.25 +0000 UTC`.
pub fn go_time(at: Timestamp) -> String {
    // RFC 3339 in UTC is the same but for the letters.
    let text = at.to_string().replace('T', " ");
    format!("{} +0000 UTC", text.trim_end_matches('Z'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_forms_other_readers_expect() {
        let at: Timestamp = "2026-03-04T05:07:09.25Z".parse().expect("a time");
        assert_eq!(stored_time(at), "2026-03-04T05:07:09Z");
        assert_eq!(go_time(at), "2026-03-04 05:07:09.25 +0000 UTC");
        assert_eq!(
            wall("2026-03-04T05:07:09Z").map(|t| t.as_second()),
            Some(at.as_second())
        );
        assert_eq!(wall("yesterday"), None);
    }
}
