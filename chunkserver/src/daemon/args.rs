//! The command line: one flag for each setting, and what to do.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use super::check::StoreCheck;
use super::config::DaemonConfig;
use super::dump::StoreDump;
use super::error::DaemonError;
use super::file::read_file;

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

/// Keeps chunks of data for Towpath clients, durably and with checksums.
#[derive(Clone, Debug, Parser)]
#[command(name = "towpath-chunkserver", version, after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Program {
    /// TOML file with settings.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print all settings, as they are, as a config file, and stop.
    #[arg(long)]
    pub(super) print_config: bool,
    /// Check the configuration, and that its addresses are of this host, and stop.
    #[arg(long)]
    pub(super) check: bool,
    /// Print one JSON object on stdout when the server is ready.
    #[arg(long)]
    pub(super) json: bool,
    /// Make a store also where a disk holds something else, WHICH IS DESTROYED, and where the store
    /// of a data directory is gone; the log says what is destroyed. For one start.
    #[arg(long)]
    format: bool,
    #[command(flatten)]
    #[command(next_help_heading = "Settings, each also a key of the config file (with _ for -)")]
    pub(super) settings: DaemonConfig,
    #[command(subcommand)]
    pub(super) command: Option<StoppedStore>,
}

/// What is done with stores that no server has.
#[derive(Clone, Debug, Subcommand)]
pub(super) enum StoppedStore {
    /// Says what of a store is whole and what is not, and repairs it.
    Check(StoreCheck),
    /// Shows superblocks, log records, chunks and slices of a store.
    Dump(StoreDump),
}

impl Program {
    /// Reads a command line; the first argument is the program's name. Settings of a config file
    /// stand before those of the command line, as flags.
    ///
    /// # Errors
    /// [`DaemonError::Flags`] (which may also be the answer to `--help`),
    /// [`DaemonError::ConfigFile`].
    pub(super) fn read(args: impl IntoIterator<Item = OsString>) -> Result<Self, DaemonError> {
        let mut args: Vec<OsString> = args.into_iter().collect();
        let mut matches = Self::command().try_get_matches_from(&args)?;
        if let Some(path) = matches.get_one::<PathBuf>("config") {
            let of_file = read_file(path)?.into_iter();
            let is_left = |name: &str| matches.value_source(name) != Some(ValueSource::CommandLine);
            let flags = of_file.filter(|(name, _)| is_left(name)).map(|(_, flag)| flag.into());
            args.splice(1..1, flags);
            matches = Self::command().try_get_matches_from(args)?;
        }
        let mut program = Self::from_arg_matches(&matches)?;
        program.settings.store.format = program.format;
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn parse(args: &[&str]) -> Result<Program, DaemonError> {
        let args = ["towpath-chunkserver"].iter().chain(args);
        Program::read(args.map(OsString::from))
    }

    #[test]
    fn flags_go_over_the_file_and_the_file_over_the_defaults() {
        let mut file = tempfile::NamedTempFile::new().expect("room for a file");
        writeln!(file, "links_max = 3\nbusy_poll_us = 7\n").expect("it is written");
        let path = file.path().to_str().expect("a plain path");
        let found = parse(&["--config", path, "--links-max", "5", "--json"]).expect("sound");
        let DaemonConfig { network, service, store, .. } = &found.settings;
        assert_eq!((network.links_max, service.busy_poll_us), (5, 7));
        assert_eq!(store, &DaemonConfig::default().store);
        assert!(found.json && !found.check && !found.print_config && found.command.is_none());
        assert!(parse(&["--links-max", "5", "--links-max", "6"]).is_err(), "which of them?");
    }

    #[test]
    fn a_store_is_made_over_something_else_for_one_start_and_by_no_file() {
        assert!(parse(&["--format"]).expect("sound").settings.store.format);
        assert!(!parse(&[]).expect("sound").settings.store.format);
        let mut file = tempfile::NamedTempFile::new().expect("room for a file");
        writeln!(file, "format = true").expect("it is written");
        let path = file.path().to_str().expect("a plain path");
        assert!(parse(&["--config", path]).is_err(), "it is no setting of a file");
    }

    #[test]
    fn every_key_has_a_flag_that_takes_its_default() {
        let flags = DaemonConfig::flags();
        assert_eq!(flags.get_arguments().count(), 59);
        for arg in flags.get_arguments() {
            let flag = arg.get_long().expect("each has one");
            assert_eq!(flag, arg.get_id().as_str().replace('_', "-"));
            let default = arg.get_default_values()[0].to_str().expect("text");
            let found = parse(&[&format!("--{flag}={default}")]).expect("sound").settings;
            assert_eq!(found, DaemonConfig::default(), "{flag}");
        }
    }

    #[test]
    fn a_wrong_flag_names_itself_and_a_missing_file_its_path() {
        let said = parse(&["--mtu-bytes", "1500"]).expect_err("no MTU").to_string();
        assert!(said.contains("'1500' for '--mtu-bytes <N>': needs 256"), "{said}");
        let said = parse(&["--config", "/no/such/file.toml"]).expect_err("no file").to_string();
        assert!(said.contains("/no/such/file.toml"), "{said}");
        assert!(matches!(parse(&["--colour", "red"]), Err(DaemonError::Flags(_))));
        Program::command().debug_assert();
    }
}
