//! Health of the agent: parts report, [`Health`] sums up, [`server`] answers probes.

pub(crate) mod client;
pub(crate) mod server;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use margay_crds::admin::HealthPart;

/// What one part last said.
#[derive(Debug, Clone)]
struct Report {
    live: bool,
    ready: bool,
    detail: String,
    at: Instant,
    /// A report older than this counts as bad.
    timeout: Option<Duration>,
}

/// The health of all parts, shared by those that report and those that ask.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    parts: Arc<Mutex<BTreeMap<&'static str, Report>>>,
}

impl Health {
    /// Announces a part: live but not ready until it reports. A part with a timeout has to report at least that often.
    pub(crate) fn register(&self, part: &'static str, timeout: Option<Duration>) {
        let report = Report {
            live: true,
            ready: false,
            detail: "starting".into(),
            at: Instant::now(),
            timeout,
        };
        self.with(|parts| parts.insert(part, report));
    }

    /// Takes a report of a live part; `Err` says in words why it is not ready.
    pub(crate) fn report(&self, part: &'static str, ready: Result<(), String>) {
        self.with(|parts| {
            let timeout = parts.get(part).and_then(|old| old.timeout);
            let (ready, detail) = match ready {
                Ok(()) => (true, String::new()),
                Err(detail) => (false, detail),
            };
            parts.insert(
                part,
                Report {
                    live: true,
                    ready,
                    detail,
                    at: Instant::now(),
                    timeout,
                },
            );
        });
    }

    /// Every part as of now, by name.
    pub(crate) fn parts(&self, now: Instant) -> Vec<HealthPart> {
        self.with(|parts| {
            parts
                .iter()
                .map(|(name, report)| {
                    let late = report
                        .timeout
                        .filter(|limit| now.saturating_duration_since(report.at) > *limit);
                    HealthPart {
                        name: (*name).to_owned(),
                        live: report.live && late.is_none(),
                        ready: report.ready && late.is_none(),
                        detail: match late {
                            Some(limit) => {
                                format!("timed out: no report for more than {} s", limit.as_secs())
                            }
                            None => report.detail.clone(),
                        },
                    }
                })
                .collect()
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<&'static str, Report>) -> R) -> R {
        // A poisoned map still holds whole reports: they are replaced, never edited.
        f(&mut self.parts.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The body of a probe answer: a table as the tools of this field print it.
pub(crate) fn table(parts: &[HealthPart]) -> String {
    let header = ["COMPONENT", "LIVENESS", "READINESS", "DETAIL"].map(str::to_owned);
    let mut rows = vec![header];
    rows.extend(parts.iter().map(|part| {
        [
            part.name.clone(),
            if part.live {
                "reporting live"
            } else {
                "reporting non-live"
            }
            .to_owned(),
            if part.ready {
                "reporting ready"
            } else {
                "reporting non-ready"
            }
            .to_owned(),
            part.detail.clone(),
        ]
    }));
    let width = |column: usize| {
        rows.iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |row: &[String; 4]| {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!(" {cell:<width$} "))
            .collect();
        format!("|{}|\n", cells.join("|"))
    };
    let rule = format!(
        "+{}+\n",
        widths.map(|width| "-".repeat(width + 2)).join("+")
    );
    let mut text = format!("{rule}{}{rule}", line(&rows[0]));
    rows[1..].iter().for_each(|row| text.push_str(&line(row)));
    text.push_str(&rule);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_not_ready_until_it_says_so_and_says_why() {
        let health = Health::default();
        health.register("bgp", None);
        let now = Instant::now();
        assert!(health.parts(now)[0].live && !health.parts(now)[0].ready);
        health.report("bgp", Err("BGP not established with 10.0.0.2".into()));
        assert_eq!(
            health.parts(now)[0].detail,
            "BGP not established with 10.0.0.2"
        );
        health.report("bgp", Ok(()));
        assert!(health.parts(now)[0].ready);
        assert!(health.parts(now)[0].detail.is_empty());
    }

    #[test]
    fn a_part_that_stops_reporting_is_neither_live_nor_ready() {
        let health = Health::default();
        health.register("loop", Some(Duration::from_secs(90)));
        health.report("loop", Ok(()));
        let part = &health.parts(Instant::now() + Duration::from_secs(91))[0];
        assert!(!part.live && !part.ready);
        assert!(part.detail.contains("90 s"), "{}", part.detail);
    }

    #[test]
    fn the_table_lists_parts_in_order() {
        let health = Health::default();
        health.register("b", None);
        health.register("a", None);
        health.report("b", Err("stopped".into()));
        let text = table(&health.parts(Instant::now()));
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].contains("COMPONENT") && lines[3].contains("| a "),
            "{text}"
        );
        assert!(
            lines[4].contains("reporting non-ready") && lines[4].contains("stopped"),
            "{text}"
        );
    }
}
