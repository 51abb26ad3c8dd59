//! Reservations that hold: the token protocol of Haechi (Liu and Varman) for storage whose clients
//! reach it by one-sided I/O, as pure functions of times and words.
//!
//! A server does so many I/Os in a period, its capacity, and makes as many tokens. Each client gets
//! the tokens that it has reserved at the start of the period; the others are in a pool, a word in
//! memory that clients reach by FETCH_ADD. An I/O uses a token. What a client will not use of its
//! reservation goes to the pool. The server's processor does nothing for an I/O: an [`Engine`] at
//! each client keeps to the rules, and a [`Monitor`] at the server looks at words once a tick.
//!
//! Both follow [`Rules`]: the protocol as published, or ours, which differs from it in ten points;
//! `docs/qos.md` says why. The [`Ledger`] counts what clients really do, where the server can see
//! it.
//!
//! Nothing here reads a clock, does I/O or allocates on the data path.
//!
//! | module | what is there |
//! |---|---|
//! | `words` | the words that engines and monitor share, with the period in each |
//! | `messages` | what the monitor tells engines |
//! | `engine` | the client's side |
//! | `monitor` | the server's side |
//! | `admission` | whether a reservation can be kept |
//! | `ledger` | what clients really did |
//! | `cost` | what an I/O costs |
//! | `interference` | how much lower classes may write while higher ones read |
//! | `rules` | which protocol is followed |
//! | `limits` | every constant, with its reason |

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod admission;
mod cost;
mod engine;
mod even;
mod interference;
mod ledger;
pub mod limits;
mod messages;
mod monitor;
mod rules;
mod words;

pub use admission::{AdmissionError, Capacities, Share, admit, is_within_reach};
pub use cost::{TOKEN_BYTES, Weights, tokens};
pub use engine::{Action, Engine, Refusal, Ticket};
pub use interference::{Interference, InterferenceConfig, InterferenceCounts, LEVELS};
pub use ledger::{Entry, Ledger, Verdict};
pub use messages::{FromMonitor, MessageError, NOTICE_BYTES, Notice, PeriodStart, START_BYTES};
pub use monitor::{
    Capacity, ClientReport, Look, Monitor, MonitorConfig, PeriodEnd, Slot, WINDOW_ALL, Waiting,
    Words,
};
pub use rules::{Conversion, Decay, Estimation, Rules};
pub use words::{Epoch, PoolWord, Report, Taken};
