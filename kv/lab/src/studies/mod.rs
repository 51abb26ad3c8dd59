//! The experiments of "Scalability of RDMA transportation types in a Key Value store application"
//! (J. E. Troost, VU Amsterdam, 2021) on a model of hardware ([`crate::model`]), and some that it
//! has not: `towpath sim kv throughput` and so on.
//!
//! | file | contents |
//! |---|---|
//! | `setting` | the machines of the thesis, and the parameters of all studies |
//! | `thesis` | its figures |
//! | `throughput` | figures 4.1 and 4.2, table 4.1 |
//! | `latency` | figures 4.3 to 4.8, tables 4.2 and 4.3 |
//! | `switches` | table 4.4 |
//! | `loss` | packets that are lost |
//! | `one_sided` | GETs by READ |
//! | `many` | thousands of clients |
//! | `ycsb` | YCSB's workloads |
//! | `shown` | runs, tables and drawings in common |

mod latency;
mod loss;
mod many;
mod one_sided;
mod setting;
mod shown;
mod switches;
mod thesis;
mod throughput;
mod ycsb;

use towpath_lab::studies::Study;

/// All of them, in the order in which they are listed.
pub const ALL: &[&Study] = &[
    &throughput::STUDY,
    &latency::STUDY,
    &switches::STUDY,
    &loss::STUDY,
    &one_sided::STUDY,
    &many::STUDY,
    &ycsb::STUDY,
];

#[cfg(test)]
mod tests;
