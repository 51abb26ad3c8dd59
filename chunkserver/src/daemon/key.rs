//! A setting, and how one is found by its name.

use std::sync::LazyLock;

use super::config::DaemonConfig;
use super::keys::KEYS;
use super::value::ValueError;

/// One setting.
pub struct Key {
    /// Its name in the file; the flag has dashes for underscores.
    pub name: &'static str,
    /// What kind of value it takes, for `--help`.
    pub kind: &'static str,
    /// What it does, with the unit.
    pub doc: &'static str,
    /// Whether the file shows it in quotes.
    pub(crate) quoted: bool,
    pub(crate) set: fn(&mut DaemonConfig, &str) -> Result<(), ValueError>,
    pub(crate) show: fn(&DaemonConfig) -> String,
}

impl Key {
    /// The flag: the name with dashes.
    #[must_use]
    pub fn flag(&self) -> &'static str {
        static FLAGS: LazyLock<Vec<String>> =
            LazyLock::new(|| KEYS.iter().map(|key| key.name.replace('_', "-")).collect());
        let place = KEYS.iter().position(|key| key.name == self.name);
        place.map_or(self.name, |place| FLAGS[place].as_str())
    }
}

/// The setting of that name.
#[must_use]
pub fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

/// The known name that is most like an unknown one, unless none is.
#[must_use]
pub fn nearest(unknown: &str) -> Option<&'static str> {
    let scored = KEYS.iter().map(|key| (distance(unknown, key.name), key.name));
    let (best, name) = scored.min()?;
    (best <= 1 + name.len() / 3).then_some(name)
}

/// Letters to insert, delete or replace to get from one word to the other. What is longer than
/// any key counts as cut off there: it is far from all of them anyway.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 64;
    let a = &a.as_bytes()[..a.len().min(LONGEST)];
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.as_bytes().iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_the_key_that_was_meant_and_nonsense_finds_none() {
        assert_eq!(nearest("capacity_byte"), Some("capacity_bytes"));
        assert_eq!(nearest("datadir"), Some("data_dir"));
        assert_eq!(nearest("listen_addr"), None);
        assert_eq!(nearest("colour"), None);
        assert_eq!(nearest(&"x".repeat(100_000)), None);
    }

    #[test]
    fn what_a_key_shows_it_also_reads() {
        let shown = DaemonConfig::default();
        let mut read = DaemonConfig { stop_wait_ms: 1, ..DaemonConfig::default() };
        for key in KEYS {
            let text = (key.show)(&shown);
            assert!((key.set)(&mut read, &text).is_ok(), "{} = {text}", key.name);
        }
        assert_eq!(read, shown);
    }
}
