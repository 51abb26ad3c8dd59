//! The flags that say which device a tool uses, the same for all tools and those of perftest.

use clap::Args;
use towpath_transport::{DeviceChoice, DeviceName, Icrc};

/// The heading of these flags, and of others about the device.
pub const DEVICE: &str = "Network device";

/// Which device, which of its ports, and which address of that.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct DeviceArgs {
    /// RDMA device: roce (in userspace over UDP, needs no hardware), with the local addresses of
    /// several NICs roce:10.0.0.1,10.1.0.1, or a device that ibv_devices lists, such as mlx5_0;
    /// verbs is the first of those (they need a build with --features verbs)
    #[arg(
        short = 'd',
        long = "device",
        alias = "ib-dev",
        value_name = "DEV",
        default_value = "roce",
        help_heading = DEVICE
    )]
    pub device: DeviceName,
    /// Port of the RDMA device, from 1
    #[arg(short = 'i', long = "ib-port", value_name = "PORT", default_value_t = 1,
          help_heading = DEVICE,
          value_parser = clap::value_parser!(u8).range(1..))]
    pub ib_port: u8,
    /// Index of the address of an RDMA device, as show_gids lists them [default: the first IPv4
    /// address of RoCEv2, or else IPv6]
    #[arg(short = 'x', long = "gid-index", value_name = "INDEX", help_heading = DEVICE)]
    pub gid_index: Option<u32>,
    /// With -d roce: the peer has an RDMA NIC or the kernel's rxe. Takes UDP port 4791, and sends
    /// no runs of packets over IPv4, because such a peer would find their ICRC wrong
    #[arg(long, help_heading = DEVICE)]
    pub foreign_peers: bool,
    /// With -d roce: auto (packets over UC carry no ICRC where the peer says auto, too, and both
    /// send CRC32C of payloads) or always, for captures and comparisons
    #[arg(long, value_name = "WHEN", default_value_t = Icrc::Auto, help_heading = DEVICE)]
    pub icrc: Icrc,
}

impl DeviceArgs {
    /// What they ask for.
    #[must_use]
    pub fn choice(&self) -> DeviceChoice {
        let Self { device, ib_port, gid_index, foreign_peers, icrc } = self.clone();
        DeviceChoice { name: device, port: ib_port, gid_index, foreign_peers, icrc }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Tool {
        #[command(flatten)]
        device: DeviceArgs,
    }

    fn choice(words: &[&str]) -> Result<DeviceChoice, String> {
        let words = std::iter::once("tool").chain(words.iter().copied());
        let parsed = Tool::try_parse_from(words).map_err(|error| error.to_string())?;
        Ok(parsed.device.choice())
    }

    #[test]
    fn the_flags_are_those_of_perftest() {
        assert_eq!(choice(&[]).unwrap(), DeviceChoice::default());
        let name = "rxe0".parse().unwrap();
        let none = DeviceChoice::default();
        let wanted = DeviceChoice { name, port: 2, gid_index: Some(5), ..none };
        for words in [
            ["-d", "rxe0", "-i", "2", "-x", "5"],
            ["--ib-dev", "verbs:rxe0", "--ib-port", "2", "--gid-index", "5"],
        ] {
            assert_eq!(choice(&words).unwrap(), wanted);
        }
    }

    #[test]
    fn what_is_no_device_is_refused_with_what_would_be_one() {
        let text = choice(&["-d", "no such"]).unwrap_err();
        assert!(text.contains("ibv_devices"), "{text}");
        assert!(choice(&["--icrc", "never"]).unwrap_err().contains("auto or always"));
        assert!(choice(&["-i", "0"]).unwrap_err().contains("0 is not in 1.."));
    }
}
