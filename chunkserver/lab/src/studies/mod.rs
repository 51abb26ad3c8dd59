//! The experiments of the Haechi paper (Q. Liu, P. Varman), on the simulated fabric with the
//! production code: `towpath sim haechi 1a` and so on; and those of a paper on storage policies in
//! network cards, on a model of hardware.
//!
//! | file | contents |
//! |---|---|
//! | `setting` | the cluster that all have in common, and its parameters |
//! | `profile` | what one client does (1a), and more and more of them (1b) |
//! | `patterns` | demands and patterns without tokens (1c) |
//! | `reservations` | enough demand (2a), too little (2b), more and more reserved (2c) |
//! | `readings` | the published protocol as its text can be read (figure 9) |
//! | `spike` | three large reservations, and latency (3) |
//! | `estimate` | capacity over-estimated and under-estimated (4) |
//! | `interference` | Copper's writes beside reads of Gold and Silver (`interference copper`) |
//! | `policies` | `towpath sim policies fig6` and so on |
//! | `scale`, `hostile` | many clients, and some that do not keep to the rules |
//! | `system`, `token_setting` | the systems that are compared, and what cases have in common |
//! | `shown` | tables, drawings and targets in common |
//! | `bars` | bars by client and period, as the paper has them |

mod bars;
mod estimate;
mod hostile;
mod interference;
mod patterns;
mod policies;
mod profile;
mod readings;
mod reservations;
mod scale;
mod setting;
mod shown;
mod spike;
mod system;
mod token_setting;

use towpath_lab::studies::Study;

/// All of them, in the order in which they are listed.
pub const ALL: &[&Study] = &[
    &profile::ALONE,
    &profile::TOGETHER,
    &patterns::STUDY,
    &reservations::ENOUGH,
    &readings::STUDY,
    &reservations::TOO_LITTLE,
    &reservations::MORE,
    &spike::STUDY,
    &estimate::STUDY,
    &scale::STUDY,
    &hostile::STUDY,
    &interference::STUDY,
    &policies::SINGLE,
    &policies::COPIES,
    &policies::MORE_COPIES,
    &policies::REAL,
    &policies::STRIPES,
    &policies::REAL_STRIPES,
    &policies::DEGRADED,
];

#[cfg(test)]
mod tests;
