//! Whoever repairs a file in a history: closes it, and brings parts up to date where they are.

use towpath_ec::ShardSet;

use super::super::heads::{File, Who};
use super::super::net::{Answer, Net as _, Op, all};
use super::history::{Known, SPAN};
use super::world::Way;
use crate::coder::{Coder, Units};
use crate::error::PartError;
use crate::layout::Layout;

/// Makes a newer layout, as a repair does.
pub(super) async fn close(way: &Way, known: &Known) {
    for _ in 0..2 {
        let now = way.world.borrow().now;
        let begin = now + way.world.borrow_mut().prng.below(SPAN - now.min(SPAN - 1));
        while way.world.borrow().now < begin {
            way.pause(8).await;
        }
        close_once(way, known).await;
    }
}

/// What each part says of itself.
async fn stat(way: &Way, layout: &Layout) -> Vec<Result<Answer, PartError>> {
    let asked = layout.nodes.iter().enumerate();
    all(asked.map(|(part, node)| way.ask(part, Op::Stat { chunk: node.chunk }))).await
}

pub(super) async fn close_once(way: &Way, known: &Known) -> Option<()> {
    let layout = known.borrow().layout.clone();
    let file = File::new(way, &layout);
    let state = file.settle_and_tell(Who::Repairer).await.ok()?;
    let mut versions = Vec::new();
    for told in stat(way, &layout).await {
        // Of a server that is gone it would have to make the part anew, and here it cannot.
        versions.push(told.ok()?.version);
    }
    let is_whole = |part: &usize| state.versions[*part] == Some(versions[*part]);
    let (sources, patients): (Vec<usize>, Vec<usize>) =
        (0..versions.len()).partition(|part| is_whole(part));
    if sources.len() < layout.policy.enough() {
        return None;
    }
    let generation = file.close(&state).await.ok()?;
    let part_bytes = layout.stripes().part_bytes() as usize;
    let mut units = Units::new(versions.len());
    for part in sources {
        let (chunk, offset) = (layout.nodes[part].chunk, 0);
        let answer = way.ask(part, Op::Read { chunk, offset, bytes: part_bytes }).await.ok()?;
        units.of[part] = (answer.version == versions[part]).then_some(answer.bytes);
    }
    let set: ShardSet = patients.iter().copied().collect();
    Coder::new(layout.policy).make(part_bytes, set, &mut units).ok()?;
    for part in patients.iter().copied() {
        let (chunk, offset, stamp) = (layout.nodes[part].chunk, 0, way.draw());
        let (bytes, version) = (units.of[part].take()?, versions[part]);
        let write = Op::Write { chunk, offset, bytes, version, stamp };
        versions[part] = way.ask(part, write).await.ok()?.version;
    }
    let ground = &mut *known.borrow_mut();
    ground.tally.closed += 1;
    ground.tally.mended += patients.len() as u64;
    let mut newer = layout.clone();
    newer.generation = generation + 1;
    for (node, version) in newer.nodes.iter_mut().zip(versions) {
        node.version = Some(version);
    }
    ground.layout = newer;
    Some(())
}
