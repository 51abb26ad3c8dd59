//! The command that shows what a store holds, while no server has it.

use std::cell::RefCell;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};

use super::error::DaemonError;
use super::stopped::Stores;
use super::store::open_disk;
use crate::store::core::{DumpRow, DumpWanted, dump_core};
use crate::store::{ChunkId, ChunkStat};

/// Rows unless more are asked for: some screens.
const ROWS_DEFAULT: u64 = 1000;

const AFTER_HELP: &str = "\
Nothing is changed. The server must not run. Rows: superblocks, damage, and chunks, or with
--slices those of one chunk; with --log the records since the newest checkpoint come first. What is
shown comes from bytes that may be damaged: `check` says what of it can be relied on. Of several
stores the rows of each follow one that names its directory.

Exit codes, of several stores the highest one:
  0    all rows that were asked for, or as many as --limit
  2    wrong flag
  4    the store cannot be read (no store, locked, of a newer version); rows before that are shown";

/// What `dump` is asked.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(super) struct StoreDump {
    #[command(flatten)]
    stores: Stores,
    /// Show the records of the log since the newest checkpoint too.
    #[arg(long)]
    log: bool,
    /// Show where the slices of this chunk lie, in place of all chunks.
    #[arg(long, value_name = "CHUNK")]
    slices: Option<ChunkId>,
    /// Most rows of a store.
    #[arg(long, value_name = "N", default_value_t = ROWS_DEFAULT)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

impl StoreDump {
    /// Prints the rows.
    ///
    /// # Errors
    /// Whatever keeps the store from being read, after the rows before it; of several
    /// [`DaemonError::Stores`].
    pub(super) fn run(&self) -> Result<(), DaemonError> {
        let out = BufWriter::new(io::stdout().lock());
        self.run_to(out)
    }

    fn run_to(&self, out: impl Write) -> Result<(), DaemonError> {
        let out = RefCell::new(out);
        let say = |why: &str| {
            writeln!(out.borrow_mut(), "{why}")?;
            out.borrow_mut().flush()
        };
        let ended = self.stores.each(|dir| self.run_in(dir, &mut *out.borrow_mut()), say);
        match ended {
            // Whoever reads has enough.
            Err(DaemonError::Ready(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            ended => ended,
        }
    }

    fn run_in(&self, dir: &Path, mut out: impl Write) -> Result<(), DaemonError> {
        if self.stores.dirs.len() > 1 {
            self.print(&mut out, &json!({ "row": "store", "dir": dir.display().to_string() }))
                .map_err(DaemonError::Ready)?;
        }
        let (mut disk, _) = open_disk(dir, None)?;
        let wanted = DumpWanted { log: self.log, slices: self.slices };
        let (mut left, mut was_cut, mut written) = (self.limit, false, Ok(()));
        let dumped = dump_core(&mut *disk, wanted, &mut |row| {
            was_cut = left == 0;
            if was_cut {
                return false;
            }
            left -= 1;
            written = self.print(&mut out, &object(&row));
            written.is_ok()
        });
        let end = |out: &mut dyn Write| {
            if was_cut {
                let (limit, json) = (self.limit, self.stores.json);
                match json {
                    true => writeln!(out, "{}", json!({ "row": "cut", "limit": limit }))?,
                    false => writeln!(out, "more rows are left out: --limit {limit}")?,
                }
            }
            out.flush()
        };
        written.and_then(|()| end(&mut out)).map_err(DaemonError::Ready)?;
        dumped.map_err(|source| DaemonError::Store { path: dir.into(), source })
    }

    fn print(&self, out: &mut impl Write, row: &Value) -> io::Result<()> {
        if self.stores.json {
            return writeln!(out, "{row}");
        }
        let Value::Object(fields) = row else { return Ok(()) };
        let shown = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut line = shown(&row["row"]);
        for (name, value) in fields.iter().filter(|(name, _)| *name != "row") {
            line.push_str(&format!(" {name}={}", shown(value)));
        }
        writeln!(out, "{line}")
    }
}

/// A row with its fields, whose names stay.
fn object(row: &DumpRow) -> Value {
    match row {
        DumpRow::Superblock {
            generation,
            store_id,
            page_count,
            log_pages,
            map_pages,
            data_pages,
            written_pages,
            is_sparse,
            log_page,
            sequence,
        } => json!({
            "row": "superblock",
            "generation": generation,
            "store_id": format!("{store_id:016x}"),
            "page_count": page_count,
            "log_pages": log_pages,
            "map_pages": map_pages,
            "data_pages": data_pages,
            "written_pages": written_pages,
            "sparse": is_sparse,
            "log_page": log_page,
            "sequence": sequence,
        }),
        DumpRow::Damage(damage) => json!({
            "row": "damage",
            "kind": damage.kind.name(),
            "offset": damage.offset,
            "text": damage.to_string(),
        }),
        DumpRow::Record {
            offset,
            sequence,
            durable_sequence,
            chunk,
            kind,
            at,
            byte_len,
            extents,
        } => json!({
            "row": "record",
            "sequence": sequence,
            "durable_sequence": durable_sequence,
            "kind": kind,
            "chunk": chunk.to_string(),
            "at": at,
            "byte_len": byte_len,
            "extents": extents,
            "offset": offset,
        }),
        DumpRow::Chunk(stat, slices) => chunk_object(stat, *slices),
        DumpRow::Slice { slice, page, offset, crc } => json!({
            "row": "slice",
            "slice": slice,
            "page": page,
            "offset": offset,
            "crc": format!("{crc:08x}"),
        }),
    }
}

fn chunk_object(stat: &ChunkStat, slices: u64) -> Value {
    json!({
        "row": "chunk",
        "chunk": stat.chunk.to_string(),
        "byte_len": stat.byte_len,
        "limit_bytes": stat.limit_bytes,
        "version": stat.version,
        "chain_version": stat.chain,
        "slices": slices,
        "unfinished": stat.unfinished,
        "resident": stat.resident,
        "suspect": stat.suspect,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon::args::{Program, StoppedStore};
    use crate::daemon::store::open_store;
    use crate::daemon::{DaemonConfig, StoreConfig};

    fn parse(args: &[&str]) -> Option<StoreDump> {
        let args = ["towpath-chunkserver", "dump"].iter().chain(args).map(Into::into);
        match Program::read(args).ok()?.command {
            Some(StoppedStore::Dump(dump)) => Some(dump),
            _ => None,
        }
    }

    fn dump(args: &[&str]) -> (Vec<String>, Result<(), DaemonError>) {
        let mut out = Vec::new();
        let result = parse(args).expect("sound flags").run_to(&mut out);
        let text = String::from_utf8(out).expect("text");
        (text.lines().map(String::from).collect(), result)
    }

    #[test]
    fn rows_are_printed_as_text_and_as_objects_up_to_the_limit() {
        let dir = tempfile::tempdir().expect("room for a folder");
        let path = dir.path().to_str().expect("a plain path");
        let config = StoreConfig {
            data_dir: dir.path().into(),
            capacity_bytes: 1 << 20,
            log_bytes: 1 << 20,
            ..DaemonConfig::default().store
        };
        let (stores, _) = open_store::<Vec<u8>>(&config, 1).expect("a new store");
        for store in stores {
            assert_eq!(store.stop_within(std::time::Duration::from_secs(60)), Some(Ok(())));
        }
        let (text, result) = dump(&[path]);
        assert!(result.is_ok() && text.len() == 2, "{text:?}");
        assert!(
            text[0].starts_with("superblock ") && text[0].contains(" generation=2 "),
            "{text:?}"
        );
        let (lines, result) = dump(&[path, "--json", "--limit", "1"]);
        assert!(result.is_ok());
        let rows: Vec<Value> =
            lines.iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
        assert_eq!((&rows[0]["row"], &rows[0]["generation"]), (&json!("superblock"), &json!(2)));
        assert_eq!(rows[1..], [json!({ "row": "cut", "limit": 1 })]);
        let (lines, result) = dump(&[path, "--json", "--limit", "2"]);
        assert!(result.is_ok() && lines.len() == 2, "nothing was cut: {lines:?}");
        let none = tempfile::tempdir().expect("room for a folder");
        let (lines, result) = dump(&[none.path().to_str().expect("a plain path")]);
        let error = result.expect_err("there is no store");
        assert!(lines.is_empty() && error.exit_code() == 4, "{error}");
        let no_dir = none.path().join("none");
        let (lines, result) = dump(&[path, no_dir.to_str().expect("a plain path"), "--json"]);
        assert_eq!(result.expect_err("one is no directory").exit_code(), 4);
        let rows: Vec<Value> =
            lines.iter().map(|line| serde_json::from_str(line).expect("an object")).collect();
        assert_eq!(rows[0], json!({ "row": "store", "dir": path }));
        assert_eq!((&rows[1]["row"], &rows[3]["row"]), (&json!("superblock"), &json!("store")));
        assert!(rows[4]["error"].is_string() && rows[4]["dir"].is_string(), "{rows:?}");
        assert!(parse(&[path, "--limit", "0"]).is_none());
    }
}
