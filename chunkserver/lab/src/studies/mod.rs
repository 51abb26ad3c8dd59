//! The experiments of the Haechi paper (Q. Liu, P. Varman), on the simulated fabric with the
//! production code: `towpath sim haechi 1a` and so on.
//!
//! | file | contents |
//! |---|---|
//! | `setting` | the cluster that all have in common, and its parameters |
//! | `profile` | what one client does (1a), and more and more of them (1b) |
//! | `patterns` | demands and patterns without tokens (1c) |
//! | `bars` | bars by client and period, as the paper has them |

mod bars;
mod patterns;
mod profile;
mod setting;

use towpath_lab::studies::Study;

/// All of them, in the order in which they are listed.
pub const ALL: &[&Study] = &[&profile::ALONE, &profile::TOGETHER, &patterns::STUDY];

#[cfg(test)]
mod tests;
