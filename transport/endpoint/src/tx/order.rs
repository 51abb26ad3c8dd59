//! The order in which links of several classes hand work to the device.

use crate::conn::Conn;
use std::collections::VecDeque;
use towpath_proto::{AtDevice, Class, ClassLine, ClassOrder};

/// Which links wait for their turn, and what the device has of each class.
pub(crate) struct Order {
    classes: ClassLine,
    device: AtDevice,
    lines: [VecDeque<u16>; Class::COUNT],
    /// Links that are up.
    up: [usize; Class::COUNT],
}

impl Order {
    pub(crate) fn new(order: ClassOrder, ahead_bytes: u64) -> Self {
        Self {
            classes: ClassLine::new(order),
            device: AtDevice { bytes: [0; Class::COUNT], ahead_bytes },
            lines: [const { VecDeque::new() }; Class::COUNT],
            up: [0; Class::COUNT],
        }
    }

    /// Whether there are links of several classes; else there is nothing to put in order.
    pub(crate) fn is_needed(&self) -> bool {
        self.up.iter().filter(|&&count| count > 0).count() > 1
    }

    pub(crate) fn joined(&mut self, class: Class) {
        self.up[class.index()] += 1;
    }

    /// A link that was up is not any more, and the device has lost what it had of it.
    pub(crate) fn left(&mut self, conn: &mut Conn) {
        let class = conn.class.class.index();
        self.up[class] = self.up[class].saturating_sub(1);
        self.count(conn, 0);
    }

    /// Takes in what the device has of a link now. On RC a completion is the peer's acknowledgement
    /// and a stream has none: what they have is not counted.
    pub(crate) fn recount(&mut self, conn: &mut Conn) {
        let bytes = conn.uc_bytes_at_device();
        self.count(conn, bytes);
    }

    fn count(&mut self, conn: &mut Conn, bytes: u64) {
        let of_class = &mut self.device.bytes[conn.class.class.index()];
        *of_class = of_class.saturating_sub(conn.turn.counted_bytes) + bytes;
        conn.turn.counted_bytes = bytes;
    }

    /// A link may have something to send.
    pub(crate) fn line_up(&mut self, conn: &mut Conn) {
        let class = conn.class.class;
        if !std::mem::replace(&mut conn.turn.is_in_line, true) {
            self.lines[class.index()].push_back(conn.id.index);
        }
        self.classes.enter(class);
    }

    /// The link whose turn it is, and its class; it is not in line any more.
    pub(crate) fn turn(&mut self) -> Option<(Class, u16)> {
        loop {
            let class = self.classes.turn(&self.device)?;
            match self.lines[class.index()].pop_front() {
                Some(index) => return Some((class, index)),
                None => self.classes.served(class, 0, false),
            }
        }
    }

    /// What the turn brought; with `more` the link is in line again, behind the others.
    pub(crate) fn served(&mut self, class: Class, index: u16, bytes: u64, more: bool) {
        let line = &mut self.lines[class.index()];
        if more {
            line.push_back(index);
        }
        self.classes.served(class, bytes, !line.is_empty());
    }

    /// Empties the lines.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = u16> {
        self.lines.iter_mut().flat_map(|line| line.drain(..))
    }
}
