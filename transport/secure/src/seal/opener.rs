//! Opens what the peer sends, or refuses it and counts why.

use super::aead::OpenKey;
use super::nonce;
use crate::limits::{ACK_WINDOW, CHUNK_WINDOW, HEADER_BYTES, PATHS_MAX};
use crate::mode::Sealing;
use crate::packet::{Mark, Stream};
use crate::peers::Role;
use crate::refusal::replay::Window;
use crate::refusal::stale_key::Age;
use crate::refusal::truncated::Parts;
use crate::refusal::{self, Refusal, Refusals};
use crate::schedule::{EpochSecret, LinkSecret, LinkTag};
use towpath_base::{Nanos, Time};

/// A packet of the peer that came for the first time and as it was sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Opened<'a> {
    /// What counts its number.
    pub stream: Stream,
    /// Its number.
    pub number: u64,
    /// What it carries behind the header.
    pub body: &'a mut [u8],
}

pub(super) struct Opener {
    peer: Role,
    link: LinkTag,
    sealing: Sealing,
    paths: u8,
    old_key: Nanos,
    /// Until when packets of the epoch before are opened.
    old: Option<(OpenKey, Time)>,
    current: OpenKey,
    next: OpenKey,
    /// Of the epoch of `next`.
    next_secret: EpochSecret,
    /// Of each stream, made when its first packet was opened: 1 KiB for the chunks of a path.
    windows: [Option<Window>; 2 * PATHS_MAX],
    refusals: Refusals,
}

impl Opener {
    pub(super) fn new(
        link: &LinkSecret,
        peer: Role,
        sealing: Sealing,
        old_key: Nanos,
        paths: u8,
    ) -> Self {
        let secret = link.direction(peer);
        let next_secret = secret.next();
        Self {
            peer,
            link: link.tag(),
            sealing,
            paths,
            old_key,
            old: None,
            current: OpenKey::new(&secret, sealing),
            next: OpenKey::new(&next_secret, sealing),
            next_secret,
            windows: [const { None }; 2 * PATHS_MAX],
            refusals: Refusals::default(),
        }
    }

    /// Opens a packet in place. What is cheap to check is checked first.
    pub(super) fn open<'a>(
        &mut self,
        now: Time,
        header: &[u8],
        body: &'a mut [u8],
    ) -> Result<(Opened<'a>, Mark), Refusal> {
        self.check_and_open(now, header, body).map_err(|refusal| self.refusals.count(refusal))
    }

    fn check_and_open<'a>(
        &mut self,
        now: Time,
        header: &[u8],
        body: &'a mut [u8],
    ) -> Result<(Opened<'a>, Mark), Refusal> {
        let Parts { header, body, tag } = refusal::truncated::check(header, body)?;
        let mark = Mark::parse(header);
        refusal::wrong_link::check(&mark, self.link, self.paths)?;
        refusal::reflected::check(&mark, self.peer)?;
        refusal::wrong_mode::check(&mark, self.sealing)?;
        let old = self.old.as_ref().filter(|(_, until)| now < *until);
        let age = refusal::stale_key::check(mark.epoch, self.newest(), old.is_some())?;
        let key = match (age, old) {
            (Age::Old, Some((old, _))) => old,
            (Age::Next, _) => &self.next,
            _ => &self.current,
        };
        let number = mark.stream.number(header);
        let window = &mut self.windows[mark.stream.index()];
        window.as_ref().map_or(Ok(()), |window| window.check(number))?;
        let nonce = nonce::of_received(mark.stream, mark.sender, number, key.iv());
        key.open(nonce, header, body, tag).map_err(|_| Refusal::BadTag)?;
        window.get_or_insert_with(|| window_of(mark.stream)).mark(number);
        if age == Age::Next {
            self.advance(now);
        }
        Ok((Opened { stream: mark.stream, number, body }, mark))
    }

    /// The peer has begun to use the next key.
    fn advance(&mut self, now: Time) {
        let after = self.next_secret.next();
        let next = OpenKey::new(&after, self.sealing);
        let current = core::mem::replace(&mut self.next, next);
        let old = core::mem::replace(&mut self.current, current);
        self.old = Some((old, Time(now.0.saturating_add(self.old_key.0))));
        self.next_secret = after;
    }

    /// The newest epoch that a packet was opened of, or the first.
    pub(super) fn newest(&self) -> u64 {
        self.next_secret.epoch() - 1
    }

    pub(super) fn refusals(&self) -> &Refusals {
        &self.refusals
    }
}

fn window_of(stream: Stream) -> Window {
    Window::new(match stream {
        Stream::Chunks(_) => CHUNK_WINDOW,
        Stream::Acks(_) => ACK_WINDOW,
    })
}

const _: () = assert!(HEADER_BYTES == 64, "the mark takes the last 8 of 64 bytes");
