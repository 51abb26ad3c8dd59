//! The config file: TOML with one level of keys, errors with their place.

use std::borrow::Cow;
use std::error::Error as _;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, Command};
use serde_json::Value;
use thiserror::Error;
use toml::de::{DeTable, DeValue};

use super::config::DaemonConfig;

/// Longest config file: a hundred times what all keys with their comments take.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A config file that cannot be used, with what to do about it.
#[derive(Debug, Error)]
pub enum ConfigFileError {
    /// It cannot be read.
    #[error("cannot read {}; check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It can be read and is wrong.
    #[error("{}:{error}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        #[source]
        error: ConfigTextError,
    },
}

/// What is wrong in the text of a config file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{line}:{column}: {fault}")]
pub struct ConfigTextError {
    /// Line, from 1.
    pub line: usize,
    /// Character in the line, from 1.
    pub column: usize,
    /// What.
    #[source]
    pub fault: ConfigFault,
}

/// A fault in a config file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigFault {
    /// No TOML.
    #[error("{message}; `--print-config` shows a file as it should be")]
    Syntax {
        /// What the parser says.
        message: String,
    },
    /// A key that there is not.
    #[error("there is no key `{name}`{}", hint(nearest.as_deref()))]
    UnknownKey {
        /// The key.
        name: String,
        /// The key that was probably meant.
        nearest: Option<String>,
    },
    /// A value that the key does not take.
    #[error("`{name}` {needs}")]
    Value {
        /// The key.
        name: String,
        /// Which it takes: "needs a whole number from 0 to 9".
        needs: String,
    },
}

fn hint(nearest: Option<&str>) -> Cow<'static, str> {
    match nearest {
        Some(name) => format!("; is `{name}` meant?").into(),
        None => "; `--print-config` shows all keys".into(),
    }
}

/// Reads the settings of a config file: each one's name, and the flag that says the same.
pub(super) fn read_file(path: &Path) -> Result<Vec<(String, String)>, ConfigFileError> {
    let failed = |source| ConfigFileError::Read { path: path.into(), source };
    let bytes = std::fs::metadata(path).map_err(failed)?.len();
    if bytes > FILE_BYTES_MAX {
        return Err(failed(io::Error::from(io::ErrorKind::FileTooLarge)));
    }
    let text = std::fs::read_to_string(path).map_err(failed)?;
    flags_of(&text).map_err(|error| ConfigFileError::Content { path: path.into(), error })
}

/// The settings of a text, by name, each with the flag that it is like: `links_max = 3` is
/// `--links-max=3`. All are known, and have values that their flags take.
fn flags_of(text: &str) -> Result<Vec<(String, String)>, ConfigTextError> {
    let table = DeTable::parse(text).map_err(|error| {
        let fault = ConfigFault::Syntax { message: one_line(error.message()) };
        at(text, error.span(), fault)
    })?;
    let known = DaemonConfig::flags();
    // The order of the file, so that the first fault is the one that is told.
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    let mut flags = Vec::new();
    for (name, value) in entries {
        let key: &str = name.get_ref();
        let Some(arg) = known.get_arguments().find(|arg| arg.get_id() == key) else {
            let unknown = shorten(key);
            let nearest = nearest(&known, &unknown);
            let fault = ConfigFault::UnknownKey { name: unknown, nearest };
            return Err(at(text, Some(name.span()), fault));
        };
        let flag = plain(arg, value.get_ref()).and_then(|value| {
            let flag = format!("--{}={value}", key.replace('_', "-"));
            refusal(arg, &flag).map_or(Ok(flag), |needs| Err(needs.into()))
        });
        let flag = flag.map_err(|needs| {
            let fault = ConfigFault::Value { name: key.into(), needs: needs.into() };
            at(text, Some(value.span()), fault)
        });
        flags.push((key.into(), flag?));
    }
    Ok(flags)
}

/// Why a flag does not take its value, if it does not.
fn refusal(arg: &Arg, flag: &str) -> Option<String> {
    let alone = Command::new("setting").no_binary_name(true).disable_help_flag(true);
    let error = alone.arg(arg.clone()).try_get_matches_from([flag]).err()?;
    Some(match (error.source(), error.get(ContextKind::ValidValue)) {
        (Some(needs), _) => needs.to_string(),
        (None, Some(ContextValue::Strings(words))) => format!("needs one of {}", words.join(", ")),
        (None, _) => "needs a value".into(),
    })
}

/// The known name that is most like an unknown one, unless none is.
fn nearest(known: &Command, unknown: &str) -> Option<String> {
    let flag = format!("--{}", unknown.replace('_', "-"));
    let error = known.clone().try_get_matches_from([flag]).err()?;
    match error.get(ContextKind::SuggestedArg)? {
        ContextValue::String(flag) => Some(flag.trim_start_matches('-').replace('-', "_")),
        _ => None,
    }
}

impl DaemonConfig {
    /// The settings of a config file, and the defaults of all that it does not have.
    ///
    /// # Errors
    /// [`ConfigTextError`].
    pub fn from_file_text(text: &str) -> Result<Self, ConfigTextError> {
        let flags = flags_of(text)?.into_iter().map(|(_, flag)| flag);
        Self::from_args(flags).map_err(|error| {
            let message = one_line(&error.to_string());
            at(text, None, ConfigFault::Syntax { message })
        })
    }

    /// The settings as a config file, each with a comment that says what it does.
    ///
    /// # Errors
    /// A path is not UTF-8, so no file can have it.
    pub fn to_file_text(&self) -> io::Result<String> {
        let (settings, mut text) = (serde_json::to_value(self)?, String::new());
        for arg in Self::flags().get_arguments() {
            let name = arg.get_id().as_str();
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let quoted = |text: &str| toml::Value::from(text).to_string();
            let default = arg.get_default_values().first().and_then(|text| text.to_str());
            let value = match &settings[name] {
                Value::Null => quoted(default.unwrap_or_default()),
                Value::String(text) => quoted(text),
                number_or_bool => number_or_bool.to_string(),
            };
            text.push_str(&format!("# {help}\n{name} = {value}\n\n"));
        }
        Ok(text)
    }
}

/// The value as the text that the flag has.
fn plain<'a>(arg: &Arg, value: &'a DeValue<'_>) -> Result<Cow<'a, str>, Cow<'static, str>> {
    let is = |kind: &str| arg.get_value_names().is_some_and(|names| names == [kind]);
    match value {
        DeValue::Boolean(yes) if is("BOOL") => Ok(yes.to_string().into()),
        _ if is("BOOL") => Err("needs true or false, without quotes".into()),
        DeValue::String(text) => Ok(Cow::Borrowed(text)),
        DeValue::Array(rules) if is("RULES") => {
            let rules: Option<Vec<_>> =
                rules.iter().map(|rule| carrier_rule(rule.get_ref())).collect();
            let needs = "needs rules as in [{ peers = \"10.1.0.0/16\", use = \"rc\" }]";
            Ok(rules.ok_or(needs)?.join(",").into())
        }
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) => Ok(number.to_string().into()),
            Err(_) => Err("needs a number that 64 bits hold".into()),
        },
        _ => Err("needs a number or a text in quotes".into()),
    }
}

/// A table of `peers` and `use`, as the text of a rule.
fn carrier_rule(value: &DeValue<'_>) -> Option<String> {
    let DeValue::Table(table) = value else { return None };
    let text = |name| match table.get(name)?.get_ref() {
        DeValue::String(text) => Some(text),
        _ => None,
    };
    let (peers, carrier) = (text("peers")?, text("use")?);
    (table.len() == 2).then(|| format!("{peers}={carrier}"))
}

fn at(text: &str, span: Option<Range<usize>>, fault: ConfigFault) -> ConfigTextError {
    let end = span.map_or(0, |span| span.start).min(text.len());
    let before = &text.as_bytes()[..end];
    let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    ConfigTextError {
        line: before.iter().filter(|byte| **byte == b'\n').count() + 1,
        column: String::from_utf8_lossy(&before[line_start..]).chars().count() + 1,
        fault,
    }
}

fn one_line(message: &str) -> String {
    message.lines().collect::<Vec<_>>().join(", ")
}

/// An unknown key may be of any length; an error names its beginning.
fn shorten(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::StatusPlace;

    fn fault(text: &str) -> ConfigTextError {
        DaemonConfig::from_file_text(text).expect_err("the text is wrong")
    }

    #[test]
    fn the_file_that_is_printed_reads_back_as_it_was() {
        let mut config = DaemonConfig::default();
        assert_eq!(read_back(&config), config);
        config.store.capacity_bytes = 3 << 30;
        config.store.chunks_max = u64::MAX;
        config.store.more_data_dirs = ["/a", "/b c"].map(Into::into).into();
        config.device.device_ip = Some([10, 0, 0, 1].into());
        config.device.mtu_bytes = Some(towpath_transport::Mtu::Mtu1024);
        config.network.fallback = towpath_transport::Fallback::Tcp;
        config.network.carrier =
            ["10.1.0.0/16=rc", "fd00::/8=tcp"].map(|rule| rule.parse().unwrap()).into();
        config.store.data_dir = "a \"quoted\" \\ name".into();
        config.service.scrub_bytes_per_s = u64::MAX;
        config.telemetry.status_socket = StatusPlace::At("/run/s".into());
        assert_eq!(read_back(&config), config);
    }

    fn read_back(config: &DaemonConfig) -> DaemonConfig {
        let text = config.to_file_text().expect("all paths are text");
        DaemonConfig::from_file_text(&text).expect("it reads what it prints")
    }

    #[test]
    fn a_slip_finds_the_key_that_was_meant_and_nonsense_finds_none() {
        let nearest = |unknown: &str| nearest(&DaemonConfig::flags(), unknown);
        assert_eq!(nearest("capacity_byte").as_deref(), Some("capacity_bytes"));
        assert_eq!(nearest("datadir").as_deref(), Some("data_dir"));
        assert_eq!(nearest("listen_addr").as_deref(), Some("listen"));
        assert_eq!(nearest("colour"), None);
        assert_eq!(nearest(&"x".repeat(64)), None);
        for odd in ["", "=", "a=b", "links-max", "links_max=1", "help", "json", "format", "- -"] {
            let error = fault(&format!("\"{odd}\" = 1"));
            assert!(matches!(error.fault, ConfigFault::UnknownKey { .. }), "{error}");
        }
    }

    #[test]
    fn a_number_of_workers_is_read_with_quotes_and_without() {
        let texts = [("workers = 5", Some(5)), ("workers = \"2\"", Some(2))];
        for (text, workers) in texts.into_iter().chain([("workers = \"auto\"", None)]) {
            let config = DaemonConfig::from_file_text(text).expect("a number, or the word");
            assert_eq!(config.network.workers, workers, "{text}");
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_place_and_the_nearest_known() {
        let error = fault("# mine\nlisten = \"127.0.0.1:1\"\n  capacity_byte = 5\n");
        assert_eq!((error.line, error.column), (3, 3));
        let said = error.to_string();
        assert_eq!(said, "3:3: there is no key `capacity_byte`; is `capacity_bytes` meant?");
    }

    #[test]
    fn a_value_that_does_not_fit_is_told_with_what_would() {
        let said = |text| fault(text).to_string();
        assert_eq!(
            said("links_max = -1"),
            "1:13: `links_max` needs a whole number from 0 to 16384"
        );
        assert_eq!(said("data_dir = [1]"), "1:12: `data_dir` needs a number or a text in quotes");
        assert!(said("log_bytes = \"1 MX\"").contains("MiB"));
        assert!(said("log_bytes = 7").contains("at least 524288 bytes"));
        assert!(said("mtu_bytes = 1500").contains("1024"));
        assert!(said("workers = 0").contains("from 1 to "));
        assert_eq!(said("drive_disk = 1"), "1:14: `drive_disk` needs one of auto, thread, inline");
        assert_eq!(said("carrier = [1]")[..14], *"1:11: `carrier");
    }

    #[test]
    fn yes_and_no_are_written_without_quotes() {
        let config = DaemonConfig::from_file_text("device_foreign_peers = true");
        assert!(config.expect("a boolean").device.device_foreign_peers);
        for text in ["device_foreign_peers = \"false\"", "device_foreign_peers = 0"] {
            let said = fault(text).to_string();
            assert!(said.ends_with("needs true or false, without quotes"), "{said}");
        }
        assert!(fault("links_max = true").to_string().contains("needs a number"));
    }

    #[test]
    fn a_broken_line_is_told_with_its_place() {
        let error = fault("listen = \"127.0.0.1:1\"\ndata_dir = \n");
        assert_eq!(error.line, 2);
        assert!(matches!(error.fault, ConfigFault::Syntax { .. }));
    }
}
