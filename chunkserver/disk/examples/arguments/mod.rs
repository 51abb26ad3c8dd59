//! The command line of the benches of disks and stores: one path, and flags that have a value each.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What was said.
pub(crate) struct Arguments {
    /// The file or folder that is measured.
    pub(crate) path: PathBuf,
    /// How often all of them take their turn.
    pub(crate) rounds: usize,
    /// How long a turn is.
    pub(crate) span: Duration,
    /// Pages of the disk.
    pub(crate) page_count: u64,
    /// Another one each time unless it is said: what an earlier run has read may be in a cache of
    /// the disk.
    pub(crate) seed: u64,
    /// Flags that not all benches have, and their values.
    more: Vec<(String, String)>,
}

impl Arguments {
    /// Reads the command line; `known` are flags that not all benches have.
    pub(crate) fn read(known: &[&str]) -> Result<Self, Box<dyn Error>> {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        let (mut path, mut more) = (None, Vec::new());
        let (mut rounds, mut seconds, mut page_count, mut seed) = (5, 2, 1 << 18, seed);
        let mut args = std::env::args_os().skip(1);
        while let Some(arg) = args.next() {
            let Some(flag) = arg.to_str().filter(|arg| arg.starts_with("--")) else {
                path = Some(PathBuf::from(arg));
                continue;
            };
            let value = args.next().and_then(|value| value.into_string().ok());
            let value = value.ok_or_else(|| format!("{flag} needs a value"))?;
            match flag {
                "--rounds" => rounds = value.parse()?,
                "--seconds" => seconds = value.parse()?,
                "--pages" => page_count = value.parse()?,
                "--seed" => seed = value.parse()?,
                _ if known.contains(&flag) => more.push((String::from(flag), value)),
                _ => return Err(format!("there is no {flag}").into()),
            }
        }
        println!("seed {seed}");
        let (rounds, span) = (rounds.max(1), Duration::from_secs(seconds));
        Ok(Self { path: path.ok_or("on which path?")?, rounds, span, page_count, seed, more })
    }

    /// The value of a flag that not all benches have.
    pub(crate) fn value(&self, flag: &str) -> Option<&str> {
        let found = self.more.iter().rev().find(|(known, _)| known == flag);
        found.map(|(_, value)| value.as_str())
    }
}
