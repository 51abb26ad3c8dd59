//! Fixed-layout read and write with checksums verified on receive.
