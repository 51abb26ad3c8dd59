//! What a driver of an [`Endpoint`](crate::Endpoint) must call, in which order, and what it may
//! rely on.
//!
//! An endpoint does nothing by itself. Its driver is the thread that calls it. Handles (the crate
//! `towpath-handle`) have a driver inside; whoever has an `Endpoint` is the driver.
//!
//! # A turn
//!
//! 1. [`poll`] takes in packets and completions, timers that are due, and peers that connect. It
//!    returns 0 when nothing happened.
//! 2. [`next_event`], called until it returns `None`, tells what became of that.
//! 3. The application acts: [`send`], [`release`] and so on. Nothing leaves yet.
//! 4. [`flush`] sends chunks, then acks, so that acks ride on answers.
//!
//! [`turn`](crate::Endpoint::turn) does all four and hands each event to a closure. It returns
//! false when nothing happened.
//!
//! # What the driver must do
//!
//! - Call the endpoint from one thread at a time.
//! - Keep the order of the steps, and take all events before the flush.
//! - Call `flush` in each turn, also in one without events: acks and retransmissions leave there.
//! - Begin the next turn at once while turns return true.
//! - Otherwise begin it when a packet comes, or at [`next_timeout`](crate::Endpoint::next_timeout).
//! - Give messages back: by `release`, or by dropping them on any thread. A message that is kept
//!   holds the credit of its channel and a receive buffer.
//!
//! There are three ways to wait for the next turn, each after a turn that returned false:
//!
//! - Do not wait: begin the next turn at once.
//! - Block in [`wait`](crate::Endpoint::wait).
//! - Wait in a loop of your own: call [`prepare_wait`](crate::Endpoint::prepare_wait), then wait
//!   until [`poll_fd`](crate::Endpoint::poll_fd) is readable (level-triggered), but no longer than
//!   `prepare_wait` says. Begin a turn after each wait, also when only time has passed.
//!
//! A driver in virtual time advances its clock to `next_timeout`, or to the next packet.
//!
//! # What the driver may rely on
//!
//! - Only `wait` blocks.
//! - A `poll` takes in at most
//!   [`progress_budget`](crate::EndpointConfig::progress_budget) packets.
//! - While packets come, timers that are due wait for 8 turns at most, and peers that connect wait
//!   for one turn.
//! - `wait`, and the descriptor, end early for packets, for peers that connect, for messages that
//!   other threads dropped, for a send buffer that was
//!   [wanted](crate::Endpoint::want_buffer), and for the [`waker`](crate::Endpoint::waker).
//! - Each message has one outcome: one [`Event::Sent`](crate::Event::Sent), whose buffers the
//!   device has let go.
//! - [`Event::LinkDown`](crate::Event::LinkDown) is the last event of a link, and follows the
//!   outcomes of its messages. Calls that name a link which is gone return an error.
//! - Events wait until they are taken. Nothing that a peer sends makes a call panic.
//! - Times are on the clock of the device: [`now`](crate::Endpoint::now).
//!
//! A driver that is late is taken for a slow network: after a pause of milliseconds the peer sends
//! again what it sees unanswered, and after
//! [`peer_timeout`](crate::LinkConfig::peer_timeout), 10 s by default, it ends the link.
//!
//! [`poll`]: crate::Endpoint::poll
//! [`next_event`]: crate::Endpoint::next_event
//! [`send`]: crate::Endpoint::send
//! [`release`]: crate::Endpoint::release
//! [`flush`]: crate::Endpoint::flush
