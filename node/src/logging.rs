//! Structured logs on standard error: one line per event with its fields.

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, reload};

/// Changes the level of a running process.
#[derive(Debug, Clone)]
pub(crate) struct LogLevel {
    handle: reload::Handle<EnvFilter, Registry>,
    /// The environment names a level: configuration objects do not change it.
    fixed: bool,
}

/// Starts logging. `setting` is the level the environment asks for: a severity of Calico's configuration (`Info`,
/// `Warning`, ...) or a list of directives (`info,margay_bgp=debug`). Lines are JSON when `MARGAY_LOG_FORMAT=json`.
///
/// # Errors
/// Logging was started before.
pub(crate) fn start(setting: Option<&str>) -> anyhow::Result<LogLevel> {
    let (filter, handle) = reload::Layer::new(filter(setting.unwrap_or("Info")));
    let json = std::env::var("MARGAY_LOG_FORMAT").is_ok_and(|format| format == "json");
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    if json {
        registry.with(lines.json()).try_init()?;
    } else {
        registry.with(lines.with_ansi(false)).try_init()?;
    }
    Ok(LogLevel {
        handle,
        fixed: setting.is_some(),
    })
}

impl LogLevel {
    /// Applies the `logSeverityScreen` of a configuration object, unless the environment names a level.
    pub(crate) fn configure(&self, severity: Option<&str>) {
        if self.fixed {
            return;
        }
        if let Err(error) = self.handle.reload(filter(severity.unwrap_or("Info"))) {
            tracing::warn!(%error, "log level cannot be changed");
        }
    }
}

fn filter(setting: &str) -> EnvFilter {
    let directives = match setting.to_ascii_lowercase().as_str() {
        "trace" => "trace,hyper=info,rustls=info,tower=info,h2=info".to_owned(),
        "debug" => "debug,hyper=info,rustls=info,tower=info,h2=info,kube=info".to_owned(),
        "" | "info" => "info".to_owned(),
        "warning" | "warn" => "warn".to_owned(),
        "error" | "fatal" | "panic" => "error".to_owned(),
        "none" => "off".to_owned(),
        _ => setting.to_owned(),
    };
    EnvFilter::try_new(&directives).unwrap_or_else(|_| EnvFilter::new("info"))
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn severities_and_directives_are_understood_and_nonsense_means_info() {
        assert_eq!(filter("Warning").to_string(), "warn");
        assert_eq!(filter("Fatal").to_string(), "error");
        assert!(
            filter("info,margay_bgp=debug")
                .to_string()
                .contains("margay_bgp=debug")
        );
        assert_eq!(filter("a=b=c").to_string(), "info");
    }
}
