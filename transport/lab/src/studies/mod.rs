//! Studies: questions that anybody can ask again, with one seed.
//!
//! A [`Study`] has a name, parameters with defaults, and a function that runs it and returns a
//! [`Report`]; the crate `towpath-study` has the types, which are named here too. `towpath sim`
//! shows the studies; docs/studies.md says what each is for. A new study is one file, and a line in
//! [`ALL`].
//!
//! | file | what it holds |
//! |---|---|
//! | [`stream`] | messages one way between two hosts as fast as they go |
//! | [`loss`] | goodput against loss |
//! | [`late_packet`] | packets that come after their buffers were used again |
//! | [`one_sided`] | one-sided operations while packets, queue pairs and clients are lost |
//! | [`chunk_size`] | goodput against the size of chunks |
//! | [`incast`] | many senders, one port |
//! | [`fairness`] | flows that come and go, and unlike round trips |
//! | [`mixed_nics`] | unlike network cards in one cluster |
//! | [`cross_pod`] | servers in another pod |
//! | [`classes`] | short requests beside a background, in a traffic class of their own and not |
//! | [`foreground`] | short messages beside long ones, on a channel of their own and behind them |
//! | [`isolation`] | channels beside one that stalls, dies or floods |
//! | [`outage`] | small I/Os while something breaks |
//! | [`blackhole`] | switches that swallow packets |
//! | [`failover`] | spines that die one after another |
//! | [`timestamps`] | who stamps packets, and what late hosts make of round trips |
//! | [`ports`] | hosts with two NICs, one of which goes, comes or is slow |

pub mod blackhole;
pub mod chunk_size;
pub mod classes;
mod controller;
pub mod cross_pod;
pub mod failover;
pub mod fairness;
pub mod foreground;
pub mod incast;
pub mod isolation;
pub mod late_packet;
pub mod loss;
pub mod mixed_nics;
pub mod one_sided;
pub mod outage;
pub mod ports;
pub mod stream;
pub mod timestamps;
mod wire;

pub use controller::{CONTROLLER, controller_of};
pub use towpath_study::{
    Axis, Cell, Claim, Clock, Column, Demand, Format, Kind, Level, Param, ParamError, Params, Plot,
    Progress, Report, RunEnd, RunTrace, Runner, Scale, Series, Study, StudyError, Style, Table,
    Value, box_of, runner, show_bytes, show_share,
};

/// All studies, in the order in which they are listed.
pub const ALL: &[&Study] = &[
    &loss::STUDY,
    &chunk_size::STUDY,
    &late_packet::STUDY,
    &one_sided::STUDY,
    &incast::STUDY,
    &fairness::STUDY,
    &mixed_nics::STUDY,
    &cross_pod::STUDY,
    &classes::STUDY,
    &foreground::STUDY,
    &isolation::STUDY,
    &blackhole::STUDY,
    &failover::STUDY,
    &timestamps::STUDY,
    &ports::STUDY,
];

#[cfg(test)]
mod tests;
