//! `towpath bench store`: load on a running chunk server, in the words of fio.
//!
//! | file | contents |
//! |---|---|
//! | `args` | the flags |
//! | `plan` | the checked plan of a run |
//! | `offsets` | the offset of each request |
//! | `content` | the bytes of writes, and the check of what is read |
//! | `job` | one thread with a link and chunks of its own |
//! | `work` | the requests of a job: which is next, and what each took |
//! | `run` | all jobs: start, progress, end |
//! | `latency` | latencies and counts of one direction |
//! | `report` | the table and the JSON object |

mod args;
mod content;
mod error;
mod job;
mod latency;
mod offsets;
mod plan;
mod report;
mod run;
mod work;

pub(crate) use args::StoreArgs;
pub(crate) use error::StoreError;
pub(crate) use run::run;
