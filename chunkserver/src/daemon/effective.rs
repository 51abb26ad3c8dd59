//! What the settings come to: workers, clients and addresses, where the settings leave them open.

use std::net::IpAddr;
use std::path::PathBuf;

use towpath_status::limits::STATUS_NAME;
use towpath_transport::{Class, DeviceName};

use super::config::{DaemonConfig, DeviceConfig, DriveDisk, StatusPlace};
use crate::service::cores_to_spare;

/// Most clients of each worker on the userspace NIC unless set: an idle one costs 100 KB of memory.
const LINKS_MAX_USERSPACE: u32 = 4096;

/// Most clients of each worker on an RDMA NIC unless set: each takes some 2,700 entries of a
/// completion queue that is made for the most.
const LINKS_MAX_RDMA: u32 = 32;

impl DaemonConfig {
    /// The address of the device: its own, or the one that clients set up their links on.
    #[must_use]
    pub fn effective_device_ip(&self) -> IpAddr {
        let DeviceConfig { device, device_ip, .. } = &self.device;
        device.ip().or(*device_ip).unwrap_or_else(|| self.network.listen.ip())
    }

    /// Most clients of each worker: what is set, or what fits the device.
    #[must_use]
    pub fn effective_links_max(&self) -> u32 {
        match self.network.links_max {
            0 if matches!(self.device.device, DeviceName::Roce(_)) => LINKS_MAX_USERSPACE,
            0 => LINKS_MAX_RDMA,
            links => links,
        }
    }

    /// Network threads: what is set; or one for each shard, where there are several; or one for
    /// each class. A single thread has all classes where it is to drive the disk, and where no core
    /// is to spare for more: further threads would only take cores from it and from the client.
    #[must_use]
    pub fn effective_workers(&self) -> u32 {
        match self.network.workers {
            Some(workers) => workers,
            None if self.store.shards > 1 => self.store.shards,
            None if self.network.drive_disk == DriveDisk::Inline || !cores_to_spare() => 1,
            None => Class::COUNT as u32,
        }
    }

    /// Whether network threads drive the stores.
    pub(super) fn drives_inline(&self) -> bool {
        match self.network.drive_disk {
            DriveDisk::Thread => false,
            DriveDisk::Inline => true,
            // A disk that hangs would keep a thread from the other disks, and from the network.
            DriveDisk::Auto if !self.store.more_data_dirs.is_empty() => false,
            DriveDisk::Auto => {
                self.store.shards > 1 || (self.effective_workers() == 1 && !cores_to_spare())
            }
        }
    }

    /// The path of the status socket, if there is to be one.
    #[must_use]
    pub fn status_path(&self) -> Option<PathBuf> {
        match &self.telemetry.status_socket {
            StatusPlace::DataDir => Some(self.store.data_dir.join(STATUS_NAME)),
            StatusPlace::Nowhere => None,
            StatusPlace::At(path) => Some(path.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_serves_all_classes_where_more_would_take_its_cores() {
        let of = |workers, drive_disk| {
            let mut config = DaemonConfig::default();
            (config.network.workers, config.network.drive_disk) = (workers, drive_disk);
            config
        };
        let fits = if cores_to_spare() { 3 } else { 1 };
        for drive_disk in [DriveDisk::Auto, DriveDisk::Thread] {
            assert_eq!(of(None, drive_disk).effective_workers(), fits);
        }
        assert_eq!(of(None, DriveDisk::Auto).drives_inline(), !cores_to_spare());
        let inline = of(None, DriveDisk::Inline);
        assert!(inline.effective_workers() == 1 && inline.drives_inline());
        let asked = of(Some(2), DriveDisk::Auto);
        assert!(asked.effective_workers() == 2 && !asked.drives_inline());
        let sharded = of(None, DriveDisk::Auto).with(|config| config.store.shards = 4);
        assert!(sharded.effective_workers() == 4 && sharded.drives_inline());
    }
}
