//! What every controller must keep, whatever the samples: random operations from a seed.
