//! What threads tell the worker of an endpoint, without a lock, and what it opens for them.

use crate::egress::{Egress, Outgoing};
use crate::limits::COMMANDS_MAX;
use crate::ops::{Asked, GrantChange};
use crate::queue::{Receiver, Sender};
use crossbeam_queue::SegQueue;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use towpath_memory::{Region, SharedMemory};
use towpath_proto::{ChannelId, Class, DownReason, GrantId, LinkStats, Rights};
use towpath_transport::for_handles::Bell;
use towpath_transport::{
    ChannelError, Chunk, ConnectError, EndpointError, LaneError, LinkId, ListenError, Message,
    Peer, StreamId, SubmitError,
};

/// A command; each answer goes to a queue of its own.
pub(crate) enum Command {
    Listen {
        addr: SocketAddr,
        reply: Sender<Result<SocketAddr, ListenError>>,
    },
    Connect {
        addr: SocketAddr,
        class: Option<Class>,
        reply: Sender<Result<OpenLink, ConnectError>>,
    },
    Register {
        region: Region,
        reply: Sender<Result<(), EndpointError>>,
    },
    OpenChannel {
        link: LinkId,
        ordered: bool,
        reply: Sender<Result<OpenChannel, ChannelError>>,
    },
    CloseLink {
        link: LinkId,
    },
    Grant {
        link: LinkId,
        memory: SharedMemory,
        range: Range<usize>,
        rights: Rights,
        reply: Sender<Result<GrantId, LaneError>>,
    },
    Revoke {
        link: LinkId,
        grant: GrantId,
        reply: Sender<bool>,
    },
    Operate(Asked),
    Stats {
        link: LinkId,
        reply: Sender<Option<LinkStats>>,
    },
    Shutdown,
}

/// What the worker is told of a channel. Words of one thread are taken in their order.
pub(crate) enum Word {
    Send(Outgoing),
    /// Give up the message whose ticket has this number.
    Cancel(u64),
    /// The channel has another weight.
    Weigh,
    /// Close the channel behind what was posted.
    Leave,
}

/// What threads tell the worker, and how far the worker is.
pub(crate) struct Inbox {
    commands: SegQueue<Command>,
    words: SegQueue<(Arc<Egress>, Word)>,
    bell: Arc<Bell>,
    /// What drives the endpoint, where handles do.
    driver: OnceLock<Weak<dyn Driver>>,
    /// The worker closes its links.
    has_ended: AtomicBool,
    has_panicked: AtomicBool,
    /// The worker looks at this no more.
    is_gone: AtomicBool,
}

/// What has the worker look at its inbox.
pub(crate) trait Driver: Send + Sync {
    fn nudge(&self);
}

impl Inbox {
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        Self {
            commands: SegQueue::new(),
            words: SegQueue::new(),
            bell,
            driver: OnceLock::new(),
            has_ended: AtomicBool::new(false),
            has_panicked: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        }
    }

    /// Handles drive the worker by this from now on.
    pub(crate) fn set_driver(&self, driver: Weak<dyn Driver>) {
        // It is set once.
        let _ = self.driver.set(driver);
    }

    /// Sends a command. A worker that has ended refuses it.
    ///
    /// Who asks bounds how many commands wait: a thread that waits for the answer asks for nothing
    /// else meanwhile, and a link is closed once. For all others see
    /// [`takes_commands`](Self::takes_commands).
    pub(crate) fn command(&self, command: Command) {
        self.commands.push(command);
        self.ring();
    }

    /// Whether one more command may be sent that nobody waits for.
    pub(crate) fn takes_commands(&self) -> bool {
        self.commands.len() < COMMANDS_MAX
    }

    /// Posts a message, if there is room.
    pub(crate) fn post(
        &self,
        egress: &Arc<Egress>,
        message: Outgoing,
    ) -> Result<(), (Outgoing, SubmitError)> {
        if let Err(error) = egress.reserve() {
            let error = if self.has_ended() { SubmitError::ShutDown } else { error };
            return Err((message, error));
        }
        self.tell(egress, Word::Send(message));
        Ok(())
    }

    /// Tells the worker something of a channel.
    pub(crate) fn tell(&self, egress: &Arc<Egress>, word: Word) {
        self.words.push((Arc::clone(egress), word));
        self.ring();
    }

    fn ring(&self) {
        match self.driver.get().and_then(Weak::upgrade) {
            Some(driver) => driver.nudge(),
            None => self.bell.ring(),
        }
        if self.is_gone() {
            // The worker may have missed it.
            self.refuse_all();
        }
    }

    /// Sets the weight of a channel. Only the last weight counts, so it takes no room.
    pub(crate) fn weigh(&self, egress: &Arc<Egress>, weight: u16) {
        if !egress.is_sealed() && egress.set_weight(weight) {
            self.tell(egress, Word::Weigh);
        }
    }

    /// Takes nothing more on a channel, and has it closed behind what was posted.
    pub(crate) fn leave(&self, egress: &Arc<Egress>) {
        egress.seal();
        self.tell(egress, Word::Leave);
    }

    pub(crate) fn next_command(&self) -> Option<Command> {
        self.commands.pop()
    }

    pub(crate) fn next_word(&self) -> Option<(Arc<Egress>, Word)> {
        self.words.pop()
    }

    /// How many words there are.
    pub(crate) fn words(&self) -> usize {
        self.words.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty() && self.commands.is_empty()
    }

    /// What ends the worker's sleep.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        &self.bell
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    pub(crate) fn has_panicked(&self) -> bool {
        self.has_panicked.load(Ordering::SeqCst)
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::SeqCst)
    }

    /// The worker closes its links.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// The worker has panicked.
    pub(crate) fn panic(&self) {
        self.has_panicked.store(true, Ordering::SeqCst);
    }

    /// The worker looks at this no more: refuses what is left, and what comes later.
    pub(crate) fn abandon(&self) {
        self.is_gone.store(true, Ordering::SeqCst);
        self.refuse_all();
    }

    fn refuse_all(&self) {
        while let Some((_, word)) = self.words.pop() {
            if let Word::Send(message) = word {
                message.refuse();
            }
        }
        while let Some(command) = self.commands.pop() {
            if let Command::Operate(asked) = command {
                asked.refuse(LaneError::ShutDown);
            }
        }
    }
}

/// A link that is up, for its handles. One that nobody gets a handle of is closed.
pub(crate) struct OpenLink {
    pub(crate) id: LinkId,
    pub(crate) peer: Peer,
    /// Channels that the peer opens.
    pub(crate) channels: Receiver<OpenChannel>,
    /// What the peer grants.
    pub(crate) changes: Receiver<GrantChange>,
    /// Set when the link goes down.
    pub(crate) down: Arc<OnceLock<DownReason>>,
    pub(crate) inbox: Arc<Inbox>,
    /// Somebody has a handle.
    pub(crate) is_claimed: bool,
    pub(crate) is_closing: AtomicBool,
}

impl OpenLink {
    /// Has the link closed.
    pub(crate) fn close(&self) {
        if !self.is_closing.swap(true, Ordering::Relaxed) {
            self.inbox.command(Command::CloseLink { link: self.id });
        }
    }
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        if !self.is_claimed {
            self.close();
        }
    }
}

/// A channel that is open, for its handles. It is closed with the last of them.
///
/// Arrivals are bounded by the credit of the channel: each message and chunk holds some.
pub(crate) struct OpenChannel {
    pub(crate) id: ChannelId,
    pub(crate) ordered: bool,
    pub(crate) incoming: Receiver<Incoming>,
    pub(crate) egress: Arc<Egress>,
    pub(crate) inbox: Arc<Inbox>,
}

impl Drop for OpenChannel {
    fn drop(&mut self) {
        self.inbox.leave(&self.egress);
    }
}

/// What arrives on a channel.
#[derive(Debug)]
pub enum Incoming {
    /// A whole message.
    Message(Message),
    /// The next piece of a message that is longer than
    /// [`EndpointConfig::whole_bytes_max`](towpath_transport::EndpointConfig::whole_bytes_max), in
    /// order. It comes only where
    /// [`EndpointConfig::streams`](towpath_transport::EndpointConfig::streams) is on.
    StreamChunk {
        /// Its message.
        stream: StreamId,
        /// The piece.
        chunk: Chunk,
        /// Bytes of the whole message.
        message_len: u32,
        /// No more pieces follow: the message was whole.
        end: bool,
    },
    /// The rest of a streamed message will not come: undo what its pieces did.
    StreamAborted {
        /// Its message.
        stream: StreamId,
    },
}
