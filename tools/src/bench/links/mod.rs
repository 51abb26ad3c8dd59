//! What links cost and give that many channels and threads share: the figures of Avatar (APNet
//! 2018) on this machine.
//!
//! Both ends run in this process, over UDP on loopback: the client is an endpoint with a worker,
//! which threads post to, the server a loop that counts; where there are too few cores for that,
//! one thread drives all of them. Rounds of what is compared take turns.
//!
//! | file | what it holds |
//! |---|---|
//! | [`rig`] | the two ends, and threads that keep channels busy |
//! | [`drive`] | a thread each, or one for all |
//! | [`rounds`] | what is compared takes turns |
//! | [`connections`] | throughput against the number of channels |
//! | [`threads`] | throughput against the number of threads, beside a mutex |
//! | [`foreground`] | completion time beside long messages, beside one queue for all |
//! | [`latency`] | what handing over to a worker adds |
//! | [`workers`] | throughput against the number of workers |
//! | [`idle`] | what idle channels cost, and the first message after a pause |
//! | [`isolation`] | what is left beside a channel that stalls, dies or floods |
//! | [`shares`] | what each of several channels gets |
//!
//! [`classes`] is in virtual time, and is here for the sake of completeness.

pub mod connections;
pub mod drive;
pub mod foreground;
pub mod idle;
pub mod isolation;
pub mod latency;
pub mod rig;
pub mod rounds;
pub mod shares;
pub mod threads;
pub mod workers;

use towpath_lab::studies::{Kind, Param, Study, classes};

/// All, in the order in which they are listed.
pub const ALL: &[&Study] = &[
    &connections::STUDY,
    &threads::STUDY,
    &foreground::STUDY,
    &latency::STUDY,
    &idle::STUDY,
    &isolation::STUDY,
    &shares::STUDY,
    &classes::STUDY,
    &workers::STUDY,
];

/// How often each point is measured.
const ROUNDS: Param = Param {
    name: "rounds",
    what: "Rounds in which each point is measured once; medians are shown",
    unit: "rounds",
    kind: Kind::Count(1..=1000),
    many: false,
    defaults: ["2", "5", "15"],
};

/// How long each point is measured.
const SPAN: Param = Param {
    name: "span-ms",
    what: "How long each point of a round is measured; a fifth as long goes before",
    unit: "ms",
    kind: Kind::Count(10..=60_000),
    many: false,
    defaults: ["200", "700", "3000"],
};

/// Bytes of the messages that threads post.
const BYTES: Param = Param {
    name: "bytes",
    what: "Bytes of a message",
    unit: "bytes",
    kind: Kind::Bytes(1..=1 << 20),
    many: false,
    defaults: ["4K", "4K", "4K"],
};
