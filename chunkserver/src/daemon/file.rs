//! The config file: TOML with one level of keys, errors with their place.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;
use toml::de::{DeTable, DeValue};

use super::config::DaemonConfig;
use super::key::{Key, key, nearest};
use super::keys::KEYS;
use super::value::ValueError;

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
    #[error("there is no key `{name}`{}", hint(*nearest))]
    UnknownKey {
        /// The key.
        name: String,
        /// The key that was probably meant.
        nearest: Option<&'static str>,
    },
    /// A value that the key does not take.
    #[error("`{name}` {error}")]
    Value {
        /// The key.
        name: &'static str,
        /// What it takes.
        error: ValueError,
    },
}

fn hint(nearest: Option<&'static str>) -> Cow<'static, str> {
    match nearest {
        Some(name) => format!("; is `{name}` meant?").into(),
        None => "; `--print-config` shows all keys".into(),
    }
}

impl DaemonConfig {
    /// Reads a config file over the settings that there are.
    ///
    /// # Errors
    /// [`ConfigFileError`]; the settings may be changed in part.
    pub fn read_file(&mut self, path: &Path) -> Result<(), ConfigFileError> {
        let failed = |source| ConfigFileError::Read { path: path.into(), source };
        let bytes = std::fs::metadata(path).map_err(failed)?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(failed(io::Error::from(io::ErrorKind::FileTooLarge)));
        }
        let text = std::fs::read_to_string(path).map_err(failed)?;
        self.read_text(&text).map_err(|error| ConfigFileError::Content { path: path.into(), error })
    }

    /// Reads the text of a config file over the settings that there are.
    ///
    /// # Errors
    /// [`ConfigTextError`]; the settings may be changed in part.
    pub fn read_text(&mut self, text: &str) -> Result<(), ConfigTextError> {
        let table = DeTable::parse(text).map_err(|error| {
            let fault = ConfigFault::Syntax { message: one_line(error.message()) };
            at(text, error.span(), fault)
        })?;
        // The order of the file, so that the first fault is the one that is told.
        let mut entries: Vec<_> = table.get_ref().iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let unknown = || ConfigFault::UnknownKey {
                name: shorten(name.get_ref()),
                nearest: nearest(name.get_ref()),
            };
            let found =
                key(name.get_ref()).ok_or_else(|| at(text, Some(name.span()), unknown()))?;
            let set = match plain(value.get_ref(), found) {
                Ok(plain) => (found.set)(self, &plain),
                Err(error) => Err(error),
            };
            set.map_err(|error| {
                at(text, Some(value.span()), ConfigFault::Value { name: found.name, error })
            })?;
        }
        Ok(())
    }

    /// The settings as a config file, each with a comment that says what it does.
    #[must_use]
    pub fn to_file_text(&self) -> String {
        let mut text = String::new();
        for key in KEYS {
            let shown = (key.show)(self);
            let shown = if key.quoted { toml::Value::String(shown).to_string() } else { shown };
            // Writing to a string does not fail.
            let _ = writeln!(text, "# {}\n{} = {shown}\n", key.doc, key.name);
        }
        text
    }
}

/// The value as the text that the key's flag would have.
fn plain<'a>(value: &'a DeValue<'_>, key: &Key) -> Result<Cow<'a, str>, ValueError> {
    let needs = |needs| Err(ValueError::Needs { needs });
    match (key.kind, value) {
        ("BOOL", DeValue::Boolean(yes)) => Ok(yes.to_string().into()),
        ("BOOL", _) => needs("true or false, without quotes"),
        (_, DeValue::String(text)) => Ok(Cow::Borrowed(text)),
        ("RULES", DeValue::Array(rules)) => {
            let rules = rules.iter().map(|rule| carrier_rule(rule.get_ref()));
            let rules: Option<Vec<_>> = rules.collect();
            let needs = ValueError::Needs {
                needs: "rules as in [{ peers = \"10.1.0.0/16\", use = \"rc\" }]",
            };
            Ok(rules.ok_or(needs)?.join(",").into())
        }
        (_, DeValue::Integer(number)) => {
            match i128::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Ok(number.to_string().into()),
                Err(_) => needs("a number that 64 bits hold"),
            }
        }
        _ => needs("a number or a text in quotes"),
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

    fn fault(text: &str) -> ConfigTextError {
        DaemonConfig::default().read_text(text).expect_err("the text is wrong")
    }

    #[test]
    fn the_file_that_is_printed_reads_back_as_it_was() {
        let config = DaemonConfig {
            capacity_bytes: 3 << 30,
            device_ip: Some([10, 0, 0, 1].into()),
            fallback: towpath_transport::Fallback::Tcp,
            carrier: ["10.1.0.0/16=rc", "fd00::/8=tcp"].map(|rule| rule.parse().unwrap()).into(),
            data_dir: "a \"quoted\" \\ name".into(),
            ..DaemonConfig::default()
        };
        let mut read = DaemonConfig::default();
        read.read_text(&config.to_file_text()).expect("it reads what it prints");
        assert_eq!(read, config);
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
    }

    #[test]
    fn yes_and_no_are_written_without_quotes() {
        let mut config = DaemonConfig::default();
        config.read_text("device_foreign_peers = true").expect("a boolean");
        assert!(config.device.foreign_peers);
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
