//! What a store counts.

use super::error::ReadOnly;

/// Counters since the store was opened, and the space as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Commits that brought something to stable media.
    pub commits: u64,
    /// Creates committed.
    pub creates: u64,
    /// Deletes committed.
    pub deletes: u64,
    /// Writes committed.
    pub writes: u64,
    /// Bytes of those writes.
    pub write_bytes: u64,
    /// Reads served.
    pub reads: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Slices read a second time, because of an error or a wrong checksum.
    pub reads_retried: u64,
    /// Slices found damaged, by reads, merges and scrub; one found twice counts twice.
    pub slices_corrupt: u64,
    /// Slices of writes that did not have the writer's checksum.
    pub wire_corrupt: u64,
    /// Changes refused for want of space.
    pub no_space: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Slices that scrub has checked.
    pub slices_scrubbed: u64,
    /// Records that the last opening replayed.
    pub records_replayed: u64,
    /// Bytes of an unfinished commit that the last opening found at the end of the log.
    pub torn_tail_bytes: u64,
    /// Chunks now.
    pub chunks: u64,
    /// Bytes of the log in use.
    pub log_bytes: u64,
    /// Bytes of pages that hold slices.
    pub live_bytes: u64,
    /// Bytes of slices that can still be written: on free pages, and on those that the medium has
    /// room for, within the capacity.
    pub free_bytes: u64,
    /// Bytes of pages freed but still wanted by a commit or a reader.
    pub retired_bytes: u64,
    /// Bytes of slices that fit in all: the configured capacity, or what the medium has if that is
    /// less.
    pub capacity_bytes: u64,
    /// Bytes of slices of resident chunks that are in memory.
    pub resident_bytes: u64,
    /// The most that may be.
    pub resident_bytes_max: u64,
    /// Bytes of the disk: slices, log, map and all.
    pub raw_bytes: u64,
    /// Bytes of it that no slice can have.
    pub reserved_bytes: u64,
    /// Whether a failed flush, or changes lost to damage, have stopped all changes.
    pub failed: bool,
    /// Why that is, of one store.
    pub read_only: Option<ReadOnly>,
    /// The number of one store, which no other store has.
    pub store_id: u64,
}

impl std::ops::AddAssign for StoreStats {
    /// Counters of several stores, as those of the disks of a server, together.
    fn add_assign(&mut self, other: Self) {
        // Taken apart by name, so that a new counter cannot be forgotten.
        let Self {
            commits,
            creates,
            deletes,
            writes,
            write_bytes,
            reads,
            read_bytes,
            reads_retried,
            slices_corrupt,
            wire_corrupt,
            no_space,
            checkpoints,
            slices_scrubbed,
            records_replayed,
            torn_tail_bytes,
            chunks,
            log_bytes,
            live_bytes,
            free_bytes,
            retired_bytes,
            capacity_bytes,
            resident_bytes,
            resident_bytes_max,
            raw_bytes,
            reserved_bytes,
            failed,
            read_only,
            store_id,
        } = other;
        self.commits += commits;
        self.creates += creates;
        self.deletes += deletes;
        self.writes += writes;
        self.write_bytes += write_bytes;
        self.reads += reads;
        self.read_bytes += read_bytes;
        self.reads_retried += reads_retried;
        self.slices_corrupt += slices_corrupt;
        self.wire_corrupt += wire_corrupt;
        self.no_space += no_space;
        self.checkpoints += checkpoints;
        self.slices_scrubbed += slices_scrubbed;
        self.records_replayed += records_replayed;
        self.torn_tail_bytes += torn_tail_bytes;
        self.chunks += chunks;
        self.log_bytes += log_bytes;
        self.live_bytes += live_bytes;
        self.free_bytes += free_bytes;
        self.retired_bytes += retired_bytes;
        self.capacity_bytes += capacity_bytes;
        self.resident_bytes += resident_bytes;
        self.resident_bytes_max += resident_bytes_max;
        self.raw_bytes += raw_bytes;
        self.reserved_bytes += reserved_bytes;
        self.failed |= failed;
        self.read_only = self.read_only.or(read_only);
        self.store_id = if self.store_id == 0 { store_id } else { self.store_id };
    }
}
