//! The command-line tools: `towpath`, `towpath-lossy`, `tow_devinfo` and the perftest-style tools.
//!
//! Each program in `src/bin` calls one function of this library. docs/tools.md describes the tools
//! for their users.
//!
//! | module | contents |
//! |---|---|
//! | `baseline` | with that feature: what the storage fast path is measured against |
//! | [`mod@bench`] | measurements on this machine, for `towpath bench` |
//! | `child` | second processes that never outlive the first |
//! | [`cli`] | `towpath`: the demo, studies, and the clients of a chunk server |
//! | [`device`] | the flags that choose a device, shared by all tools |
//! | [`devinfo`] | `tow_devinfo`: lists the devices, and how Towpath uses each |
//! | [`lossy`] | `towpath-lossy`: runs two commands with a faulty network between them |
//! | [`perftest`] | `tow_send_bw`, `tow_write_lat` and the others |

#![deny(unsafe_code)]

#[cfg(feature = "baseline")]
pub mod baseline;
pub mod bench;
mod child;
pub mod cli;
mod columns;
pub mod device;
pub mod devinfo;
mod faults;
pub mod lossy;
mod path_table;
pub mod perftest;
mod random;
mod ways;
