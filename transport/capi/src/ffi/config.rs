//! How an endpoint is set up.

use super::guard::{guard, slice, status, text, write};
use super::types::{tow_pool, tow_profile, tow_setting, tow_status};
use crate::fault::Fault;
use crate::inner::Nic;
use std::ffi::c_char;
use std::net::IpAddr;
use towpath_transport::{
    AppProtocol, Endpoint, EndpointConfig, EndpointError, EngineOptions, Fallback, Nanos,
    PortChoice, SharedDevice, UdpConfig, roce_udp,
};

/// Kinds of send buffers at most: each is a registered region, of which an endpoint has 256.
const POOLS_MAX: usize = 64;

/// Bytes of a send buffer at most: they are counted in 32 bits, and rounded up to pages.
const BUF_BYTES_MAX: usize = 1 << 31;

/// How an endpoint is set up. Belongs to one thread at a time; endpoints keep nothing of it.
#[derive(Clone)]
#[expect(non_camel_case_types, reason = "this is the name that C programs write")]
pub struct tow_config {
    endpoint: EndpointConfig,
    udp_port: u16,
    foreign_peers: bool,
    engine_thread: bool,
}

impl tow_config {
    pub(super) fn of(profile: tow_profile) -> Self {
        let endpoint = match profile {
            tow_profile::TOW_PROFILE_DEFAULT => EndpointConfig::new(),
            tow_profile::TOW_PROFILE_THROUGHPUT => EndpointConfig::throughput(),
            tow_profile::TOW_PROFILE_LATENCY => EndpointConfig::latency(),
            tow_profile::TOW_PROFILE_MANY_LINKS => EndpointConfig::many_links(),
            tow_profile::TOW_PROFILE_SMALL_MEMORY => EndpointConfig::small_memory(),
        };
        // Messages come whole here: who sends longer ones is told so.
        Self {
            endpoint: endpoint.streams(false),
            udp_port: 0,
            foreign_peers: false,
            engine_thread: false,
        }
    }

    /// An endpoint on this address, set up like this.
    pub(super) fn endpoint(&self, ip: IpAddr) -> Result<Endpoint<Nic>, EndpointError> {
        let port = match self.udp_port {
            0 => PortChoice::Ephemeral,
            port => PortChoice::Exact(port),
        };
        let udp = UdpConfig::new(ip).port(port).foreign_peers(self.foreign_peers);
        let device = roce_udp(udp, &self.endpoint)?;
        let nic = if self.engine_thread {
            let engine = SharedDevice::spawn(device, EngineOptions::new());
            Nic::Right(engine.map_err(EndpointError::Thread)?)
        } else {
            Nic::Left(device)
        };
        Endpoint::new(nic, self.endpoint.clone())
    }

    fn change(&mut self, change: impl FnOnce(EndpointConfig) -> EndpointConfig) {
        self.endpoint = change(std::mem::take(&mut self.endpoint));
    }

    fn set(&mut self, setting: tow_setting, value: u64) -> Result<(), Fault> {
        let short = || {
            let fits = u32::try_from(value);
            fits.map_err(|_| Fault::argument(format!("{value} is too large for this setting")))
        };
        let whether = || match value {
            0 | 1 => Ok(value == 1),
            _ => Err(Fault::argument(format!("{value} is neither 0 nor 1"))),
        };
        match setting {
            tow_setting::TOW_LINKS_MAX => {
                let links = short()? as usize;
                self.change(|config| config.links_max(links));
            }
            tow_setting::TOW_WHOLE_BYTES_MAX => {
                let bytes = short()?;
                self.change(|config| config.whole_bytes_max(bytes));
            }
            tow_setting::TOW_QUOTA_CHUNKS => {
                let chunks = short()?;
                self.change(|config| config.quota_chunks(chunks));
            }
            tow_setting::TOW_CREDIT_TOTAL => {
                let chunks = short()?;
                self.change(|config| config.credit_total(chunks));
            }
            tow_setting::TOW_RECEIVES_READY => {
                let chunks = short()?;
                self.change(|config| config.receives_ready(chunks));
            }
            tow_setting::TOW_RECEIVE_BUFFERS_MAX => {
                let buffers = short()? as usize;
                self.change(|config| config.receive_buffers_max(buffers));
            }
            tow_setting::TOW_CHUNK_BYTES_MAX => {
                let bytes = short()?;
                self.change(|config| config.chunk_bytes_max(bytes));
            }
            tow_setting::TOW_PATHS => {
                let paths = short()? as usize;
                self.change(|config| config.paths(paths));
            }
            tow_setting::TOW_PROGRESS_BUDGET => {
                let packets = short()? as usize;
                self.change(|config| config.progress_budget(packets));
            }
            tow_setting::TOW_AHEAD_BYTES => self.change(|config| config.ahead_bytes(value)),
            tow_setting::TOW_CONNECT_TIMEOUT_NS => {
                self.change(|config| config.connect_timeout(Nanos(value)));
            }
            tow_setting::TOW_MEMORY_QUIET_NS => {
                self.change(|config| config.memory_quiet(Nanos(value)));
            }
            tow_setting::TOW_PAYLOAD_CRC => {
                let on = whether()?;
                self.change(|config| config.payload_crc(on));
            }
            tow_setting::TOW_SEED => self.change(|config| config.seed(value)),
            tow_setting::TOW_UDP_PORT => {
                let port = u16::try_from(value);
                self.udp_port = port.map_err(|_| Fault::argument(format!("{value} is no port")))?;
            }
            tow_setting::TOW_FOREIGN_PEERS => self.foreign_peers = whether()?,
            tow_setting::TOW_ENGINE_THREAD => self.engine_thread = whether()?,
            tow_setting::TOW_FALLBACK => {
                let fallback = fallback(value)?;
                self.change(|config| config.fallback(fallback));
            }
        }
        Ok(())
    }
}

fn fallback(number: u64) -> Result<Fallback, Fault> {
    match number {
        0 => Ok(Fallback::None),
        1 => Ok(Fallback::Tcp),
        2 => Ok(Fallback::RcThenTcp),
        _ => {
            let what = "is no fallback: 0 is none, 1 TCP, 2 RC and then TCP";
            Err(Fault::argument(format!("{number} {what}")))
        }
    }
}

/// The profile of a number.
fn profile(number: u32) -> Result<tow_profile, Fault> {
    const ALL: [tow_profile; 5] = [
        tow_profile::TOW_PROFILE_DEFAULT,
        tow_profile::TOW_PROFILE_THROUGHPUT,
        tow_profile::TOW_PROFILE_LATENCY,
        tow_profile::TOW_PROFILE_MANY_LINKS,
        tow_profile::TOW_PROFILE_SMALL_MEMORY,
    ];
    let found = ALL.into_iter().find(|&known| known as u32 == number);
    found.ok_or_else(|| Fault::argument(format!("there is no profile {number}")))
}

fn setting(number: u32) -> Result<tow_setting, Fault> {
    const ALL: [tow_setting; 18] = [
        tow_setting::TOW_LINKS_MAX,
        tow_setting::TOW_WHOLE_BYTES_MAX,
        tow_setting::TOW_QUOTA_CHUNKS,
        tow_setting::TOW_CREDIT_TOTAL,
        tow_setting::TOW_RECEIVES_READY,
        tow_setting::TOW_RECEIVE_BUFFERS_MAX,
        tow_setting::TOW_CHUNK_BYTES_MAX,
        tow_setting::TOW_PATHS,
        tow_setting::TOW_PROGRESS_BUDGET,
        tow_setting::TOW_AHEAD_BYTES,
        tow_setting::TOW_CONNECT_TIMEOUT_NS,
        tow_setting::TOW_MEMORY_QUIET_NS,
        tow_setting::TOW_PAYLOAD_CRC,
        tow_setting::TOW_SEED,
        tow_setting::TOW_UDP_PORT,
        tow_setting::TOW_FOREIGN_PEERS,
        tow_setting::TOW_ENGINE_THREAD,
        tow_setting::TOW_FALLBACK,
    ];
    let found = ALL.into_iter().find(|&known| known as u32 == number);
    found.ok_or_else(|| Fault::argument(format!("there is no setting {number}")))
}

/// A configuration to change and to make endpoints with. `of` is a tow_profile.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_config_new(of: u32, out: *mut *mut tow_config) -> tow_status {
    status(guard(|| {
        let of = profile(of)?;
        if out.is_null() {
            return Err(Fault::null("the place for the configuration"));
        }
        let made = Box::into_raw(Box::new(tow_config::of(of)));
        // SAFETY: see the module; not NULL.
        unsafe { write(out, made, "the place for the configuration") }
    }))
}

/// Frees a configuration. NULL is allowed.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_config_free(config: *mut tow_config) -> tow_status {
    status(guard(|| {
        if !config.is_null() {
            // SAFETY: see the module: it was made by `tow_config_new`, and nobody else has it.
            drop(unsafe { Box::from_raw(config) });
        }
        Ok(())
    }))
}

/// Sets a number: `which` is a tow_setting.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_config_set(
    config: *mut tow_config,
    which: u32,
    value: u64,
) -> tow_status {
    status(guard(|| {
        // SAFETY: see the module.
        let config = unsafe { config.as_mut() }.ok_or_else(|| Fault::null("the configuration"))?;
        config.set(setting(which)?, value)
    }))
}

/// The name of the protocol that the program speaks over its channels, at most 32 printable ASCII
/// characters. Both ends refuse a link to a program with another one.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_config_app_protocol(
    config: *mut tow_config,
    name: *const c_char,
) -> tow_status {
    status(guard(|| {
        // SAFETY: see the module.
        let config = unsafe { config.as_mut() }.ok_or_else(|| Fault::null("the configuration"))?;
        // SAFETY: see the module.
        let name = unsafe { text(name, "the name") }?;
        let app: AppProtocol =
            name.parse().map_err(|error| Fault::argument(format!("{name}: {error}")))?;
        config.change(|config| config.app_protocol(app));
        Ok(())
    }))
}

/// Which send buffers the endpoint has, in place of those of its profile.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tow_config_send_pools(
    config: *mut tow_config,
    pools: *const tow_pool,
    count: usize,
) -> tow_status {
    status(guard(|| {
        // SAFETY: see the module.
        let config = unsafe { config.as_mut() }.ok_or_else(|| Fault::null("the configuration"))?;
        if count == 0 || count > POOLS_MAX {
            return Err(Fault::argument(format!("{count} pools: 1 to {POOLS_MAX} may be")));
        }
        // SAFETY: see the module.
        let pools = unsafe { slice(pools, count, "the list of pools") }?;
        let sizes: Vec<_> = pools.iter().map(|pool| (pool.bytes, pool.count)).collect();
        let most = BUF_BYTES_MAX;
        if sizes.iter().any(|&(bytes, count)| !(1..=most).contains(&bytes) || count == 0) {
            return Err(Fault::argument(
                "a pool has no buffer, or buffers of no byte or more than 2 GiB",
            ));
        }
        config.change(|config| config.send_pools(&sizes));
        Ok(())
    }))
}
