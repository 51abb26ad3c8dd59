//! The towpath command and the perftest-style binaries.
//!
//! | folder | what lives there |
//! |---|---|
//! | [`mod@bench`] | measurements on this machine, for `towpath bench` |
//! | [`cli`] | `towpath`: the demo, and a chunk server's clients |
//! | [`device`] | which device a tool uses: the flags that all of them take |
//! | [`devinfo`] | `tow_devinfo`: the devices, and what Towpath will do on each |
//! | [`lossy`] | `towpath-lossy`: commands on two sides of a bad network |
//! | [`perftest`] | `tow_send_bw`, `tow_write_lat` and the others |

#![deny(unsafe_code)]

pub mod bench;
pub mod cli;
mod columns;
pub mod device;
pub mod devinfo;
mod faults;
pub mod lossy;
mod path_table;
pub mod perftest;
mod random;
