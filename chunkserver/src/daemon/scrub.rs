//! The background scrub: a thread that checks every slice, slowly, and remembers where it was.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use towpath_base::crc::crc32c;
use towpath_rpc::Piece;
use towpath_transport::Buf;

use super::stop::StopFlag;
use crate::service::ScrubBoard;
use crate::store::core::StoreThread;
use crate::store::{ChunkId, Reply, Request, SLICE_BYTES, ScrubReport};

/// Name of the file in the data directory that says how far the scrub is.
pub(super) const STATE_NAME: &str = "scrub";

/// Longest such file that is read: it has some hundred bytes.
const STATE_BYTES_MAX: u64 = 4096;

/// Most slices of a step, 1 MiB: what others wait for at most.
const STEP_SLICES_MAX: u64 = 256;

/// Steps a second at a low rate, so that it reads a little all the time.
const STEPS_A_SECOND: u64 = 4;

/// How long a server that has just started is left alone.
pub(super) const SETTLE: Duration = Duration::from_secs(60);

/// A pass begins at most this often: a store that is soon read is not read all day.
const PASS_EVERY: Duration = Duration::from_secs(24 * 3600);

/// How often the state is saved: what is checked twice after a crash.
const SAVE_EVERY: Duration = Duration::from_secs(60);

/// How soon a wish to stop is seen while the store is asked.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How often the clock is asked whether the next pass may begin: it may be set meanwhile.
const DUE_EVERY: Duration = Duration::from_secs(60);

/// How far the scrub is; times in seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct State {
    /// The chunk and slice that are next.
    chunk: String,
    slice: u64,
    /// Slices checked in this pass.
    checked: u64,
    /// When this pass began; 0: it has not.
    pass_began_s: u64,
    /// When the last whole pass ended; 0: never.
    last_pass_s: u64,
}

/// What the thread has: it asks the store beside the workers.
pub(super) struct Scrubber {
    store: StoreThread<Piece>,
    boards: Arc<[ScrubBoard]>,
    /// Which of them is its disk's.
    disk: usize,
    path: PathBuf,
    rate: u64,
    state: State,
    next: (ChunkId, u64),
    /// Number of the last question to the store.
    asked: u64,
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Scrubber {
    /// Goes on where the file in `dir`, the folder of the disk, says that it was, at the rate of
    /// the disk's board.
    pub(super) fn new(
        store: StoreThread<Piece>,
        boards: Arc<[ScrubBoard]>,
        disk: usize,
        dir: &Path,
    ) -> Self {
        let path = dir.join(STATE_NAME);
        let state = match read_state(&path) {
            Ok(state) => state,
            Err(error) => {
                tracing::warn!(%error, path = %path.display(), "the scrub starts anew");
                State::default()
            }
        };
        let chunk = state.chunk.parse().unwrap_or_default();
        let (rate, next) = (boards[disk].rate(), (chunk, state.slice));
        boards[disk].tell(state.checked, state.last_pass_s);
        Self { store, boards, disk, path, rate, state, next, asked: 0 }
    }

    /// Checks slices until the wish to stop; the first ones after `settle`.
    pub(super) fn run(mut self, settle: Duration, stop: &StopFlag) {
        let mut saved = Instant::now();
        stop.sleep_until(Instant::now() + settle);
        while !stop.is_stopped() {
            if !self.is_due() {
                stop.sleep_until(Instant::now() + DUE_EVERY);
                continue;
            }
            let began = Instant::now();
            let Some(bytes) = self.step(stop) else { break };
            let span = bytes.max(SLICE_BYTES as u64) as f64 / self.rate as f64;
            stop.sleep_until(began + Duration::from_secs_f64(span));
            if saved.elapsed() >= SAVE_EVERY {
                self.save();
                saved = Instant::now();
            }
        }
        self.save();
    }

    /// Whether a pass is under way, or the next one may begin.
    fn is_due(&self) -> bool {
        let is_under_way = self.state.checked > 0 || self.state.pass_began_s == 0;
        is_under_way || now_s().saturating_sub(self.state.pass_began_s) >= PASS_EVERY.as_secs()
    }

    /// One step; gives the bytes that it read. None at the wish to stop, or when the store ended.
    fn step(&mut self, stop: &StopFlag) -> Option<u64> {
        if self.state.checked == 0 {
            self.state.pass_began_s = now_s();
        }
        if self.state.checked % (STEP_SLICES_MAX * 16) < STEP_SLICES_MAX
            && let Reply::Stats(stats) = self.ask(Request::Stats, stop)?
        {
            self.boards[self.disk].expect(stats.live_bytes / SLICE_BYTES as u64);
        }
        let a_second = self.rate / SLICE_BYTES as u64;
        let budget_slices = (a_second / STEPS_A_SECOND).clamp(1, STEP_SLICES_MAX);
        let from = Some(self.next);
        let Reply::Scrub(report) = self.ask(Request::Scrub { budget_slices, from }, stop)? else {
            return None;
        };
        Some(self.take_in(&report))
    }

    fn take_in(&mut self, report: &ScrubReport) -> u64 {
        let disk = self.disk;
        for damaged in &report.corrupt {
            tracing::error!(disk, error = %damaged, "the background scrub met a damaged slice");
        }
        for error in &report.unreadable {
            tracing::error!(disk, %error, "the background scrub met a slice that cannot be read");
        }
        self.state.checked += report.slices;
        self.next = report.next;
        self.boards[self.disk].add(report);
        if report.pass_done {
            let checked = std::mem::take(&mut self.state.checked);
            self.state.last_pass_s = now_s();
            tracing::info!(disk, slices = checked, "the background scrub has checked every slice");
        }
        self.boards[self.disk].tell(self.state.checked, self.state.last_pass_s);
        if report.pass_done {
            self.save();
        }
        report.bytes
    }

    fn ask(&mut self, request: Request<Piece, Buf>, stop: &StopFlag) -> Option<Reply<Piece, Buf>> {
        self.asked += 1;
        // One question at a time has room in the queue.
        self.store.try_send(self.asked, request).ok()?;
        self.store.ring();
        while !stop.is_stopped() && self.store.is_running() {
            if let Ok(answer) = self.store.completions().recv_timeout(LOOK_EVERY) {
                return Some(answer.reply);
            }
        }
        None
    }

    /// Says in the file how far it is. Where that fails, the next start checks some slices again.
    fn save(&mut self) {
        self.state.chunk = self.next.0.to_string();
        self.state.slice = self.next.1;
        let new = self.path.with_extension("new");
        let saved = serde_json::to_string(&self.state)
            .map_err(io::Error::from)
            .and_then(|text| fs::write(&new, format!("{text}\n{:08x}\n", crc32c(text.as_bytes()))))
            .and_then(|()| fs::rename(&new, &self.path));
        if let Err(error) = saved {
            let path = self.path.display();
            tracing::warn!(%error, %path, "how far the scrub is was not saved");
        }
    }
}

fn read_state(path: &Path) -> io::Result<State> {
    let file = match fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::default()),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(STATE_BYTES_MAX).read_to_end(&mut bytes)?;
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    // A place that is wrong would leave slices out of a pass that is told to be whole.
    let text = str::from_utf8(&bytes).map_err(|_| invalid())?;
    let (text, crc) = text.split_once('\n').ok_or_else(invalid)?;
    if crc != format!("{:08x}\n", crc32c(text.as_bytes())) {
        return Err(invalid());
    }
    let mut state: State = serde_json::from_str(text)?;
    if state.chunk.parse::<ChunkId>().is_err() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // A clock that was wrong must not keep the scrub from its next pass.
    let now = now_s();
    state.pass_began_s = state.pass_began_s.min(now);
    state.last_pass_s = state.last_pass_s.min(now);
    Ok(state)
}

#[cfg(test)]
mod tests {
    use towpath_disk::PageNumber;
    use towpath_disk::sim::Medium;

    use super::*;
    use crate::service::ScrubProgress;
    use crate::store::core::{Client, CoreConfig, DriverConfig, StoreCore};
    use crate::store::{NewChunk, Terms, writer_crcs};

    const CONFIG: CoreConfig = CoreConfig {
        log_pages: 128,
        log_pages_max: 0,
        chunks_max: 10,
        store_id: 1,
        log_nonce: 2,
        version_seed: 0,
        is_sparse: false,
    };

    /// A store with three chunks of ten slices each.
    fn store(medium: &Medium) -> StoreThread<Piece> {
        let mut core: StoreCore<Vec<u8>> = open_core(medium);
        for chunk in (1..=3).map(ChunkId) {
            let data = vec![chunk.0 as u8; 10 * SLICE_BYTES];
            let crcs = writer_crcs(chunk, 0, &data);
            let client = Client { asker: 0, token: 0 };
            let create =
                Request::Create { chunk, limit_bytes: None, kind: NewChunk::default(), stamp: 0 };
            core.submit(client, create);
            let (data, verified, terms) = (vec![data], true, Terms::default());
            let (offset, staged) = (0, None);
            let write = Request::Write { chunk, offset, data, crcs, verified, terms, staged };
            core.submit(client, write);
            while !core.is_idle() {
                core.turn(Some(Duration::from_secs(1))).expect("the simulated disk speaks");
            }
        }
        drop(core);
        let medium = medium.clone();
        let open = move || Ok::<_, io::Error>((open_core(&medium), ()));
        let driver = DriverConfig { queue_max: 4, unfinished_keep: None };
        StoreThread::spawn(1, driver, open).expect("it opens").0.pop().expect("one")
    }

    fn open_core<W: AsRef<[u8]>>(medium: &Medium) -> StoreCore<W> {
        let disk = medium.open(32).expect("nobody has it");
        StoreCore::open(Box::new(disk), &CONFIG).expect("it opens")
    }

    fn scrubber(store: StoreThread<Piece>, dir: &Path, rate: u64) -> Scrubber {
        Scrubber::new(store, Arc::from([ScrubBoard::new(rate)]), 0, dir)
    }

    impl Scrubber {
        fn told(&self) -> ScrubProgress {
            self.boards[0].read()
        }
    }

    #[test]
    fn a_pass_goes_on_after_a_restart_and_the_next_one_waits() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let medium = Medium::new(1, 2000);
        // Eight slices a step.
        let rate = 8 * STEPS_A_SECOND * SLICE_BYTES as u64;
        let mut first = scrubber(store(&medium), dir.path(), rate);
        let stop = StopFlag::new();
        assert!(first.is_due());
        assert_eq!(first.step(&stop), Some(8 * 4096));
        assert_eq!(first.step(&stop), Some(8 * 4096));
        let told = first.told();
        assert_eq!((told.checked, told.expected, told.last_pass_s), (16, 30, 0));
        first.save();
        let Scrubber { store, .. } = first;
        let mut second = scrubber(store, dir.path(), rate);
        assert_eq!((second.told().checked, second.next), (16, (ChunkId(2), 6)));
        while second.told().last_pass_s == 0 {
            assert!(second.is_due());
            second.step(&stop).expect("the store answers");
        }
        assert_eq!(second.told().bytes, 14 * 4096, "no slice was checked twice");
        assert!(!second.is_due(), "the pass began less than a day ago");
        let Scrubber { store, .. } = second;
        let third = scrubber(store, dir.path(), rate);
        assert!(!third.is_due() && third.told().last_pass_s > 0, "after a restart too");
    }

    #[test]
    fn damage_is_counted_and_a_state_that_makes_no_sense_is_none() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let medium = Medium::new(2, 2000);
        let store = store(&medium);
        for text in
            ["", "{", "[1]", "{\"chunk\":\"x\",\"slice\":0,\"checked\":1}", &"9".repeat(9000)]
        {
            fs::write(dir.path().join(STATE_NAME), text).expect("room for a file");
            assert!(read_state(&dir.path().join(STATE_NAME)).is_err(), "{text}");
        }
        let path = dir.path().join(STATE_NAME);
        let mut scrubber = scrubber(store, dir.path(), u64::MAX);
        scrubber.save();
        assert_eq!(read_state(&path).expect("as it was saved"), scrubber.state);
        let bytes = fs::read(&path).expect("a file");
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, flipped).expect("room for a file");
            assert!(read_state(&path).is_err(), "bit {bit}");
        }
        (0..2000).for_each(|page| medium.flip_bit(page * 4096 + 9));
        let stop = StopFlag::new();
        scrubber.step(&stop).expect("the store answers");
        let told = scrubber.told();
        assert_eq!((told.damaged, told.unreadable), (30, 0));
        (0..2000).for_each(|page| medium.spoil(PageNumber(page)));
        scrubber.step(&stop).expect("the store answers");
        assert_eq!((scrubber.told().damaged, scrubber.told().unreadable), (30, 30));
    }
}
