//! Hands waiting requests to the store, where it has room and there are buffers.

use towpath_fastpath::ErrorReply;
use towpath_fastpath::server::StorageRequest;
use towpath_rpc::{Fate, RpcServer};
use towpath_transport::{Buf, Class, Device, Endpoint, LinkId, Region, SendBuffers as _, Time};

use super::answer::{Answer, read_head_bytes, sketch_bytes};
use super::ask::{Asked, Job};
use super::clients::{Clients, Leave};
use super::errors::of_unsent;
use super::scheduler::{Due, Fit, Next};
use super::server::ChunkServer;
use crate::store::Fenced;
use crate::store::disks::Unsent;

/// What a request goes to the store with: leave of its session, and the buffer of a read.
type With = (Leave, Option<Buf>);

/// Why a request never goes to the store: the error that is answered, where somebody waits for it.
type Why = Option<ErrorReply>;

impl<D: Device<Memory = Region>> ChunkServer<D> {
    /// Hands waiting requests to the store, while there is room for them.
    pub(super) fn start_waiting(&mut self) {
        let now = self.endpoint.now();
        self.sched.begin();
        while self.store.has_room() {
            let Self { sched, store, rpc, clients, endpoint, .. } = self;
            let next = sched.next(now, |due, asked| {
                let target = asked.target();
                if !target.is_none_or(|of| store.has_room_for(due.class, of, due.kind.is_change()))
                {
                    return Fit::NoRoom;
                }
                match asked {
                    Asked::Job(job) => fit(now, job, due, (rpc, clients, endpoint)),
                    // Its bytes go on as copies, for which there must be room beside.
                    &Asked::Own { link, bytes: (.., byte_len), .. } => {
                        fit_read(endpoint, link, (byte_len, byte_len), Leave::default())
                    }
                    Asked::Stage { .. } | Asked::MayWrite { .. } | Asked::Unstage => Fit::NoRoom,
                }
            });
            match next {
                None => break,
                Some(Next::Goes { token, class, with }) => self.start(now, token, class, with),
                Some(Next::Ends(asked, None)) => self.stats.expired += self.give_up([asked]),
                Some(Next::Ends(asked, Some(error))) => {
                    self.stats.fenced += 1;
                    self.refuse(asked, error);
                }
            }
        }
        self.sched.end(now);
        self.stats.waiting_max = self.stats.waiting_max.max(self.sched.waiting() as u64);
    }

    /// Hands one request to the store.
    fn start(&mut self, now: Time, token: usize, class: Class, (leave, buf): With) {
        let Some(asked) = self.sched.get_mut(token) else { return };
        if let Asked::Job(job) = asked {
            job.leave = leave;
            job.trace.started.get_or_insert(now);
        }
        let target = asked.target();
        let sent = match asked.take_request(buf, self.open.spare()) {
            Some(request) => self.store.send(class, token as u64, request),
            None => Err(Unsent::Full),
        };
        if let Err(unsent) = sent
            && let Some(asked) = self.sched.take(token)
        {
            // No disk ever had it.
            self.refuse(asked, of_unsent(target, unsent));
        }
    }

    /// The store is not asked that, and has not been.
    fn refuse(&mut self, asked: Asked, error: ErrorReply) {
        match asked {
            Asked::Job(Job { responder, deadline, passed, .. }) => {
                let answer = Answer::Error(error).of_passed(passed.as_ref());
                self.answer(responder, deadline, answer);
            }
            Asked::Own { request, .. } => self.refuse_begun(request, Answer::Error(error)),
            Asked::Stage { .. } | Asked::MayWrite { .. } | Asked::Unstage => {}
        }
    }

    /// Nobody waits for it any more, and the store has not been asked; how many requests that were.
    pub(super) fn give_up(&mut self, asked: impl IntoIterator<Item = Asked>) -> u64 {
        let mut count = 0;
        for asked in asked {
            // What else there is is given up with its request.
            let Asked::Job(job) = asked else { continue };
            count += 1;
            self.rpc.abandon(&mut self.endpoint, job.responder, Fate::DidNotHappen);
        }
        count
    }
}

/// Whether a request of a client that the store has room for can go to it.
fn fit<D: Device<Memory = Region>>(
    now: Time,
    job: &Job,
    due: &Due,
    (rpc, clients, endpoint): (&RpcServer, &Clients, &Endpoint<D>),
) -> Fit<With, Why> {
    if job.may_be_given_up() && (now >= job.deadline || !rpc.is_wanted(&job.responder)) {
        return Fit::Ends(None);
    }
    let link = job.responder.link();
    // One that was passed on has had leave since it began.
    let leave = match due.kind.is_change() && job.passed.is_none() {
        true => clients.begin(link),
        false => Ok(Leave::default()),
    };
    match (leave, &job.ask.op) {
        (Err(Fenced), _) => Fit::Ends(Some(ErrorReply::Fenced)),
        (Ok(leave), StorageRequest::Read(header)) => {
            let room = (header.length as usize, read_head_bytes(header));
            fit_read(endpoint, link, room, leave)
        }
        (Ok(leave), StorageRequest::Sketch { range, .. }) => {
            let room = (range.length as usize, sketch_bytes(*range));
            fit_read(endpoint, link, room, leave)
        }
        (Ok(leave), _) => Fit::Goes((leave, None)),
    }
}

/// With a send buffer that has room for what is read: the store fills it, the network sends it.
/// There is none while the link that it is for holds its share.
fn fit_read<D: Device<Memory = Region>>(
    endpoint: &Endpoint<D>,
    link: LinkId,
    (byte_len, head_bytes): (usize, usize),
    leave: Leave,
) -> Fit<With, Why> {
    let buf = endpoint.buffers_of(link).alloc(byte_len).ok();
    let buf = buf.and_then(|mut buf| buf.set_len(byte_len).map(|()| buf).ok());
    // Never the last one: reads that hold all buffers would leave none for their answers.
    match buf.filter(|_| endpoint.alloc(head_bytes).is_ok()) {
        Some(buf) => Fit::Goes((leave, Some(buf))),
        None => Fit::NoBuffer,
    }
}
