//! A subcommand for each study, a flag for each of its parameters. A study whose name has two words
//! is a subcommand of the first.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args as ClapArgs, Command, FromArgMatches, Subcommand};
use towpath_lab::studies::{Clock, Kind, Level, Param, Params, Report, Study};

/// Studies that are asked for under one command.
pub(crate) trait Family: Clone + Debug + Send + Sync + 'static {
    /// Its words, as in `towpath sim`.
    const COMMAND: &'static str;
    /// Whose time the figures of its studies are in; a study that differs is marked in the list.
    const CLOCK: Clock;
    /// What stands above the list of its studies.
    const TITLE: &'static str;
    /// What its help ends with.
    const AFTER_HELP: &'static str;
    /// What one study of it takes.
    const TAKES: &'static str;
    /// Its studies, in the order in which they are listed.
    const STUDIES: &'static [&'static Study];

    /// Whether the runs of a study are in virtual time: then they replay, several at once.
    fn replays(study: &Study) -> bool;

    /// The study of that name.
    fn find(name: &str) -> Option<&'static Study> {
        Self::STUDIES.iter().copied().find(|study| study.name == name)
    }

    /// The studies whose names have this first word and another.
    fn group(word: &str) -> impl Iterator<Item = &'static Study> {
        let of = move |study: &&Study| group_of(study).is_some_and(|(group, _)| group == word);
        Self::STUDIES.iter().copied().filter(of)
    }
}

/// The two words of a study's name, if it has two.
fn group_of(study: &Study) -> Option<(&'static str, &'static str)> {
    study.name.split_once(' ')
}

/// Flags of a family of studies.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = F::AFTER_HELP)]
pub(crate) struct FamilyArgs<F: Family> {
    #[command(subcommand)]
    pub(super) study: Option<StudyArgs<F>>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// One study, and how it is asked.
#[derive(Clone, Debug)]
pub(crate) struct StudyArgs<F> {
    pub(super) study: &'static Study,
    pub(super) params: Params,
    pub(super) threads: usize,
    pub(super) json: bool,
    pub(super) svg: Option<PathBuf>,
    family: PhantomData<F>,
}

impl<F: Family> StudyArgs<F> {
    /// The command that asks the same, all parameters named.
    pub(super) fn command(&self, report: &Report) -> String {
        let params = report.params.iter().map(|(name, text)| format!(" --{name} {text}"));
        let seed =
            if F::replays(self.study) { format!(" --seed {}", report.seed) } else { String::new() };
        format!("towpath {} {}{seed}{}", F::COMMAND, report.study, params.collect::<String>())
    }

    fn of(study: &'static Study, matches: &ArgMatches) -> Result<Self, clap::Error> {
        let level = match (matches.get_flag("quick"), matches.get_flag("full")) {
            (true, _) => Level::Quick,
            (_, true) => Level::Full,
            _ => Level::Default,
        };
        let text = |param: &Param| matches.get_one::<String>(param.name).cloned();
        let given: BTreeMap<String, String> =
            study.params.iter().filter_map(|p| Some((p.name.to_owned(), text(p)?))).collect();
        let replays = F::replays(study);
        let number = |name| replays.then(|| matches.get_one::<u64>(name).copied()).flatten();
        let seed = number("seed").unwrap_or(1);
        let params = Params::new(study.params, seed, level, &given).map_err(|(name, error)| {
            let text = format!("--{name}: {error}\n");
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, text)
        })?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = number("threads").map_or_else(cores, |n| n as usize);
        let svg = matches.get_one::<PathBuf>("svg").cloned();
        Ok(Self {
            study,
            params,
            threads,
            json: matches.get_flag("json"),
            svg,
            family: PhantomData,
        })
    }
}

impl<F: Family> FromArgMatches for StudyArgs<F> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let found = matches.subcommand();
        let known = found.and_then(|(name, matches)| match matches.subcommand() {
            None => Some((F::find(name)?, matches)),
            Some((second, matches)) => Some((F::find(&format!("{name} {second}"))?, matches)),
        });
        let missing = || clap::Error::new(clap::error::ErrorKind::MissingSubcommand);
        known.map_or_else(|| Err(missing()), |(study, matches)| Self::of(study, matches))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<F: Family> Subcommand for StudyArgs<F> {
    fn augment_subcommands(command: Command) -> Command {
        let mut commands: Vec<Command> = Vec::new();
        for &study in F::STUDIES {
            match group_of(study) {
                None => commands.push(subcommand::<F>(study, study.name)),
                Some((word, _)) if commands.iter().any(|known| known.get_name() == word) => {}
                Some((word, _)) => commands.push(group::<F>(word)),
            }
        }
        command.subcommands(commands)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        F::find(name).is_some() || F::group(name).next().is_some()
    }
}

/// The command of the studies that have a word in common.
fn group<F: Family>(word: &'static str) -> Command {
    let each = || F::group(word).filter_map(|study| Some((study, group_of(study)?.1)));
    let names: Vec<&str> = each().map(|(_, second)| second).collect();
    Command::new(word)
        .about(format!("studies of their own: {}", names.join(", ")))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(each().map(|(study, second)| subcommand::<F>(study, second)))
}

fn subcommand<F: Family>(study: &'static Study, name: &'static str) -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).help(help).action(ArgAction::SetTrue)
    };
    Command::new(name)
        .about(study.what)
        .after_help(format!("Mirrors: {}\n\n{}", study.mirrors, F::AFTER_HELP))
        .args(study.params.iter().map(param_flag))
        .args(if F::replays(study) { virtual_flags() } else { Vec::new() })
        .arg(flag("quick", "A look, within seconds: the smaller defaults").conflicts_with("full"))
        .arg(flag("full", "As long as it takes: the larger defaults"))
        .arg(flag("json", "Print one JSON object"))
        .arg(
            Arg::new("svg")
                .long("svg")
                .value_name("FILE")
                .help("Draw into this file; what is there is replaced")
                .value_parser(clap::value_parser!(PathBuf)),
        )
}

/// Flags of runs that replay.
fn virtual_flags() -> Vec<Arg> {
    let threads = "Threads; results do not depend on them [default: as many as cores]";
    let number = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("N").help(help)
    };
    vec![
        number("seed", "Where everything random comes from [default: 1]")
            .value_parser(clap::value_parser!(u64)),
        number("threads", threads).value_parser(clap::value_parser!(u64).range(1..=1024)),
    ]
}

fn param_flag(param: &'static Param) -> Arg {
    let value_name = match param.kind {
        Kind::Bytes(_) => "BYTES",
        Kind::Count(_) => "N",
        Kind::Share(_) => "P",
        Kind::Word(_) => "WORD",
    };
    Arg::new(param.name)
        .long(param.name)
        .value_name(value_name)
        .help(help_of(param))
        .value_parser(move |text: &str| param.parse(text).map(|_| text.to_owned()))
}

/// What it means, its unit, whether it is a list, and its defaults.
fn help_of(param: &Param) -> String {
    let [quick, default, full] = param.defaults;
    let mut help = param.what.to_owned();
    if param.many {
        help.push_str("; several with commas");
    }
    if matches!(param.kind, Kind::Count(_)) && !param.unit.is_empty() {
        help.push_str(&format!(" ({})", param.unit));
    }
    help.push_str(&format!(" [default: {default}"));
    for (level, text) in [("--quick", quick), ("--full", full)] {
        if text != default {
            help.push_str(&format!(", with {level} {text}"));
        }
    }
    help.push(']');
    help
}
