//! `--policy`: a policy as it is, or so many copies by the way that takes the shortest time.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args as ClapArgs;
use serde::Serialize;
use towpath_spread::{Choice, Costs, Policy, PolicyError, Servers, SpreadError};
use towpath_status::say;

use crate::cli::error::{CliError, SpreadFailed};

/// The heading of these flags.
const SPREAD: &str = "Several servers";

/// How a file is stored on several servers.
#[derive(Clone, Debug, ClapArgs)]
pub(crate) struct SpreadArgs {
    /// Store one file on several servers, with commas between, by --policy; its layout is written
    /// to a file, which `get`, `stat`, `rm`, `scrub` and `repair` take
    #[arg(long, value_name = "SERVERS", value_delimiter = ',', requires = "policy",
          help_heading = SPREAD)]
    pub(in crate::cli) servers: Vec<String>,
    /// How the file is spread: flat:COPIES (this command sends each copy), ring:COPIES or
    /// tree:COPIES (servers pass it on; ring:COPIES,ack:A and tree:COPIES,ack:A answer when the
    /// first A are durable), auto:COPIES (whichever of these takes the shortest time),
    /// rs:DATA+PARITY (this command makes the parity), or rs:DATA+PARITY,triec (servers make it)
    #[arg(long, value_name = "POLICY", requires = "servers", help_heading = SPREAD)]
    pub(in crate::cli) policy: Option<Wanted>,
    /// What auto:COPIES is chosen by, in place of a short measurement: picoseconds of a port for
    /// 1,024 bytes, nanoseconds of a step from server to server, and of a fork
    #[arg(long, value_name = "PS,NS,NS", requires = "policy", help_heading = SPREAD)]
    pub(in crate::cli) costs: Option<Costs>,
    /// On how many servers it must be durable. A server that is lost meanwhile is done without as
    /// long as so many are left [default: as many as are needed to read the file: DATA of
    /// rs:DATA+PARITY, 1 of copies, A of copies with ,ack:A]
    #[arg(long, value_name = "N", requires = "servers", help_heading = SPREAD)]
    pub(in crate::cli) least: Option<usize>,
    /// File to make of the layout [default: FILE.layout]; with --at that of the file to change
    #[arg(long, value_name = "FILE", help_heading = SPREAD)]
    pub(in crate::cli) layout: Option<PathBuf>,
    /// Write FILE over the bytes from this one on of the file that --layout tells of
    #[arg(long, value_name = "OFFSET", requires = "layout", conflicts_with = "servers",
          help_heading = SPREAD)]
    pub(in crate::cli) at: Option<u64>,
}

/// What a file counts as whose length is not known: long.
const UNKNOWN_BYTES: u64 = 1 << 30;

/// What `--policy` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Policy(Policy),
    /// So many copies.
    Auto(usize),
}

impl FromStr for Wanted {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        match text.strip_prefix("auto:") {
            None => text.parse().map(Self::Policy),
            // As many as there may be of a flat one.
            Some(copies) => match format!("flat:{copies}").parse()? {
                Policy::Flat(copies) => Ok(Self::Auto(copies)),
                _ => Err(PolicyError::Form),
            },
        }
    }
}

/// What was chosen, and why.
#[derive(Debug, Serialize)]
pub(super) struct Chosen {
    why: &'static str,
    estimates_ns: Estimates,
    costs: Known,
    /// In this run; else they were given.
    measured: bool,
    #[serde(skip)]
    choice: Choice,
}

#[derive(Debug, Serialize)]
struct Estimates {
    flat: u64,
    ring: u64,
    tree: u64,
}

#[derive(Debug, Serialize)]
struct Known {
    port_ps_per_kib: u64,
    step_ns: u64,
    fork_ns: u64,
}

impl Chosen {
    fn new(choice: Choice, costs: Costs, measured: bool) -> Self {
        let [flat, ring, tree] = choice.estimates_ns;
        let Costs { port_ps_per_kib, step_ns, fork_ns } = costs;
        Self {
            why: choice.why(),
            estimates_ns: Estimates { flat, ring, tree },
            costs: Known { port_ps_per_kib, step_ns, fork_ns },
            measured,
            choice,
        }
    }

    /// For people, of so many copies.
    pub(super) fn text(&self, policy: Policy) -> String {
        let Known { port_ps_per_kib, step_ns, fork_ns } = self.costs;
        let how = if self.measured { "measured" } else { "given" };
        format!(
            "{}, so {policy}; costs {how}: {port_ps_per_kib},{step_ns},{fork_ns}\n",
            self.choice
        )
    }
}

impl Wanted {
    /// The policy for a file of so many bytes, 0 where that is not known, and why it is that where
    /// it was chosen: by costs that were given, or are measured at the servers.
    pub(super) fn settle(
        self,
        servers: &Servers,
        places: &[SocketAddr],
        bytes: u64,
        given: Option<Costs>,
    ) -> Result<(Policy, Option<Chosen>), CliError> {
        let copies = match (self, given) {
            (Self::Policy(policy), None) => return Ok((policy, None)),
            (Self::Policy(_), Some(_)) => {
                return Err(CliError::Put("--costs is for --policy auto:COPIES"));
            }
            (Self::Auto(copies), _) => copies,
        };
        let Some(places) = places.get(..copies) else {
            let given = places.len();
            let error = SpreadError::ServerCount { needed: copies, given };
            return Err(SpreadFailed::from(error).into());
        };
        let costs = match given {
            Some(costs) => costs,
            None => match servers.measure(places) {
                Ok(costs) => costs,
                // Copies that the client writes need nothing of servers but to be there.
                Err(error) => {
                    let policy = Policy::Flat(copies);
                    say(format_args!("towpath: the file is stored by {policy}: {error}"));
                    return Ok((policy, None));
                }
            },
        };
        let bytes = if bytes == 0 { UNKNOWN_BYTES } else { bytes };
        let (policy, choice) = Policy::of_copies(copies, bytes, &costs)
            .map_err(|_| CliError::Put("there are too many copies"))?;
        Ok((policy, Some(Chosen::new(choice, costs, given.is_none()))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_may_be_left_to_be_chosen() {
        assert_eq!("auto:3".parse(), Ok(Wanted::Auto(3)));
        assert_eq!("ring:3".parse(), Ok(Wanted::Policy(Policy::Ring(3))));
        assert_eq!("auto:8".parse::<Wanted>(), Err(PolicyError::Copies(8)));
        for text in ["auto", "auto:", "auto:x", "auto:rs:2+1"] {
            assert_eq!(text.parse::<Wanted>(), Err(PolicyError::Form), "{text}");
        }
    }
}
