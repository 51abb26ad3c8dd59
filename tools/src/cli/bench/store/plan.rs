//! The checked plan of a run: what `towpath bench store` does, whatever its flags.

use std::time::Duration;

use towpath_fastpath::{ChunkId, SLICE_BYTES};

use super::args::{Kind, StoreArgs};
use super::error::StoreError;

/// What a run does. Every field is within its limits.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) rw: Kind,
    /// Of 100 requests, how many are reads.
    pub(super) read_percent: u8,
    /// Bytes of a request.
    pub(super) block: u64,
    /// Requests under way in each job.
    pub(super) depth: u32,
    pub(super) jobs: u32,
    /// Of each job.
    pub(super) chunks: u32,
    pub(super) chunk_bytes: u64,
    /// Bytes after which a job ends; none where only the time ends it.
    pub(super) io_bytes: Option<u64>,
    /// Time after which a job ends; none where only the bytes end it.
    pub(super) runtime: Option<Duration>,
    /// Load before the measurement.
    pub(super) ramp: Duration,
    pub(super) seed: u64,
    /// All bytes are written before the measurement.
    pub(super) layout: bool,
    /// How often each page is overwritten after that.
    pub(super) age: u32,
    pub(super) verify: bool,
    pub(super) keep: bool,
    /// The chunks of all jobs, in the order of the jobs; empty where they get fresh names.
    pub(super) named: Vec<ChunkId>,
}

impl Plan {
    /// The plan that these flags mean.
    ///
    /// # Errors
    /// [`StoreError`]: flags that do not fit each other.
    pub(super) fn of(args: &StoreArgs) -> Result<Self, StoreError> {
        let (block, chunks) = (args.bs, u64::from(args.nrfiles));
        let slice = SLICE_BYTES as u64;
        if !block.is_multiple_of(slice) && !slice.is_multiple_of(block) {
            return Err(StoreError::Block(block));
        }
        if args.size == 0 || !args.size.is_multiple_of(chunks * block) {
            return Err(StoreError::Size { size: args.size, chunks, block });
        }
        if args.time_based && args.runtime.is_none() {
            return Err(StoreError::NoEnd);
        }
        let least = 2 * u64::from(args.iodepth) * block;
        if args.verify && args.size < least {
            return Err(StoreError::VerifyRoom { least });
        }
        let (named, needed) = (args.chunk.len(), (args.numjobs * args.nrfiles) as usize);
        if named > 0 && named != needed {
            return Err(StoreError::Chunks { named, needed });
        }
        let read_percent = args.rw.read_percent(args.rwmixread);
        let io_bytes = args.io_size.unwrap_or(args.size).max(block);
        Ok(Self {
            rw: args.rw,
            read_percent,
            block,
            depth: args.iodepth,
            jobs: args.numjobs,
            chunks: args.nrfiles,
            chunk_bytes: args.size / chunks,
            io_bytes: (!args.time_based).then_some(io_bytes),
            runtime: args.runtime.map(Duration::from_secs_f64),
            ramp: Duration::from_secs_f64(args.ramp_time),
            seed: args.server.link.seed,
            layout: read_percent > 0 || args.overwrite || args.age > 0,
            age: args.age,
            verify: args.verify,
            keep: args.keep,
            named: args.chunk.clone(),
        })
    }

    /// Bytes of each job.
    pub(super) fn size(&self) -> u64 {
        self.chunk_bytes * u64::from(self.chunks)
    }

    /// Bytes of a page: what has a version of its own.
    pub(super) fn page(&self) -> u64 {
        self.block.min(SLICE_BYTES as u64)
    }

    /// The names of the chunks of a job, from 0.
    pub(super) fn names(&self, job: u32) -> Vec<ChunkId> {
        let count = self.chunks as usize;
        match self.named.chunks(count).nth(job as usize) {
            Some(named) => named.to_vec(),
            None => (0..count).map(|_| ChunkId::random()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: StoreArgs,
    }

    fn plan(flags: &str) -> Result<Plan, StoreError> {
        let words = std::iter::once("bench").chain(flags.split_whitespace());
        Plan::of(&Line::try_parse_from(words).expect("flags that clap takes").args)
    }

    #[test]
    fn bytes_end_a_job_unless_it_is_based_on_time() {
        let usual = plan("").expect("the defaults fit");
        assert_eq!((usual.io_bytes, usual.runtime), (Some(64 << 20), None));
        let either = plan("--io-size 1m --runtime 2.5").expect("they fit");
        assert_eq!(either.io_bytes, Some(1 << 20));
        assert_eq!(either.runtime, Some(Duration::from_millis(2500)));
        let timed = plan("--time-based --runtime 1").expect("they fit");
        assert_eq!(timed.io_bytes, None);
        assert_eq!(plan("--time-based").err(), Some(StoreError::NoEnd));
    }

    #[test]
    fn only_what_reads_or_replaces_is_written_before() {
        let is_written = |flags: &str| plan(flags).expect("they fit").layout;
        for flags in ["--rw randwrite", "--rw write", "--rw rw --rwmixread 0"] {
            assert!(!is_written(flags), "{flags}");
        }
        for flags in ["", "--rw randrw", "--rw write --overwrite", "--rw randwrite --age 5"] {
            assert!(is_written(flags), "{flags}");
        }
    }

    #[test]
    fn flags_that_do_not_fit_are_refused_with_what_fits() {
        for (flags, word) in [
            ("--bs 5000", "multiple"),
            ("--bs 4k --size 6k", "a multiple of 4096"),
            ("--size 0", "a multiple of 4096"),
            ("--nrfiles 3 --size 64k", "a multiple of 12288"),
            ("--verify --iodepth 32 --size 128k", "--size 256 KiB"),
            ("--numjobs 2 --chunk 000102030405060708090a0b0c0d0e0f", "is 2"),
        ] {
            let said = plan(flags).expect_err(flags).to_string();
            assert!(said.contains(word), "{flags}: {said}");
        }
        for flags in ["--bs 2m", "--bs 256", "--iodepth 0", "--iodepth 257", "--rwmixread 101"] {
            let words = std::iter::once("bench").chain(flags.split_whitespace());
            assert!(Line::try_parse_from(words).is_err(), "{flags}");
        }
    }

    #[test]
    fn each_job_has_chunks_of_its_own() {
        let usual = plan("--numjobs 2 --nrfiles 2").expect("they fit");
        let names: Vec<ChunkId> = (0..2).flat_map(|job| usual.names(job)).collect();
        assert_eq!(names.len(), 4);
        assert!((1..4).all(|at| !names[..at].contains(&names[at])), "{names:?}");
        let (a, b) = ("000102030405060708090a0b0c0d0e0f", "ff0102030405060708090a0b0c0d0e0f");
        let named = plan(&format!("--numjobs 2 --chunk {a} --chunk {b}"));
        let named = named.expect("as many names as chunks");
        assert_eq!(named.names(1)[0].to_string(), b);
    }
}
