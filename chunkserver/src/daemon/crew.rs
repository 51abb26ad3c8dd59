//! The workers of a server: their threads, from the first turn to the last.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::task::Waker;
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use towpath_rpc::Piece;
use towpath_status::{StatusDesk, StatusSocket};
use towpath_transport::{Device, Endpoint, EndpointConfig, Nanos, Region, SharedMemory};

use super::beside::Beside;
use super::config::DaemonConfig;
use super::disks::{Outcome, ToOpen};
use super::error::DaemonError;
use super::run::Served;
use super::stop::StopFlag;
use super::tenants::{Stamp, TenantsFile};
use crate::guard::Guard;
use crate::metrics::Worker;
use crate::qos::Qos;
use crate::service::{ChunkServer, InterferenceControl, ScrubBoard, ServerStats, ServiceConfig};
use crate::store::core::StoreDriver;
use crate::store::disks::{Closed, Disks};

/// A worker's thread, before the worker has its post: it opens the disks that it is to drive.
pub(super) struct Seat<'s, D> {
    thread: Thread<'s>,
    /// What its disks gave; it closes behind the last of them.
    pub(super) opened: Receiver<Outcome<Piece>>,
    post: SyncSender<Post<D>>,
    /// Whether it can take clients.
    told: Receiver<Result<(), DaemonError>>,
}

/// What a worker beside the first one starts with.
pub(super) struct Post<D> {
    pub(super) device: D,
    pub(super) endpoint: EndpointConfig,
    pub(super) store: Disks<Piece>,
    pub(super) desk: Option<StatusDesk>,
    pub(super) qos: Option<Qos>,
    pub(super) worker: Worker,
    pub(super) control: Option<InterferenceControl>,
    pub(super) guard: Option<Guard>,
    /// Where resident chunks of each disk are.
    pub(super) resident: Vec<Option<SharedMemory>>,
    pub(super) boards: Arc<[ScrubBoard]>,
}

/// What all workers have in common.
#[derive(Clone, Copy)]
pub(super) struct Crew<'a> {
    pub(super) config: &'a DaemonConfig,
    pub(super) stop: &'a StopFlag,
    pub(super) service: &'a ServiceConfig,
    /// Of the file of tenants, from before it was read.
    pub(super) tenants_stamp: Option<Stamp>,
}

/// How one worker ended.
struct Ended {
    stats: ServerStats,
    drained: bool,
    sealed: Result<(), DaemonError>,
}

/// How long a worker sleeps that has nothing under way: packets, answers and wishes end its sleep.
/// Once a second costs nothing, and makes up for a wish that wakes nobody.
const QUIET_WAIT: Nanos = Nanos::from_secs(1);

/// Raises the flag when a worker ends, however it does: so do the others then.
struct StopAtEnd<'a>(&'a StopFlag);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

type Thread<'s> = ScopedJoinHandle<'s, Option<Ended>>;

/// Gives a worker its figures to tell where somebody wants them; how long it may sleep then.
fn tell_figures<D: Device<Memory = Region>>(
    server: &ChunkServer<D>,
    worker: &Worker,
    told: &mut u64,
) -> Nanos {
    let is_told = worker.board.tell_when_wanted(told, || server.figures());
    if is_told { QUIET_WAIT } else { Nanos::ZERO }
}

impl<'a> Crew<'a> {
    /// Has a worker woken by the wish to stop, and by whoever wants its figures; gives what else
    /// is to wake it.
    fn wakes<D: Device<Memory = Region>>(
        &self,
        server: &ChunkServer<D>,
        worker: &Worker,
    ) -> Option<Waker> {
        let waker = server.endpoint().waker()?;
        self.stop.wakes(waker.clone());
        worker.board.wakes(waker.clone());
        Some(waker)
    }

    /// Starts the thread of one of `workers` beside the first one.
    ///
    /// # Errors
    /// [`DaemonError::Thread`].
    pub(super) fn seat<D: Device<Memory = Region> + Send + 'a>(
        self,
        scope: &'a Scope<'a, '_>,
        (number, workers): (usize, usize),
        disks: ToOpen<'a>,
    ) -> Result<Seat<'a, D>, DaemonError> {
        let (tell_opened, opened) = channel();
        let (post, posted) = sync_channel(1);
        let (tell, told) = sync_channel(1);
        let run = move || {
            // Nobody hears it where another disk has kept the server from starting.
            let drivers = disks.open_of((number, workers), |outcome| {
                let _ = tell_opened.send(outcome);
            });
            drop(tell_opened);
            self.work(posted.recv().ok()?, drivers, &tell)
        };
        let named = Builder::new().name(format!("worker {number}"));
        let thread = named.spawn_scoped(scope, run).map_err(DaemonError::Thread)?;
        Ok(Seat { thread, opened, post, told })
    }

    /// Runs the first worker on this thread, and gives each of the others its post, until the wish
    /// to stop or the end of one. `on_ready` is called when all can take clients.
    pub(super) fn serve<D: Device<Memory = Region> + Send + 'a>(
        self,
        scope: &'a Scope<'a, '_>,
        mut server: ChunkServer<D>,
        mut status: Option<StatusSocket>,
        beside: Beside,
        posts: Vec<(Seat<'a, D>, Post<D>)>,
        on_ready: impl FnOnce() -> Result<(), DaemonError>,
    ) -> Result<Served, DaemonError> {
        let ended = {
            let stop_at_end = StopAtEnd(self.stop);
            let mut threads: Vec<Thread<'_>> = Vec::new();
            let first = Worker { meter: server.meter(), ..Worker::default() };
            let others = posts.iter().map(|(_, post)| post.worker.clone());
            let workers: Vec<Worker> = std::iter::once(first.clone()).chain(others).collect();
            for (seat, own) in posts {
                let Seat { thread, post, told, .. } = seat;
                threads.push(thread);
                // Whoever does not take it, or gives no word, has panicked, which the end finds.
                if post.send(own).is_ok() {
                    told.recv().unwrap_or(Ok(()))?;
                }
            }
            let beside = beside.spawn(scope, workers, self.stop)?;
            let waker = self.wakes(&server, &first);
            waker.into_iter().zip(&status).for_each(|(waker, socket)| socket.wakes(waker));
            on_ready()?;
            let (mut told, mut nap) = (0, QUIET_WAIT);
            let file = self.config.qos.tenants_file.as_deref();
            let mut tenants = file.map(|path| TenantsFile::new(path, self.tenants_stamp));
            while !self.stop.is_stopped() && server.store_is_running() {
                server.turn_or_sleep(nap);
                server.log_health();
                nap = tell_figures(&server, &first, &mut told);
                if let Some((file, qos)) = tenants.as_mut().zip(server.reservations()) {
                    nap = nap.min(file.look(qos).into());
                }
                if let Some(socket) = &mut status {
                    socket.answer_when_asked(|| server.status());
                }
            }
            drop(stop_at_end);
            tracing::info!("stopping");
            // Before the workers: the last of those who ask the store waits for its end. Until then
            // they may wait for answers that this thread brings.
            while server.drives_store() && !beside.iter().all(ScopedJoinHandle::is_finished) {
                server.turn_or_wait();
            }
            for thread in beside {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            }
            let mut ended = vec![self.end(server)];
            for thread in threads {
                let end = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                ended.extend(end);
            }
            ended
        };
        together(ended)
    }

    /// A worker's thread, from its endpoint to its end. None when it could not begin.
    fn work<D: Device<Memory = Region>>(
        self,
        post: Post<D>,
        drivers: Vec<StoreDriver<Piece>>,
        tell: &SyncSender<Result<(), DaemonError>>,
    ) -> Option<Ended> {
        let Post { device, endpoint, store, mut desk, qos, worker, control, guard, .. } = post;
        let (resident, boards) = (post.resident, post.boards);
        let _stop_at_end = StopAtEnd(self.stop);
        // Whoever starts it waits for the word.
        let endpoint = match Endpoint::new(device, endpoint) {
            Ok(endpoint) => endpoint,
            Err(error) => {
                let _ = tell.send(Err(error.into()));
                return None;
            }
        };
        let server = ChunkServer::new(endpoint, store, self.service).driving(drivers);
        let server = server.resident_memory(resident).qos(qos);
        let server =
            server.interference(control).guard(guard).peers(self.config.service.peers.clone());
        let waker = self.wakes(&server, &worker);
        waker.into_iter().zip(&desk).for_each(|(waker, desk)| desk.wakes(waker));
        let mut server = server.count_in(Arc::clone(&worker.meter)).scrubbing(boards);
        let (mut told, mut nap) = (0, QUIET_WAIT);
        let _ = tell.send(Ok(()));
        while !self.stop.is_stopped() && server.store_is_running() {
            server.turn_or_sleep(nap);
            server.log_health();
            nap = tell_figures(&server, &worker, &mut told);
            if let Some(desk) = &mut desk {
                desk.answer_when_asked(|| server.status());
            }
        }
        Some(self.end(server))
    }

    /// Finishes what was taken, closes the links, and lets go of the store.
    fn end<D: Device<Memory = Region>>(self, mut server: ChunkServer<D>) -> Ended {
        let begun = Instant::now();
        let wait = Duration::from_millis(self.config.service.stop_wait_ms);
        let drained = server.drain(Nanos::from_millis(self.config.service.stop_wait_ms));
        if !server.store_is_running() {
            let sealed = Err(DaemonError::StoreEnded(self.config.store.data_dir.clone()));
            return Ended { stats: server.stats(), drained, sealed };
        }
        let left = wait.saturating_sub(begun.elapsed()).max(CLOSE_WAIT_MIN);
        let (stats, closed) = server.close_within(Nanos::from_millis(left.as_millis() as u64));
        let Closed { disk, sealed } = closed;
        let path = PathBuf::from(disk);
        let sealed = match sealed {
            Some(Ok(())) => Ok(()),
            Some(Err(source)) => Err(DaemonError::Failed { path, source }),
            None => Err(DaemonError::StoreHangs(path)),
        };
        Ended { stats, drained, sealed }
    }
}

/// The store is waited for this long at least, however much time the links took: usually it has
/// one flush to do, which takes seconds where others write a lot to the same disk.
const CLOSE_WAIT_MIN: Duration = Duration::from_secs(10);

/// What all workers did, or the first thing that went wrong.
fn together(ended: Vec<Ended>) -> Result<Served, DaemonError> {
    let mut served = Served { stats: ServerStats::default(), workers: Vec::new(), drained: true };
    for Ended { stats, drained, sealed } in ended {
        sealed?;
        served.stats += stats;
        served.workers.push(stats);
        served.drained &= drained;
    }
    Ok(served)
}
