//! The face that users link: endpoints, channels, buffers, driver.
