//! Studies of the cluster.

pub mod fairness;
pub mod incast;
