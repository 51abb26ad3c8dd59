//! Messages that are sent before all of their bytes are there.

use super::Endpoint;
use super::commands::lkey_of;
use crate::growing::{SupplyFault, SupplyRejected};
use crate::ids::{LinkId, SendId};
use crate::page_crcs::PageCrcs;
use crate::payload::{Payload, Rejected, SendOptions};
use towpath_memory::{Region, Segment};
use towpath_proto::{ChannelId, SupplyError};
use towpath_verbs::Device;

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Sends a message of which the first segments are there, and `later_bytes` come behind them
    /// while it is being sent: [`supply`](Self::supply) gives these, in any order. What is there
    /// leaves as windows and credit allow. The channel must not be ordered.
    ///
    /// The message ends as every other does. It is delivered when all of it was supplied and has
    /// arrived; without all of its bytes it is abandoned at its deadline, or when it is
    /// [cancelled](Self::cancel). Give it a deadline: while it waits, it holds credit of its
    /// channel, up to half of it together with others like it, and its message id
    /// (docs/protocol.md section 6).
    ///
    /// ```
    /// # use std::net::{Ipv4Addr, SocketAddr};
    /// use std::time::Duration;
    /// # use towpath_transport::{Endpoint, EndpointConfig, Event, Nanos, UdpConfig};
    /// use towpath_transport::SendOptions;
    ///
    /// # let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    /// # let mut server = Endpoint::udp(udp(), EndpointConfig::new())?;
    /// # let mut client = Endpoint::udp(udp(), EndpointConfig::new())?;
    /// # client.connect(server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?)?;
    /// # let mut message = None;
    /// # while message.is_none() {
    /// #     let mut busy = server.turn(|_, event| if let Event::Message(whole) = event {
    /// #         message = Some(whole.to_vec());
    /// #     });
    /// #     busy |= client.turn(|client, event| match event {
    /// #         Event::Connected { link, .. } => drop(client.open_channel(link, false)),
    /// #         Event::ChannelOpened { link, channel, .. } => {
    /// let head = client.copy(b"header").expect("a free buffer");
    /// let options = SendOptions::new().timeout(Duration::from_secs(10));
    /// let send = client.send_growing(link, channel, head, 12_288, options).expect("room");
    /// // Later, as the bytes come: the end of the message may be there before its middle.
    /// for (offset, byte, bytes) in [(8_192, b'c', 4_096), (0, b'a', 8_192)] {
    ///     let piece = client.copy(&vec![byte; bytes]).expect("a free buffer");
    ///     client.supply(send, offset, piece).expect("it goes on");
    /// }
    /// #         }
    /// #         _ => {}
    /// #     });
    /// #     if !busy { client.wait(Nanos::from_micros(50)); }
    /// # }
    /// # let message = message.unwrap_or_default();
    /// assert!(message.starts_with(b"headera") && message.ends_with(b"c"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Rejected`] with the segments; nothing was sent. As for [`send`](Self::send), and
    /// [`SubmitError::Ordered`](crate::SubmitError::Ordered),
    /// [`SubmitError::BadGrowth`](crate::SubmitError::BadGrowth).
    pub fn send_growing(
        &mut self,
        link: LinkId,
        channel: ChannelId,
        payload: impl Into<Payload>,
        later_bytes: u32,
        options: SendOptions,
    ) -> Result<SendId, Rejected> {
        self.send_parts(link, channel, payload.into(), options, Some(later_bytes))
    }

    /// Gives bytes of a message that [grows](Self::send_growing). They begin at `offset` of those
    /// that were to come later, a multiple of 8, and end at one or with the message. They are sent
    /// from where they lie. Their buffer is dropped as soon as the peer has them and the device has
    /// returned them, or when the message ends: so a [frozen](crate::Chunk::freeze) piece of
    /// another message holds its credit no longer than that.
    ///
    /// What lies together in one buffer leaves in one piece, or in pieces of 16 KiB and more, which
    /// the receiver keeps where they land. Shorter buffers, and such as lie across the end of a
    /// piece in a gap that others were sent behind, leave in parts, which the receiver copies.
    ///
    /// # Errors
    /// [`SupplyRejected`] with the buffer; nothing was taken.
    pub fn supply(
        &mut self,
        send: SendId,
        offset: u32,
        piece: impl Into<Segment>,
    ) -> Result<(), SupplyRejected> {
        self.supply_with_crcs(send, offset, piece, PageCrcs::default())
    }

    /// As [`supply`](Self::supply), with the CRC32C of pages of the piece, from its first byte on:
    /// see [`Payload::push_with_crcs`].
    ///
    /// # Errors
    /// As [`supply`](Self::supply).
    pub fn supply_with_crcs(
        &mut self,
        send: SendId,
        offset: u32,
        piece: impl Into<Segment>,
        page_crcs: PageCrcs,
    ) -> Result<(), SupplyRejected> {
        let segment = piece.into();
        let known = lkey_of((&self.buffers, &self.rx), segment.region_id());
        let Some(lkey) = known else {
            return Err(SupplyRejected { segment, error: SupplyFault::NotRegistered });
        };
        let refused = |segment, error| SupplyRejected { segment, error: SupplyFault::from(error) };
        let conn = self.links.find_mut(send.link);
        let Some((link, sends)) = conn.and_then(|c| Some((c.link.as_mut()?, &mut c.sends))) else {
            return Err(refused(segment, SupplyError::Ended));
        };
        // More than that is out of range, whatever the message.
        let length = u32::try_from(segment.len()).unwrap_or(u32::MAX);
        if let Err(error) = link.supply(send.key, offset, length) {
            return Err(refused(segment, error));
        }
        sends.supply(send.key, offset, segment, (lkey, page_crcs));
        self.links.touch(send.link.index);
        Ok(())
    }
}
