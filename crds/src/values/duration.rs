//! Durations as Go prints them.

use std::time::Duration;

/// Reads a duration such as `90s`, `1m30s`, `1.5h`, `300ms` or `0`. Empty, negative and unit-less text is refused.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut seconds = 0f64;
    loop {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..number_end].parse().ok()?;
        let tail = &rest[number_end..];
        let unit_end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let unit = match &tail[..unit_end] {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number * unit;
        rest = &tail[unit_end..];
        if rest.is_empty() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let cases = [
            ("90s", 90_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("300ms", 300),
            ("1m1.5s", 61_500),
            ("0", 0),
            ("0s", 0),
        ];
        for (text, milliseconds) in cases {
            assert_eq!(
                parse_duration(text),
                Some(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in [
            "",
            "90",
            "s",
            "-1s",
            "1x",
            "1..5s",
            "1s2",
            " 1s",
            ".s",
            "99999999999999999999h",
        ] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }
}
