//! Congestion control algorithms: how many bytes a sender may have in flight, and at what rate.
//!
//! The sender reports what was acknowledged, lost or timed out to a [`Controller`]. The controller
//! answers with a window in bytes and, for some algorithms, a pacing rate. A controller reads no
//! clock, writes no log, and knows neither queue pairs nor channels: the same samples always give
//! the same answers, so a run can be replayed from its samples. The crate also has the
//! [`RttEstimator`] (smoothed round-trip time and retransmission timeout) and the [`Pacer`] (when
//! the next send may leave). To use one, parse a [`ControllerConfig`] and build it:
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
//! # Source files
//!
//! | file | contents |
//! |---|---|
//! | `controller` | the [`Controller`] trait and its samples |
//! | `any` | [`AnyController`] |
//! | `error` | [`ConfigError`] |
//! | `config` | [`ControllerConfig`], and its text form for command lines |
//! | `fixed` | the fixed window |
//! | `swift` | delay targets for fabric and hosts, windows below one packet |
//! | `delay` | the median of the last round trip, the floor of the last seconds |
//! | `rtt` | the round-trip estimator and the retransmission timeout |
//! | `pacer` | the token bucket |
//! | `rate` | bytes per second |
//! | `text` | numbers with units in settings |
//! | `math` | the square root |
//! | `limits` | every constant, with its reason |
//! | `model` (tests) | the rules that every controller must keep, under random operations |
//!
//! `transport/lab/tests/controllers` runs senders of this crate on models of wires and hosts.
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
//!    algorithm in that list.
//! 3. Add a round-by-round snapshot of its windows to its tests.
//!
//! `docs/new-congestion-control.md` shows these steps for an algorithm, from an empty file to a
//! result in the simulator.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod any;
mod cached;
mod config;
mod controller;
mod delay;
mod error;
mod fixed;
pub mod limits;
mod math;
mod pacer;
mod rate;
mod rtt;
mod swift;
mod text;

#[cfg(test)]
mod model;

pub use any::AnyController;
pub use cached::Cached;
pub use config::ControllerConfig;
pub use controller::{AckSample, Controller, LossSample, PathFacts};
pub use error::ConfigError;
pub use fixed::{FixedWindow, FixedWindowConfig};
pub use pacer::Pacer;
pub use rate::Rate;
pub use rtt::{RttConfig, RttEstimator};
pub use swift::{Swift, SwiftConfig};
