//! The command line: one flag for each setting, and what to do.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::check::{self, StoreCheck};
use super::config::DaemonConfig;
use super::dump::{self, StoreDump};
use super::error::DaemonError;
use super::keys::KEYS;

const AFTER_HELP: &str = "\
Flags override the config file, which overrides the defaults. Sizes may end with KiB, MiB, GiB or
TiB (powers of 1,024), or with KB, MB, GB or TB (powers of 1,000).

The server stops cleanly on SIGTERM, SIGINT and SIGHUP, and at once on a second one. It ignores
SIGHUP where that was ignored when it started, as under nohup. Of its settings it reads the file of
tenants again, when that changes; restart it to change others.

Exit codes:
  0    clean stop, or --check found nothing wrong
  1    `check` found something damaged or lost
  2    wrong flag or config file
  3    the address is not of this host, or the port is taken
  4    the store cannot be opened (locked, damaged, of another version, no directory), or none is
       made since the disk holds something else
  5    the store failed: a flush did, and changes were refused from then on, or its thread ended
  6    memory, threads or the device failed
  130  a second signal: stopped at once, what was acknowledged is safe";

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// The settings, all of them.
    pub config: DaemonConfig,
    /// What to do with them.
    pub action: Action,
    /// The ready line is a JSON object.
    pub json: bool,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Say whether the configuration is valid.
    Check,
    /// Look at a store that no server has.
    CheckStore(StoreCheck),
    /// Show what a store holds.
    DumpStore(StoreDump),
    /// Print the settings as a config file.
    PrintConfig,
    /// Serve.
    Serve,
}

/// The program's flags.
#[must_use]
pub fn command() -> Command {
    let defaults = DaemonConfig::default();
    let plain = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    let settings = KEYS.iter().map(|key| {
        Arg::new(key.name)
            .long(key.flag())
            .value_name(key.kind)
            .value_parser(NonEmptyStringValueParser::new())
            .allow_hyphen_values(true)
            .help(format!("{} [default: {}]", key.doc, (key.show)(&defaults)))
            .help_heading("Settings, each also a key of the config file (with _ for -)")
    });
    Command::new("towpath-chunkserver")
        .about("Keeps chunks of data for Towpath clients, durably and with checksums")
        .version(env!("CARGO_PKG_VERSION"))
        .arg(
            Arg::new("config")
                .long("config")
                .short('c')
                .value_name("FILE")
                .value_parser(clap::value_parser!(PathBuf))
                .help("TOML file with settings"),
        )
        .arg(plain("print-config", "print all settings, as they are, as a config file, and stop"))
        .arg(plain(
            "check",
            "check the configuration, and that its addresses are of this host, and stop",
        ))
        .arg(plain("json", "print one JSON object on stdout when the server is ready"))
        .arg(plain(
            "format",
            "make a store also where a disk holds something else, WHICH IS DESTROYED, and where \
             the store of a data directory is gone; the log says what is destroyed. For one start",
        ))
        .args(settings)
        .subcommand(check::command())
        .subcommand(dump::command())
        .args_conflicts_with_subcommands(true)
        .after_help(AFTER_HELP)
}

impl Invocation {
    /// Reads a command line; the first argument is the program's name.
    ///
    /// # Errors
    /// [`DaemonError::Flags`] (which may also be the answer to `--help`),
    /// [`DaemonError::ConfigFile`], [`DaemonError::Flag`].
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, DaemonError> {
        let matches = command().try_get_matches_from(args)?;
        let mut config = DaemonConfig::default();
        if let Some(path) = matches.get_one::<PathBuf>("config") {
            config.read_file(path)?;
        }
        apply_flags(&mut config, &matches)?;
        config.format = matches.get_flag("format");
        let action = if let Some(matches) = matches.subcommand_matches(check::NAME) {
            Action::CheckStore(StoreCheck::of(matches))
        } else if let Some(matches) = matches.subcommand_matches(dump::NAME) {
            Action::DumpStore(StoreDump::of(matches))
        } else if matches.get_flag("check") {
            Action::Check
        } else if matches.get_flag("print-config") {
            Action::PrintConfig
        } else {
            Action::Serve
        };
        Ok(Self { config, action, json: matches.get_flag("json") })
    }
}

fn apply_flags(config: &mut DaemonConfig, matches: &ArgMatches) -> Result<(), DaemonError> {
    for key in KEYS {
        if let Some(text) = matches.get_one::<String>(key.name) {
            (key.set)(config, text)
                .map_err(|error| DaemonError::Flag { flag: key.flag(), error })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn parse(args: &[&str]) -> Result<Invocation, DaemonError> {
        let args = ["towpath-chunkserver"].iter().chain(args);
        Invocation::parse(args.map(OsString::from))
    }

    #[test]
    fn flags_go_over_the_file_and_the_file_over_the_defaults() {
        let mut file = tempfile::NamedTempFile::new().expect("room for a file");
        writeln!(file, "links_max = 3\nbusy_poll_us = 7\n").expect("it is written");
        let path = file.path().to_str().expect("a plain path");
        let found = parse(&["--config", path, "--links-max", "5", "--json"]).expect("sound");
        assert_eq!((found.config.links_max, found.config.busy_poll_us), (5, 7));
        assert_eq!(found.config.chunks_max, DaemonConfig::default().chunks_max);
        assert!(found.json);
        assert_eq!(found.action, Action::Serve);
    }

    #[test]
    fn a_store_is_made_over_something_else_for_one_start_and_by_no_file() {
        assert!(parse(&["--format"]).expect("sound").config.format);
        assert!(!parse(&[]).expect("sound").config.format);
        let mut file = tempfile::NamedTempFile::new().expect("room for a file");
        writeln!(file, "format = true").expect("it is written");
        let path = file.path().to_str().expect("a plain path");
        assert!(parse(&["--config", path]).is_err(), "it is no setting of a file");
    }

    #[test]
    fn every_key_has_a_flag_that_takes_what_it_shows() {
        let defaults = DaemonConfig::default();
        for key in KEYS {
            let found = parse(&[&format!("--{}={}", key.flag(), (key.show)(&defaults))]);
            assert_eq!(found.expect("sound").config, defaults, "{}", key.name);
        }
    }

    #[test]
    fn a_wrong_flag_names_itself_and_a_missing_file_its_path() {
        let said = parse(&["--mtu-bytes", "1500"]).expect_err("no MTU").to_string();
        assert!(said.starts_with("--mtu-bytes needs"), "{said}");
        let said = parse(&["--config", "/no/such/file.toml"]).expect_err("no file").to_string();
        assert!(said.contains("/no/such/file.toml"), "{said}");
        assert!(matches!(parse(&["--colour", "red"]), Err(DaemonError::Flags(_))));
    }
}
