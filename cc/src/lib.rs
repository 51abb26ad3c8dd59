//! Congestion control as pure functions of samples.
//!
//! A [`Controller`] is told what was acknowledged, lost or timed out, and answers with a window
//! and perhaps a pacing rate. It reads no clock, writes no log, and knows neither queue pairs nor
//! channels: the same samples always give the same answers, so a run replays from its samples.
//! Beside it stand the [`RttEstimator`] (smoothing and the retransmission timeout) and the
//! [`Pacer`] (when the next send may leave).
//!
//! ```
//! use towpath_base::{Nanos, Time};
//! use towpath_cc::{AckSample, Controller, ControllerConfig, PathFacts};
//!
//! let config: ControllerConfig = "fixed:1MiB@10Gbps".parse()?;
//! let mut controller = config.build(Time::ZERO, &PathFacts::default());
//! controller.on_ack(&AckSample {
//!     now: Time(40_000),
//!     rtt: Some(Nanos::from_micros(35)),
//!     endpoint: Nanos::from_micros(5),
//!     acked_bytes: 8_192,
//!     acked_chunks: 2,
//!     in_flight_bytes: 65_536,
//!     window_limited: false,
//!     chunk_bytes: 4_096,
//! });
//! assert_eq!(controller.window_bytes(), 1 << 20);
//! assert_eq!(controller.room_bytes(2 << 20), 0);
//! # Ok::<(), towpath_cc::ConfigError>(())
//! ```
//!
//! # The map
//!
//! | file | what it holds |
//! |---|---|
//! | `controller` | the trait, its samples, and [`AnyController`] |
//! | `config` | [`ControllerConfig`], and its text form for command lines |
//! | `fixed` | the fixed window |
//! | `swift` | delay targets for fabric and hosts, windows below one packet |
//! | `timely` | a rate that follows the gradient of the round trip, patched |
//! | `vegas` | a few packets kept waiting: the worked example of a new algorithm |
//! | `delay` | the median of the last round trip, the floor of the last seconds |
//! | `rtt` | the round-trip estimator and the retransmission timeout |
//! | `pacer` | the token bucket |
//! | `rate` | bytes per second |
//! | `text` | numbers with units in settings |
//! | `math` | the square root |
//! | `limits` | every constant, with its reason |
//! | `crowded` (tests) | what windows are worth between hosts whose processors others have |
//! | `bottleneck` (tests) | what becomes of flows that share a port |
//! | `model` (tests) | what every controller must keep, under random operations |
//!
//! # Adding an algorithm
//!
//! 1. Write one file with a config type (private fields, checked when it is made, `Default`) and
//!    a controller type that implements [`Controller`]. Keep the window as `f64` or fixed point
//!    where an increase can be less than one byte: whole bytes round it away. Grow only when
//!    [`AckSample::window_limited`] is set; saturate, never wrap; stay within
//!    [`limits::WINDOW_BYTES_MIN`] and [`limits::WINDOW_BYTES_MAX`].
//! 2. Add one variant to [`AnyController`] and one to [`ControllerConfig`]; the compiler names
//!    the matches to fill. Add its word to [`ControllerConfig::NAMES`]: the model test runs every
//!    algorithm that stands there.
//! 3. Add a round-by-round snapshot of its windows to its tests.
//!
//! `docs/new-congestion-control.md` goes through it from an empty file to a result in the
//! simulator; `vegas` is what comes of it.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod cached;
mod config;
mod controller;
mod delay;
mod fixed;
pub mod limits;
mod math;
mod pacer;
mod rate;
mod rtt;
mod swift;
mod text;
mod timely;
mod vegas;

#[cfg(test)]
mod bottleneck;
#[cfg(test)]
mod crowded;
#[cfg(test)]
mod model;

pub use cached::Cached;
pub use config::{ConfigError, ControllerConfig};
pub use controller::{AckSample, AnyController, Controller, LossSample, PathFacts};
pub use fixed::{FixedWindow, FixedWindowConfig};
pub use pacer::Pacer;
pub use rate::Rate;
pub use rtt::{RttConfig, RttEstimator};
pub use swift::{Swift, SwiftConfig};
pub use timely::{Timely, TimelyConfig};
pub use vegas::{Vegas, VegasConfig};
