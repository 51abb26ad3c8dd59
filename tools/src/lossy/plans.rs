//! The flags of the fault plan: each for both directions, or for one of them.

use core::num::NonZeroU64;

use clap::builder::ValueParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use towpath_base::Nanos;
use towpath_sim::{Burst, FaultPlan, FramePlan, FrameRate, Outage};

use super::values::{
    Cut, Dup, Late, Reorder, parse_burst, parse_cut, parse_dup, parse_late, parse_rate,
    parse_reorder, parse_share, parse_span,
};
use crate::cli::bytes::parse_size;

/// The queue before a rate, unless another is asked for: what a port of a switch with little
/// memory has.
const QUEUE_BYTES_DEFAULT: u64 = 256 << 10;

/// The largest queue: half a second at 1 Gb/s.
const QUEUE_BYTES_MAX: u64 = 64 << 20;

/// What the interfaces of Linux take at least and TAP devices at most, bytes.
const MTU_BYTES: core::ops::RangeInclusive<u64> = 576..=65_000;

/// What may happen to frames, by direction.
#[derive(Clone, Debug)]
pub(super) struct Plans {
    pub(super) ab: FramePlan,
    pub(super) ba: FramePlan,
    /// Outages that begin after so many bytes, of `ab` and of `ba`.
    pub(super) later: [Vec<LaterOutage>; 2],
}

/// An outage that begins once so many bytes of frames came into the wire, both ways together.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaterOutage {
    pub(super) moved: u64,
    /// Its `after` is zero.
    pub(super) outage: Outage,
    pub(super) is_for_udp: bool,
}

/// Names of one flag: for both directions, from a to b, from b to a.
macro_rules! names {
    ($name:literal) => {
        [$name, concat!($name, "-ab"), concat!($name, "-ba")]
    };
}

type Names = [&'static str; 3];

const LOSS: Names = names!("loss");
const BURST: Names = names!("burst");
const DUP: Names = names!("dup");
const CORRUPT: Names = names!("corrupt");
const REORDER: Names = names!("reorder");
const LATE: Names = names!("late");
const DELAY: Names = names!("delay");
const JITTER: Names = names!("jitter");
const IN_ORDER: Names = names!("in-order");
const RATE: Names = names!("rate");
const QUEUE: Names = names!("queue");
const MTU: Names = names!("mtu");
const DOWN: Names = names!("down");
const UDP_DOWN: Names = names!("udp-down");

const HEADING: &str = "Faults (each also for one direction: --loss-ab, --loss-ba and so on)";

struct Flag {
    names: Names,
    value: &'static str,
    help: &'static str,
    parser: fn() -> ValueParser,
}

const FLAGS: &[Flag] = &[
    Flag {
        names: LOSS,
        value: "P",
        help: "Share of frames that are lost, each by itself, as 1% or 0.01 [default: 0]",
        parser: || ValueParser::new(parse_share),
    },
    Flag {
        names: BURST,
        value: "P:FRAMES[:LOSS]",
        help: "Loss in bursts: the chance of each frame to begin one, its mean length in frames, \
               and the share lost in it, as 0.1%:20 [default: none; LOSS 100%]",
        parser: || ValueParser::new(parse_burst),
    },
    Flag {
        names: DUP,
        value: "P[:TIME]",
        help: "Share of frames that come twice, and how much later the copy comes at most \
               [default: 0; TIME 0, right behind]",
        parser: || ValueParser::new(parse_dup),
    },
    Flag {
        names: CORRUPT,
        value: "P",
        help: "Share of frames that are damaged: one bit flipped, the end cut off, or a false end \
               added [default: 0]",
        parser: || ValueParser::new(parse_share),
    },
    Flag {
        names: REORDER,
        value: "P[:FRAMES[:TIME]]",
        help: "Share of frames that 1 to FRAMES later ones overtake; a frame that nobody overtakes \
               waits for TIME. With --delay or --jitter, a frame comes up to TIME later instead \
               [default: 0; 5 frames, 10ms]",
        parser: || ValueParser::new(parse_reorder),
    },
    Flag {
        names: LATE,
        value: "P:TIME[:TIME]",
        help: "Share of frames that come much later, between one time and another, as \
               0.1%:100ms:1s [default: 0]",
        parser: || ValueParser::new(parse_late),
    },
    Flag {
        names: DELAY,
        value: "TIME",
        help: "Delay of each frame in one direction, so a round trip takes twice as long, as 20ms \
               [default: 0]",
        parser: || ValueParser::new(parse_span),
    },
    Flag {
        names: JITTER,
        value: "TIME",
        help: "Up to so much more delay for each frame, drawn evenly; it reorders, unless \
               --in-order is given [default: 0]",
        parser: || ValueParser::new(parse_span),
    },
    Flag {
        names: RATE,
        value: "RATE",
        help: "Bits a second, of frames with their Ethernet headers, as 100Mbit \
               [default: no limit]",
        parser: || ValueParser::new(parse_rate),
    },
    Flag {
        names: QUEUE,
        value: "BYTES",
        help: "Bytes of frames that wait for the rate; more are dropped, as 64KiB \
               [default: 256KiB, at most 64MiB]",
        parser: || ValueParser::new(parse_size),
    },
    Flag {
        names: MTU,
        value: "BYTES",
        help: "Drop frames with more than so many bytes of payload, without a word, 576 to 65000 \
               [default: 1500; with --interfaces no limit]",
        parser: || ValueParser::new(parse_size),
    },
    Flag {
        names: DOWN,
        value: "TIME@START[/EVERY]",
        help: "Lose every frame for a TIME that begins START after the wire was made, and again \
               EVERY so often, as 5s@10s or 1s@5s/20s; START may be bytes that both ways have \
               carried, as 5s@10MiB; may be given several times [default: never]",
        parser: || ValueParser::new(parse_cut),
    },
    Flag {
        names: UDP_DOWN,
        value: "TIME@START[/EVERY]",
        help: "The same for frames that carry UDP alone, as behind a firewall: 60min@0s blocks it \
               from the start",
        parser: || ValueParser::new(parse_cut),
    },
];

impl Args for Plans {
    fn augment_args(command: Command) -> Command {
        let command = FLAGS.iter().fold(command, |command, flag| {
            flag.names.into_iter().fold(command, |command, name| {
                let repeats = [DOWN, UDP_DOWN].contains(&flag.names);
                let action = if repeats { ArgAction::Append } else { ArgAction::Set };
                let arg = Arg::new(name).long(name).value_name(flag.value).help(flag.help);
                command.arg(placed(arg.action(action).value_parser((flag.parser)()), flag.names))
            })
        });
        IN_ORDER.into_iter().fold(command, |command, name| {
            let arg = Arg::new(name).long(name).action(ArgAction::SetTrue);
            let help = "Jitter delays frames without reordering them [default: off]";
            command.arg(placed(arg.help(help), IN_ORDER))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Under the heading of faults; what is for one direction is not shown again.
fn placed(arg: Arg, names: Names) -> Arg {
    let is_for_one = arg.get_id() != names[0];
    arg.help_heading(HEADING).hide(is_for_one)
}

impl FromArgMatches for Plans {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let later = [1, 2].map(|direction| later_outages(matches, direction));
        Ok(Self { ab: plan(matches, 1)?, ba: plan(matches, 2)?, later })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The plan of one direction, 1 or 2: its own flags before those for both.
fn plan(matches: &ArgMatches, direction: usize) -> Result<FramePlan, Error> {
    let share = |names| one::<f64>(matches, names, direction).unwrap_or(0.0);
    let span = |names| one::<Nanos>(matches, names, direction).unwrap_or(Nanos::ZERO);
    let mut faults = FaultPlan::none().drop(share(LOSS)).corrupt(share(CORRUPT));
    faults = faults.delay(span(DELAY), span(JITTER));
    if let Some(burst) = one::<Burst>(matches, BURST, direction) {
        faults = faults.burst(burst);
    }
    if let Some(Dup { p, delay_max }) = one(matches, DUP, direction) {
        faults = faults.duplicate(p, delay_max);
    }
    if let Some(Reorder { p, frames_max, wait_max }) = one(matches, REORDER, direction) {
        faults = faults.reorder(p, frames_max, wait_max);
    }
    if let Some(Late { p, low, high }) = one(matches, LATE, direction) {
        faults = faults.late(p, low, high);
    }
    let mtu = one::<u64>(matches, MTU, direction);
    if let Some(mtu) = mtu.filter(|mtu| !MTU_BYTES.contains(mtu)) {
        return Err(wrong(&format!("an MTU is 576 to 65000 bytes, not {mtu}")));
    }
    Ok(FramePlan {
        faults,
        keeps_order: [IN_ORDER[0], IN_ORDER[direction]].iter().any(|name| matches.get_flag(name)),
        rate: rate(matches, direction)?,
        mtu: mtu.map(|mtu| mtu as usize),
        outages: outages(matches, DOWN, direction),
        udp_outages: outages(matches, UDP_DOWN, direction),
    })
}

fn rate(matches: &ArgMatches, direction: usize) -> Result<Option<FrameRate>, Error> {
    let rate = one::<NonZeroU64>(matches, RATE, direction);
    let queue = one::<u64>(matches, QUEUE, direction);
    if queue.is_some_and(|bytes| bytes > QUEUE_BYTES_MAX) {
        return Err(wrong("a --queue has at most 64MiB"));
    }
    match (rate, queue) {
        (None, Some(_)) => Err(wrong("--queue is the queue before a --rate, which is missing")),
        (None, None) => Ok(None),
        (Some(bits_per_s), queue) => {
            let queue_bytes = queue.unwrap_or(QUEUE_BYTES_DEFAULT) as usize;
            Ok(Some(FrameRate { bits_per_s, queue_bytes }))
        }
    }
}

/// Outages that begin at a time.
fn outages(matches: &ArgMatches, names: Names, direction: usize) -> Vec<Outage> {
    let cuts = cuts(matches, names, direction);
    cuts.filter(|cut| cut.moved.is_none()).map(|cut| cut.outage).collect()
}

fn later_outages(matches: &ArgMatches, direction: usize) -> Vec<LaterOutage> {
    let of = |names, is_for_udp| {
        cuts(matches, names, direction).filter_map(move |Cut { outage, moved }| {
            Some(LaterOutage { moved: moved?, outage, is_for_udp })
        })
    };
    of(DOWN, false).chain(of(UDP_DOWN, true)).collect()
}

fn cuts(matches: &ArgMatches, names: Names, direction: usize) -> impl Iterator<Item = Cut> {
    let of = |name| matches.get_many::<Cut>(name).into_iter().flatten().copied();
    of(names[0]).chain(of(names[direction]))
}

fn one<T: Clone + Send + Sync + 'static>(
    matches: &ArgMatches,
    names: Names,
    direction: usize,
) -> Option<T> {
    let of = |name: &str| matches.get_one::<T>(name).cloned();
    of(names[direction]).or_else(|| of(names[0]))
}

fn wrong(text: &str) -> Error {
    Error::raw(clap::error::ErrorKind::ValueValidation, format!("{text}\n"))
}

impl Plans {
    /// Drops frames above `mtu` where no other limit was given.
    pub(super) fn with_default_mtu(mut self, mtu: usize) -> Self {
        for plan in [&mut self.ab, &mut self.ba] {
            plan.mtu = plan.mtu.or(Some(mtu));
        }
        self
    }

    /// The largest payload that gets through in some direction.
    pub(super) fn mtu(&self) -> Option<usize> {
        self.ab.mtu.max(self.ba.mtu)
    }
}
