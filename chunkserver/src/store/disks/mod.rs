//! The stores of a server, one for each disk or shard of a disk: a thread drives each, and one that
//! is bad takes nothing of another's.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | [`Disks`], the hold of one who asks on all of them |
//! | `open` | what is known of them together, and how each was opened |
//! | `route` | which disk a request goes to |
//! | `directory` | which disk has which chunk |
//! | `listing` | a page of the listing that several disks have parts of |

mod directory;
mod listing;
mod open;
mod route;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use towpath_memory::Buf;
use towpath_transport::Class;

use super::claims::Claims;
use super::core::{StoreDriver, StoreThread};
use super::error::{ChangeError, CommitStep, FlushFailed, Refused};
use super::fence::Fences;
use super::request::{Completion, Reply, Request};
use super::slice::ChunkId;
use super::sums::Sums;
use listing::Listing;

pub use directory::Twice;
pub use open::{DISKS_MAX, DiskStatus, Opening};
pub use route::Target;

use open::Shared;
use route::Route;

/// Why a request does not go to a disk.
#[derive(Debug)]
pub enum Unsent {
    /// The disk's queue is full.
    Full,
    /// The disk that has the chunk, or may have it, serves nothing, or has it beside another disk:
    /// its number.
    Down(usize),
}

/// What one who asks has with the disks.
#[derive(Debug)]
struct UnderWay {
    /// None of a listing, which several have.
    disk: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Create(ChunkId),
    List(Listing),
    Scrub,
    Other,
}

/// How a disk was closed.
#[derive(Debug)]
pub struct Closed {
    /// Its name.
    pub disk: String,
    /// Whether its store was sealed; none where the time was not enough.
    pub sealed: Option<Result<(), FlushFailed>>,
}

impl Closed {
    /// The one of two that did worse: one that was not done in time before one that failed, and
    /// that before one that is sealed.
    pub(crate) fn or_worse(self, other: Self) -> Self {
        let rank = |closed: &Self| match closed.sealed {
            Some(Ok(())) => 0,
            Some(Err(_)) => 1,
            None => 2,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }
}

/// The hold of one who asks on all disks of a server: it asks, and takes the answers. With one disk
/// it adds nothing to what the disk's [`StoreThread`] does.
#[derive(Debug)]
pub struct Disks<W> {
    shared: Arc<Shared>,
    /// Which of those who ask.
    asker: usize,
    /// None of a disk that could not be opened.
    threads: Vec<Option<StoreThread<W>>>,
    /// By the caller's token.
    under_way: Vec<Option<UnderWay>>,
    /// Requests that each disk has.
    asked: Vec<usize>,
    /// Answers that no disk gives.
    ready: VecDeque<Completion<W, Buf>>,
    /// The disk whose answers are taken next.
    turn: usize,
    /// Disks whose end was noticed, one bit each.
    ended: u64,
    /// Disks that the thread of this one drives itself, one bit each.
    own: u64,
}

impl<W: AsRef<[u8]> + Send + 'static> From<StoreThread<W>> for Disks<W> {
    /// The only disk of a server, for its only worker.
    fn from(thread: StoreThread<W>) -> Self {
        let opened = Opening::new(vec![String::from("disk")]).finish(1, vec![Ok(vec![thread])]);
        opened.into_iter().next().expect("one hold was asked for")
    }
}

impl<W> Disks<W> {
    fn new(shared: Arc<Shared>, asker: usize, threads: Vec<Option<StoreThread<W>>>) -> Self {
        let asked = vec![0; threads.len()];
        let (under_way, ready) = (Vec::new(), VecDeque::new());
        Self { shared, asker, threads, under_way, asked, ready, turn: 0, ended: 0, own: 0 }
    }

    fn open_disks(&self) -> impl Iterator<Item = (usize, &StoreThread<W>)> {
        self.threads.iter().enumerate().filter_map(|(at, thread)| Some((at, thread.as_ref()?)))
    }

    fn has_several(&self) -> bool {
        self.threads.len() > 1
    }

    fn is_own(&self, disk: usize) -> bool {
        self.own & (1 << disk) != 0
    }

    /// The thread that has this hold drives a disk by `driver`: it looks for the disk's answers
    /// itself, and nothing need wake it for them. Gives the disk's name.
    pub(crate) fn drive_here(&mut self, driver: &StoreDriver<W>) -> String {
        let own = self.open_disks().find(|(_, thread)| driver.is_of(thread));
        let Some((disk, thread)) = own else { return String::new() };
        thread.wake(None);
        self.own |= 1 << disk;
        self.shared.names[disk].clone()
    }

    /// Whether the thread that has this hold drives all disks.
    #[must_use]
    pub fn are_all_own(&self) -> bool {
        self.open_disks().all(|(disk, _)| self.is_own(disk))
    }

    /// Has each thread that drives a disk take what is queued for it; true where something is
    /// queued for a disk of this one's own.
    pub fn ring(&self) -> bool {
        let mut own_has_queued = false;
        for (disk, thread) in self.open_disks() {
            match self.is_own(disk) {
                true => own_has_queued |= thread.has_queued(),
                false => thread.ring(),
            }
        }
        own_has_queued
    }

    /// Has `waker` woken when there are answers.
    pub fn wake(&self, waker: Option<&Waker>) {
        self.open_disks().for_each(|(_, thread)| thread.wake(waker.cloned()));
    }

    /// The sessions of clients, the same for all who ask and for all disks: an entry waits for what
    /// any of them has of older links.
    #[must_use]
    pub fn fences(&self) -> &Fences {
        &self.shared.fences
    }

    /// What writes that go on to other servers have to themselves, the same for all who ask.
    #[must_use]
    pub fn claims(&self) -> &Arc<Claims> {
        &self.shared.claims
    }

    /// A link has made an unfinished chunk, and keeps it by being there.
    pub fn begin_put(&self, chunk: ChunkId) {
        let disk = self.threads[self.disk_of(chunk)].as_ref();
        disk.iter().for_each(|thread| thread.puts().begin(chunk));
    }

    /// The chunk is finished, or the link is gone.
    pub fn end_put(&self, chunk: ChunkId) {
        // Its disk may not be known any more.
        self.open_disks().for_each(|(_, thread)| thread.puts().end(chunk));
    }

    /// The number of this one of those who ask.
    #[must_use]
    pub fn asker(&self) -> usize {
        self.asker
    }

    /// Parity parts that are being added up, the same for all who ask.
    #[must_use]
    pub fn sums(&self) -> &Arc<Sums> {
        &self.shared.sums
    }

    /// Whether any disk still answers.
    #[must_use]
    pub fn are_running(&self) -> bool {
        self.open_disks().any(|(_, thread)| thread.is_running())
    }

    /// How the disks are, in the order of the settings.
    #[must_use]
    pub fn status(&self) -> Vec<DiskStatus> {
        self.shared.status(&self.threads)
    }

    /// The disks one by one, for who looks after each: its name, and none where it could not be
    /// opened.
    pub(crate) fn into_each(self) -> Vec<(String, Option<StoreThread<W>>)> {
        self.shared.names.iter().cloned().zip(self.threads).collect()
    }

    /// Sends a request of a class, whose answer comes with `token`: a small number, as it is an
    /// index here.
    ///
    /// # Errors
    /// [`Unsent`]; the request is gone with its buffers.
    pub fn send(
        &mut self,
        class: Class,
        token: u64,
        request: Request<W, Buf>,
    ) -> Result<(), Unsent> {
        let target = Target::of(&request);
        let disk = match self.route(class, target)? {
            Route::One(disk) => disk,
            Route::Here => {
                self.ready
                    .push_back(Completion::at_once(token, Reply::Stats(Box::new(self.sum()))));
                return Ok(());
            }
            Route::All => return self.send_list(class, token, &request),
        };
        let (disk, kind) = match target {
            // Of two who make a chunk at a time the second goes where the first one went.
            Target::New(chunk) if self.has_several() => {
                (self.shared.directory.create(chunk, disk), Kind::Create(chunk))
            }
            Target::Any => (disk, Kind::Scrub),
            _ => (disk, Kind::Other),
        };
        let sent =
            self.threads[disk].as_ref().map(|thread| thread.try_send_as(class, token, request));
        if !matches!(sent, Some(Ok(()))) {
            if let Kind::Create(chunk) = kind {
                self.shared.directory.create_answered(chunk, true);
            }
            return Err(self.why_not(disk));
        }
        self.note(token, UnderWay { disk, kind });
        self.asked[disk] += 1;
        Ok(())
    }

    fn why_not(&self, disk: usize) -> Unsent {
        match &self.threads[disk] {
            Some(thread) if thread.is_running() => Unsent::Full,
            _ => Unsent::Down(disk),
        }
    }

    fn send_list(
        &mut self,
        class: Class,
        token: u64,
        request: &Request<W, Buf>,
    ) -> Result<(), Unsent> {
        let &Request::List { after, count_max } = request else { return Err(Unsent::Full) };
        let mut disks = 0;
        for (disk, thread) in self.threads.iter().enumerate() {
            let Some(thread) = thread.as_ref().filter(|thread| thread.is_running()) else {
                continue;
            };
            // There was room in the queues of all of them.
            let request = Request::List { after, count_max };
            if thread.try_send_as(class, token, request).is_ok() {
                disks |= 1 << disk;
                self.asked[disk] += 1;
            }
        }
        if disks == 0 {
            return Err(Unsent::Down(0));
        }
        let kind = Kind::List(Listing::new(disks, count_max));
        self.note(token, UnderWay { disk: usize::MAX, kind });
        Ok(())
    }

    fn note(&mut self, token: u64, under_way: UnderWay) {
        let token = token as usize;
        if self.under_way.len() <= token {
            self.under_way.resize_with(token + 1, || None);
        }
        self.under_way[token] = Some(under_way);
    }

    /// An answer, if there is one.
    pub fn try_next(&mut self) -> Option<Completion<W, Buf>> {
        for _ in 0..=self.threads.len() {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            let disk = self.turn;
            let thread = self.threads[disk].as_ref();
            match thread.and_then(|thread| thread.completions().try_recv().ok()) {
                Some(completion) => {
                    if let Some(whole) = self.on_completion(disk, completion) {
                        return Some(whole);
                    }
                }
                None => self.turn = (disk + 1) % self.threads.len(),
            }
        }
        None
    }

    /// Waits for an answer; none where no disk has anything.
    pub fn wait_next(&mut self) -> Option<Completion<W, Buf>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            let asked = |(disk, _): &(usize, &StoreThread<W>)| self.asked[*disk] > 0;
            let (disk, thread) = self.open_disks().find(asked)?;
            // An error is the end of the disk's thread, which the next look for ends finds.
            let completion = thread.completions().recv().ok()?;
            if let Some(whole) = self.on_completion(disk, completion) {
                return Some(whole);
            }
        }
    }

    /// What a disk answered, as whoever asked is to have it; none where others are still to answer.
    fn on_completion(
        &mut self,
        disk: usize,
        completion: Completion<W, Buf>,
    ) -> Option<Completion<W, Buf>> {
        let Completion { token, mut reply, flush_ns, blocks_left } = completion;
        self.asked[disk] = self.asked[disk].saturating_sub(1);
        let place = self.under_way.get_mut(token as usize)?;
        match (&mut place.as_mut()?.kind, &mut reply) {
            (Kind::List(listing), Reply::List(page)) => {
                *page = listing.add(disk, page, &self.shared.directory)?;
            }
            (Kind::Create(chunk), Reply::Change(result)) => {
                let undecided = matches!(result, Err(ChangeError::Refused(Refused::Undecided(_))));
                self.shared.directory.create_answered(*chunk, !undecided);
            }
            (Kind::Scrub, Reply::Scrub(report)) => {
                let last = self.shared.scrubbed(disk, report.pass_done, &self.threads);
                report.pass_done &= last;
            }
            _ => {}
        }
        *place = None;
        self.shared.name_disk(disk, &mut reply);
        Some(Completion { token, reply, flush_ns, blocks_left })
    }

    /// Disks whose threads have ended since the last look, one bit each. What they had and did not
    /// answer is told by [`lose`](Self::lose), after the answers that they did give are taken.
    pub fn look_for_ends(&mut self) -> u64 {
        let ended = self.open_disks().filter(|(_, thread)| !thread.is_running());
        let ended = ended.fold(0, |ended, (disk, _)| ended | 1 << disk) & !self.ended;
        self.ended |= ended;
        ended
    }

    /// The tokens of what these disks had when they ended: it gets no answer, and whether it was
    /// done is not known. What others have a part of is answered without theirs.
    pub fn lose(&mut self, ended: u64) -> Vec<u64> {
        let mut lost = Vec::new();
        for disk in (0..self.threads.len()).filter(|disk| ended & (1 << disk) != 0) {
            self.asked[disk] = 0;
            for token in 0..self.under_way.len() {
                let Some(under_way) = &mut self.under_way[token] else { continue };
                match &mut under_way.kind {
                    Kind::List(listing) if listing.waits_for(disk) => {
                        let Some(page) = listing.add(disk, &[], &self.shared.directory) else {
                            continue;
                        };
                        let reply = Reply::List(page);
                        self.ready.push_back(Completion::at_once(token as u64, reply));
                    }
                    Kind::List(_) => continue,
                    _ if under_way.disk != disk => continue,
                    kind => {
                        if let Kind::Create(chunk) = kind {
                            self.shared.directory.create_answered(*chunk, false);
                        }
                        lost.push(token as u64);
                    }
                }
                self.under_way[token] = None;
            }
        }
        lost
    }

    /// Asks nothing more. The last of all who ask waits until each disk has answered what is
    /// queued, is sealed, and its thread ended, for `timeout` at most, all together. Gives the disk
    /// that did worst: one that was not done in time, or failed, before those that are sealed.
    #[must_use]
    pub fn stop_within(self, timeout: Duration) -> Closed {
        let end = Instant::now() + timeout;
        let mut closing = Vec::new();
        for (disk, thread) in self.threads.into_iter().enumerate() {
            let Some(thread) = thread else { continue };
            // One that has panicked is not for whoever stops the others.
            let stopping = thread.is_running().then_some(thread).map(StoreThread::begin_stop);
            closing.push((disk, stopping));
        }
        let mut worst = Closed { disk: self.shared.names[0].clone(), sealed: Some(Ok(())) };
        for (disk, closing) in closing {
            let ended = FlushFailed { step: CommitStep::LogFlush, kind: ErrorKind::BrokenPipe };
            let sealed = closing.map_or(Some(Err(ended)), |closing| closing.wait(end));
            worst = worst.or_worse(Closed { disk: self.shared.names[disk].clone(), sealed });
        }
        worst
    }

    /// Says in the log, once for all who ask, which disks do not serve any more as they did.
    pub fn say_changes(&self) {
        if self.has_several() {
            self.shared.say_changes(&self.threads);
        }
    }
}
