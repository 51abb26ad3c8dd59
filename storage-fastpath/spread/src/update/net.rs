//! What a change in place asks of servers, and how its answers are waited for.
//!
//! The steps of a change are futures over a [`Net`], which keeps no time and opens no socket: over
//! servers' clients they are waited for by a thread, and in tests they run in virtual time.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use towpath_fastpath::{ChunkId, Client};

use crate::error::PartError;

/// How long a change waits at most before it looks again.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// What the server of a part is asked.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Bytes of a chunk, of one version.
    Read { chunk: ChunkId, offset: u64, bytes: usize },
    /// The version of a chunk, and its length.
    Stat { chunk: ChunkId },
    /// Make a chunk.
    Create { chunk: ChunkId },
    /// Write bytes, where the chunk has that version. Whoever asks for the same change gives it the
    /// same stamp, so that it is made once.
    Write { chunk: ChunkId, offset: u64, bytes: Vec<u8>, version: u64, stamp: u64 },
}

/// What it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The version that the chunk has, or that the change made.
    pub(crate) version: u64,
    /// What was read.
    pub(crate) bytes: Vec<u8>,
    /// Of a stat the length of the chunk.
    pub(crate) len: u64,
}

/// An answer that is still to come. What was asked is on its way already.
pub(crate) type Asked<'a> = Pin<Box<dyn Future<Output = Result<Answer, PartError>> + 'a>>;

/// The servers of a file, by part.
pub(crate) trait Net {
    /// Asks the server of a part.
    fn ask(&self, part: usize, op: Op) -> Asked<'_>;

    /// Waits a little, longer the more tries there were.
    fn pause(&self, tries: u32) -> Pin<Box<dyn Future<Output = ()> + '_>>;

    /// A number drawn at random.
    fn draw(&self) -> u64;
}

/// Servers by their clients.
pub(super) struct Clients {
    pub(super) parts: Vec<Result<Client, PartError>>,
}

impl Net for Clients {
    fn ask(&self, part: usize, op: Op) -> Asked<'_> {
        let client = match self.parts.get(part) {
            Some(Ok(client)) => client,
            Some(Err(error)) => {
                let error = error.again();
                return Box::pin(async { Err(error) });
            }
            None => return Box::pin(async { Err(PartError::NotWhole) }),
        };
        let no_bytes = |version| Answer { version, ..Answer::default() };
        match op {
            Op::Read { chunk, offset, bytes } => {
                let asked = client.read_held(chunk, offset, bytes);
                Box::pin(async move {
                    let data = asked.await?;
                    let mut copied = vec![0; bytes];
                    data.copy_to(&mut copied);
                    let version = data.header().chunk_version;
                    Ok(Answer { version, bytes: copied, len: 0 })
                })
            }
            Op::Stat { chunk } => {
                let asked = client.stat(chunk);
                Box::pin(async move {
                    let info = asked.await?;
                    Ok(Answer { len: info.byte_len, ..no_bytes(info.version) })
                })
            }
            Op::Create { chunk } => {
                let asked = client.create_new(chunk);
                Box::pin(async move { Ok(no_bytes(asked.await?)) })
            }
            Op::Write { chunk, offset, bytes, version, stamp } => {
                let asked = client.write_as(chunk, offset, bytes, (version, stamp));
                Box::pin(async move { Ok(no_bytes(asked.await?)) })
            }
        }
    }

    fn pause(&self, tries: u32) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        let most = Duration::from_millis(1 << tries.min(10)).min(PAUSE_MAX);
        // Whoever conflicts must not do so again at the same moment.
        let span = most.mul_f64((self.draw() >> 11) as f64 / (1_u64 << 53) as f64);
        Box::pin(async move { std::thread::sleep(span) })
    }

    fn draw(&self) -> u64 {
        ChunkId::random().0 as u64
    }
}

/// Waits for all of them, which go on at the same time.
pub(super) async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut runs: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = runs.iter().map(|_| None).collect();
    poll_fn(|cx| {
        let mut is_ready = true;
        let running = runs.iter_mut().zip(&mut outputs).filter(|(_, output)| output.is_none());
        for (run, output) in running {
            match run.as_mut().poll(cx) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => is_ready = false,
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future in this thread.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}
