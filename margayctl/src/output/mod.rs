//! Everything that is printed: formats, tables, paths into objects.

mod columns;
mod format;
mod path;
mod table;

pub(crate) use columns::CustomColumns;
pub(crate) use format::{Format, document, print_document};
pub(crate) use path::Template;
pub(crate) use table::Table;

use jiff::Timestamp;

/// A span of time the way kubectl prints ages: `5s`, `3m10s`, `2d3h`, `1y20d`.
pub(crate) fn human_duration(seconds: i64) -> String {
    let s = seconds.max(0);
    let (m, h, d) = (s / 60, s / 3600, s / 86_400);
    let two = |big: i64, unit: char, rest: i64, small: char| {
        if rest == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{rest}{small}")
        }
    };
    match s {
        0..120 => format!("{s}s"),
        _ if m < 10 => two(m, 'm', s % 60, 's'),
        _ if m < 180 => format!("{m}m"),
        _ if h < 8 => two(h, 'h', m % 60, 'm'),
        _ if h < 48 => format!("{h}h"),
        _ if h < 192 => two(d, 'd', h % 24, 'h'),
        _ if d < 730 => format!("{d}d"),
        _ if d < 2920 => two(d / 365, 'y', d % 365, 'd'),
        _ => format!("{}y", d / 365),
    }
}

/// How long ago a moment was, as an age.
pub(crate) fn age(since: Timestamp) -> String {
    human_duration(Timestamp::now().as_second() - since.as_second())
}

#[cfg(test)]
mod tests {
    use super::human_duration;

    #[test]
    fn durations_read_as_kubectl_prints_them() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (190, "3m10s"),
            (3599, "59m"),
            (10_800, "3h"),
            (11_100, "3h5m"),
            (100_000, "27h"),
            (183_600, "2d3h"),
            (864_000, "10d"),
            (64_000_000, "2y10d"),
        ] {
            assert_eq!(human_duration(seconds), text);
        }
    }
}
