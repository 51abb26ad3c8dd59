//! The chunk server: store, service, daemon.
