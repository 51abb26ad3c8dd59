//! The RDMA verbs contract: words, device and packet-link traits.
