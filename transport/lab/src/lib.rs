//! Where links, devices and the core are put together under one seed.
