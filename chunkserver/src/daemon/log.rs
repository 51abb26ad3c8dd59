//! The log: what is written, and how.

use std::fmt;

use serde_json::{Map, Value};
use towpath_status::Stderr;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::config::LogFormat;
use super::error::DaemonError;

/// Sends what the libraries log to stderr.
///
/// # Errors
/// [`DaemonError::LogLevel`].
pub fn log_to_stderr(filter: &str, format: LogFormat) -> Result<(), DaemonError> {
    let filtered = tracing_subscriber::registry().with(log_filter(filter)?);
    // It would tell of lines that it cannot write by a macro that panics where stderr is gone.
    let lines = tracing_subscriber::fmt::layer().with_writer(|| Stderr).log_internal_errors(false);
    // Whoever set a subscriber up before keeps it.
    let _ = match format {
        LogFormat::Text => filtered.with(lines.with_ansi(false)).try_init(),
        LogFormat::Json => filtered.with(lines.event_format(JsonLines)).try_init(),
    };
    Ok(())
}

/// What a filter lets through: a level for all parts that it does not name, and one for each that
/// it names.
pub(super) fn log_filter(filter: &str) -> Result<Targets, DaemonError> {
    filter.split(',').map(str::trim).try_fold(Targets::new(), |targets, part| {
        let (name, level) = part.split_once('=').unwrap_or(("", part));
        match (name.trim(), level.trim().parse::<LevelFilter>()) {
            (_, Ok(_)) if level.trim().is_empty() => Err(no_level(part)),
            ("", Ok(level)) => Ok(targets.with_default(level)),
            (name, Ok(level)) => Ok(targets.with_target(name, level)),
            (_, Err(_)) => Err(no_level(part)),
        }
    })
}

fn no_level(part: &str) -> DaemonError {
    DaemonError::LogLevel { part: part.chars().take(64).collect() }
}

/// One JSON object on a line: `time` (UTC), `level`, `part`, `message`, then the fields of the
/// event under their names.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut line = Line(Map::new());
        event.record(&mut line);
        let meta = event.metadata();
        line.put("time", time.into());
        line.put("level", meta.level().as_str().to_ascii_lowercase().into());
        line.put("part", meta.target().into());
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

/// The fields of one event.
struct Line(Map<String, Value>);

impl Line {
    fn put(&mut self, name: &str, value: Value) {
        self.0.insert(name.to_owned(), value);
    }
}

impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field.name(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field.name(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field.name(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field.name(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field.name(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field.name(), format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::Level;

    #[test]
    fn a_word_that_is_no_level_is_refused_and_named() {
        for good in ["info", "WARN", "off", "warn,towpath_chunkserver=debug", "a=trace, error"] {
            assert!(log_filter(good).is_ok(), "{good}");
        }
        for (wrong, part) in [
            ("ifno", "ifno"),
            ("warn,towpath_rpc", "towpath_rpc"),
            ("", ""),
            ("a=loud", "a=loud"),
            ("info, b=", "b="),
        ] {
            let error = log_filter(wrong).expect_err("no level");
            assert!(matches!(error, DaemonError::LogLevel { part: of } if of == part), "{wrong}");
        }
    }

    #[test]
    fn a_part_that_is_named_has_its_own_level_and_others_have_that_of_all() {
        let filter = log_filter("warn,towpath_chunkserver=debug").expect("valid");
        for (target, level, passes) in [
            ("towpath_chunkserver::store", Level::DEBUG, true),
            ("towpath_chunkserver", Level::TRACE, false),
            ("towpath_rpc", Level::WARN, true),
            ("towpath_rpc", Level::INFO, false),
        ] {
            assert_eq!(filter.would_enable(target, &level), passes, "{target} {level}");
        }
    }
}
