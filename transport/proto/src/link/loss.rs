//! What is lost on a path goes in line to be sent again.

use super::Link;
use crate::path::{Lost, TailProbe, What};
use towpath_base::Time;

/// What a path has lost.
#[derive(Clone, Copy, Default)]
struct Losses {
    chunks: u32,
    /// Chunks of data that one packet carries.
    singles: u32,
    bytes: u64,
    /// What is not in flight any more: also what was refused.
    gone_bytes: u64,
    /// Transmissions that the network has not lost.
    refused: u64,
}

impl Link {
    /// Declares lost what a gap shows. On a reliable carrier it was refused, which is no loss of
    /// the network.
    pub(super) fn find_losses(&mut self, now: Time, index: usize) {
        let losses = self.lose(index, Some(now));
        self.stats.losses_by_gap += u64::from(losses.chunks);
        self.stats.refused_by_peer += losses.refused;
        if losses.chunks == 0 {
            return;
        }
        if self.paths.is_in_use(index) {
            self.doubts.gap_at = Some(now);
            self.paths.ladder.loss.on_lost(losses.chunks);
            let mtu = self.paths[index].mtu.reckoned();
            self.flow.on_losses(now, mtu, (losses.chunks, losses.singles), losses.bytes);
        }
        self.suspect_mtu(now, index, false);
    }

    /// Everything in flight on a path counts as lost, and goes out again on others.
    pub(super) fn send_all_again(&mut self, index: usize) {
        let chunks = self.lose(index, None).chunks;
        self.stats.losses_by_timeout += u64::from(chunks);
        let path = &mut self.paths[index];
        if path.timing.tail_probe == TailProbe::Due {
            path.timing.tail_probe = TailProbe::Idle;
        }
        if !path.carrier.is_reliable() && self.paths.is_in_use(index) {
            // Those that were not lost are acknowledged yet, and then they do not count.
            self.paths.ladder.loss.on_lost(chunks);
        }
    }

    /// Puts in line what is lost on a path: what a gap shows at this time, or else everything that
    /// is outstanding.
    #[inline]
    fn lose(&mut self, index: usize, gap_at: Option<Time>) -> Losses {
        let Self { paths, flow, sends, control, .. } = self;
        let is_in_use = paths.is_in_use(index);
        let (header_charge, single_charge) = (flow.charge(0), flow.charge(flow.one_packet()));
        let around_bytes = flow.chunk_size.around_bytes();
        let (path, from) = (&mut paths[index], index as u8);
        let is_lossy = !path.carrier.is_reliable();
        let (mut losses, mtu) = (Losses::default(), &mut path.mtu);
        let take = |what: &What, charge: u32, gone: Lost<'_>| {
            losses.gone_bytes += u64::from(charge);
            // A probe that is too long for the path is lost for that, and says nothing else.
            if gap_at.is_none() || (is_lossy && !matches!(what, What::LongProbe(_))) {
                losses.chunks += 1;
                losses.bytes += u64::from(charge);
                let is_single = charge <= single_charge && matches!(what, What::Data);
                losses.singles += u32::from(is_single);
            } else {
                losses.refused += 1;
            }
            if is_lossy && is_in_use && matches!(what, What::Data) {
                mtu.on_lost(charge - header_charge + around_bytes);
            }
            match *what {
                _ if gone.is_copy => {}
                What::Nothing | What::Probe | What::LongProbe(_) => {}
                What::Data => sends.on_lost(gone.frames(), from),
                What::Control(key) => control.on_lost(key, from),
            }
        };
        match gap_at {
            Some(now) => path.tx.detect_losses(now, take),
            None => path.tx.time_out(take),
        }
        path.lost_chunks += u64::from(losses.chunks);
        flow.on_gone(losses.gone_bytes);
        paths.settle(index);
        losses
    }
}
