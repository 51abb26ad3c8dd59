//! `towpath get`: a chunk becomes a file.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use towpath_fastpath::control::ChunkInfo;
use towpath_fastpath::{ChunkId, HedgeConfig, ReadData};

use super::output::Output;
use super::{HedgeReport, ResidentReport, TransferReport, open, open_hedged};
use crate::cli::args::{GetArgs, HedgeArgs, LinkArgs, ServerArgs};
use crate::cli::error::CliError;
use crate::cli::interrupt::Interrupt;
use crate::cli::progress::Progress;
use crate::cli::session::{Pipeline, Server, SessionError, Source};
use crate::cli::{print_json, print_text};

/// Bytes in the order in which they came, made into bytes in the order in which they are written.
#[derive(Debug)]
struct InOrder {
    output: Output,
    next: u64,
    /// What came early: no more than reads run ahead.
    early: BTreeMap<u64, Vec<u8>>,
}

impl InOrder {
    fn take(&mut self, offset: u64, data: &ReadData) -> Result<(), CliError> {
        if offset != self.next {
            self.early.insert(offset, data.to_vec());
            return Ok(());
        }
        data.parts().try_for_each(|part| self.output.write(part))?;
        self.next += data.len() as u64;
        while let Some(bytes) = self.early.remove(&self.next) {
            self.output.write(&bytes)?;
            self.next += bytes.len() as u64;
        }
        Ok(())
    }
}

/// Fetches a chunk into a file, or to stdout.
pub(crate) fn get(args: &GetArgs, chunk: ChunkId, interrupt: &Interrupt) -> Result<(), CliError> {
    let output = Output::create(&args.file, args.force)?;
    let to_stdout = matches!(output, Output::Stdout);
    let hedge = match &args.hedge.hedge {
        None => None,
        Some(replica) => {
            let HedgeArgs { hedge_after, hedge_budget, .. } = args.hedge;
            let config = HedgeConfig::new().after(hedge_after).budget_percent(hedge_budget);
            Some((Server::find(Some(replica))?, config))
        }
    };
    let mut session = open_hedged(&args.server, Some(args.pipeline), hedge, interrupt)?;
    if let Some((Server(replica), _)) = hedge {
        let wanted = session.stat(chunk)?.byte_len;
        let found = stat_at(args, replica, chunk, interrupt)?;
        if found != wanted {
            return Err(SessionError::ReplicaDiffers { replica, wanted, found }.into());
        }
    }
    let pipeline = Pipeline::fitting(&mut session, args.pipeline.depth, args.pipeline.op_size)?;
    let began = session.now();
    let ChunkInfo { byte_len: whole, resident, .. } = session.stat(chunk)?;
    // Only requests are hedged.
    let resident = resident && args.hedge.hedge.is_none();
    let source = Source { chunk, resident };
    let mut progress = Progress::bytes("get", whole);
    let mut in_order = InOrder { output, next: 0, early: BTreeMap::new() };
    session.read_range(source, 0..whole, pipeline, |offset, data| {
        in_order.take(offset, data)?;
        progress.at(in_order.next);
        Ok::<(), CliError>(())
    })?;
    drop(progress);
    in_order.output.finish()?;
    let seconds = session.now().since(began).as_secs_f64();
    session.close()?;
    let hedge = args.hedge.hedge.as_ref().map(|_| HedgeReport::from(session.hedge_stats()));
    // The bytes are what stdout is for.
    if to_stdout {
        return Ok(());
    }
    if !args.server.link.json {
        return hedge.map_or(Ok(()), |hedge| print_text(&hedge.text()));
    }
    let resident = resident.then(|| ResidentReport::from(session.resident_stats()));
    let report = TransferReport::of(&session, chunk, (whole, seconds), hedge);
    print_json(&TransferReport { resident, ..report })
}

/// The length of the chunk at the replica.
fn stat_at(
    args: &GetArgs,
    replica: SocketAddr,
    chunk: ChunkId,
    interrupt: &Interrupt,
) -> Result<u64, CliError> {
    // The replica need not know of the tenant: it is asked for what is late, on nobody's account.
    let link = LinkArgs { tenant: None, ..args.server.link.clone() };
    let mut session =
        open(&ServerArgs { server: Some(replica.to_string()), link }, None, interrupt)?;
    let byte_len = session.stat(chunk)?.byte_len;
    session.close()?;
    Ok(byte_len)
}
