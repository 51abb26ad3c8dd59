//! What happens in a run, drawn from its seed.
//!
//! | file | what it does |
//! |---|---|
//! | `draw` | the wire, the endpoints, the sizes: [`Scenario`] |
//! | `faults` | what befalls packets: loss, copies, disorder, damage and lateness, all at once |
//! | `run` | lives of a link one after the other, and how each ends |

#![allow(dead_code, unreachable_pub, unused_imports, reason = "each test uses its part")]

mod draw;
mod faults;
mod run;

pub use draw::{Scenario, Sizes};
pub use run::Report;
