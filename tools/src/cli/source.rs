//! Where the bytes of a demo come from: a file, or a seed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use towpath_base::Prng;

/// Bytes of a generated unit; each differs from all others.
const UNIT_BYTES: usize = 4096;

/// Units of random bytes that generated input is made of: small enough to stay in the cache, so
/// that making input does not become the bottleneck of what is measured.
const POOL_UNITS: usize = 128;

/// Opens a regular file to read it.
///
/// # Errors
/// What the system says; `InvalidInput` for a directory, a device or a pipe: nobody knows its
/// length, and to open a pipe is to wait for whoever writes to it.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    File::open(path)
}

/// Bytes that can be had at any offset, any number of times.
#[derive(Debug)]
pub(crate) enum Source {
    /// Made from a seed; nothing is kept but a small pool.
    Generated(Generated),
    /// A file.
    File {
        /// Open for reading.
        file: File,
        /// Its path, for messages.
        path: PathBuf,
        /// Its length when it was opened.
        byte_len: u64,
    },
}

/// Input that a seed stands for: pool units in seeded order, each with its own number mixed in.
#[derive(Debug)]
pub(crate) struct Generated {
    pool: Vec<u8>,
    seed: u64,
    byte_len: u64,
}

impl Source {
    /// `byte_len` bytes from `seed`.
    #[must_use]
    pub(crate) fn generated(seed: u64, byte_len: u64) -> Self {
        let mut pool = vec![0; POOL_UNITS * UNIT_BYTES];
        Prng::new(seed).fill(&mut pool);
        Self::Generated(Generated { pool, seed, byte_len })
    }

    /// The bytes of a file.
    ///
    /// # Errors
    /// What [`open_regular`] says.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        let byte_len = file.metadata()?.len();
        Ok(Self::File { file, path: path.into(), byte_len })
    }

    /// Its path, when it is a file.
    #[must_use]
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        match self {
            Self::Generated(_) => None,
            Self::File { path, .. } => Some(path),
        }
    }

    /// How many bytes there are.
    #[must_use]
    pub(crate) fn byte_len(&self) -> u64 {
        match self {
            Self::Generated(generated) => generated.byte_len,
            Self::File { byte_len, .. } => *byte_len,
        }
    }

    /// Fills `out` with the bytes from `offset` on.
    ///
    /// # Errors
    /// What the system says; `UnexpectedEof` when the file became shorter.
    pub(crate) fn fill(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Generated(generated) => {
                generated.parts(offset, out.len(), |at, unit, stamp| {
                    let out = &mut out[at..at + unit.len()];
                    out.copy_from_slice(unit);
                    stamp_into(out, stamp);
                });
                Ok(())
            }
            Self::File { file, .. } => file.read_exact_at(out, offset),
        }
    }

    /// Whether `bytes` are those from `offset` on. `scratch` is memory to use again.
    ///
    /// # Errors
    /// As for [`fill`](Self::fill).
    pub(crate) fn matches(
        &self,
        offset: u64,
        bytes: &[u8],
        scratch: &mut Vec<u8>,
    ) -> io::Result<bool> {
        scratch.resize(bytes.len(), 0);
        self.fill(offset, scratch)?;
        Ok(scratch == bytes)
    }
}

/// A unit's number, mixed into its first eight bytes; `skip` says how many of those come before
/// what is looked at.
#[derive(Clone, Copy)]
struct Stamp {
    number: u64,
    skip: usize,
}

fn stamp_into(out: &mut [u8], stamp: Stamp) {
    let number = stamp.number.to_le_bytes();
    for (byte, mark) in out.iter_mut().zip(number.iter().skip(stamp.skip)) {
        *byte ^= mark;
    }
}

impl Generated {
    /// Calls `each` with where it goes, pool bytes and stamp for every unit that is touched.
    fn parts(&self, offset: u64, len: usize, mut each: impl FnMut(usize, &[u8], Stamp)) {
        let mut at = 0;
        while at < len {
            let place = offset + at as u64;
            let (number, skip) = (place / UNIT_BYTES as u64, (place % UNIT_BYTES as u64) as usize);
            let mixed = (number ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            let start = (mixed as usize % POOL_UNITS) * UNIT_BYTES;
            let unit = &self.pool[start + skip..start + UNIT_BYTES];
            let unit = &unit[..unit.len().min(len - at)];
            each(at, unit, Stamp { number, skip });
            at += unit.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(source: &Source, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        source.fill(offset, &mut out).expect("there");
        out
    }

    #[test]
    fn any_piece_is_the_same_bytes_as_in_the_whole() {
        let source = Source::generated(3, 1 << 20);
        let whole = bytes(&source, 0, 20_000);
        for (from, to) in [(0, 1), (3, 5), (7, 9), (4090, 4110), (4095, 12_289), (8193, 20_000)] {
            assert_eq!(bytes(&source, from as u64, to - from), whole[from..to], "{from}..{to}");
        }
    }

    #[test]
    fn no_two_units_and_no_two_seeds_are_alike() {
        let source = Source::generated(1, 1 << 30);
        let mut units: Vec<Vec<u8>> =
            (0..2000u64).map(|unit| bytes(&source, unit * 4096, 4096)).collect();
        units.sort_unstable();
        units.dedup();
        assert_eq!(units.len(), 2000);
        assert_ne!(bytes(&source, 0, 64), bytes(&Source::generated(2, 1 << 30), 0, 64));
    }

    #[test]
    fn a_changed_or_moved_byte_does_not_match() {
        let source = Source::generated(9, 1 << 20);
        let mut scratch = Vec::new();
        let mut piece = bytes(&source, 5000, 9000);
        assert!(source.matches(5000, &piece, &mut scratch).expect("there"));
        assert!(!source.matches(5001, &piece, &mut scratch).expect("there"));
        piece[8999] ^= 1;
        assert!(!source.matches(5000, &piece, &mut scratch).expect("there"));
    }

    #[test]
    fn a_file_that_became_shorter_is_an_error() {
        let file = tempfile::NamedTempFile::new().expect("room");
        std::fs::write(file.path(), [1; 100]).expect("written");
        let source = Source::open(file.path()).expect("readable");
        assert_eq!(source.byte_len(), 100);
        file.as_file().set_len(50).expect("shorter");
        let error = source.fill(10, &mut [0; 90]).expect_err("not there any more");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
