//! Settings of older versions, so that it can be said what became of them.

/// A setting of older versions.
pub(crate) struct Gone {
    name: &'static str,
    pub(crate) flag: &'static str,
    /// What to do in place of it.
    pub(crate) instead: &'static str,
}

/// All of them.
pub(crate) const GONE: [Gone; 5] = [
    Gone {
        name: "commit_batch_max",
        flag: "commit-batch-max",
        instead: "changes are committed together as they come; leave it out",
    },
    Gone {
        name: "commit_linger_us",
        flag: "commit-linger-us",
        instead: "changes are committed together as they come; leave it out",
    },
    Gone {
        name: "preallocate_bytes",
        flag: "preallocate-bytes",
        instead: "`preallocate` takes the room of `capacity_bytes` at once",
    },
    Gone {
        name: "segment_bytes",
        flag: "segment-bytes",
        instead: "the store is one file; leave it out",
    },
    Gone {
        name: "store_work",
        flag: "store-work",
        instead: "`drive_disk` says which thread does it",
    },
];

/// What to do in place of a setting of older versions.
pub(crate) fn gone(name: &str) -> Option<&'static str> {
    GONE.iter().find(|gone| gone.name == name).map(|gone| gone.instead)
}
