//! What a run is asked for, checked: what both ends must agree on, and what is each end's own.

use super::args::values::{Atomic, BwOutput, Connection, LatOutput};
use super::args::{Common, Ours, Parsed};
use super::error::UsageError;
use super::limits::{
    ALL_SIZES_LOG2, ATOMIC_BYTES, CQ_MOD, CQ_MOD_BYTES_MAX, DRIVER_IDLE_POLLS_MAX,
    FOREVER_ROW_SECONDS, IDLE_POLLS_MAX, LANE_DEPTH_MAX, QPS_MAX, RAW_RX_DEPTH, RX_DEPTH,
    UNDER_WAY_BYTES_MAX, UNDER_WAY_MAX,
};
use super::tool::{Op, Tool};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use towpath_transport::DeviceChoice;
use towpath_verbs::{Mtu, tclass_of};

/// How long a row goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Goal {
    /// So many messages, of each direction.
    Messages(u64),
    /// For `span`, of which `margin` at each end is not measured.
    Span { span: Duration, margin: Duration },
}

/// What both ends must agree on.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) tool: Tool,
    pub(crate) connection: Connection,
    /// Verbs without a transport above them.
    pub(crate) raw: bool,
    pub(crate) all: bool,
    pub(crate) size: u32,
    pub(crate) goal: Goal,
    pub(crate) forever: bool,
    pub(crate) bidirectional: bool,
    pub(crate) tx_depth: u32,
    pub(crate) qps: u32,
    /// Of the link.
    pub(crate) paths: Option<u8>,
    /// None for the largest that there is.
    pub(crate) mtu: Option<Mtu>,
    /// READs and atomics outstanding, and which atomic.
    pub(crate) outs: u8,
    pub(crate) atomic: Atomic,
    pub(crate) warm_up: bool,
    pub(crate) validate: bool,
}

/// One flag as an end has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flag {
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Plan {
    /// The sizes of the rows, in bytes. A datagram is one packet.
    pub(crate) fn sizes(&self) -> Vec<u32> {
        if !self.all {
            return vec![self.size];
        }
        let most = if self.connection == Connection::Ud { self.mtu_max() } else { u32::MAX };
        ALL_SIZES_LOG2.map(|log2| 1 << log2).filter(|&size| size <= most).collect()
    }

    /// Bytes of the longest packet.
    fn mtu_max(&self) -> u32 {
        self.mtu.unwrap_or(Mtu::Mtu4096).bytes()
    }

    /// Runs until interrupted, where that is asked for; rows are then of some time each.
    fn run_forever(&mut self, forever: bool) {
        self.forever = forever;
        if forever && matches!(self.goal, Goal::Messages(_)) {
            self.goal = span(FOREVER_ROW_SECONDS, Some(0.0));
        }
    }

    /// Whether READs and atomics ride on the lane of a link.
    pub(crate) fn on_lane(&self) -> bool {
        !self.raw && self.tool.fetches()
    }

    /// Whether the end that is acted upon sees nothing of it.
    pub(crate) fn one_sided(&self) -> bool {
        self.on_lane() || self.raw && self.tool.op() != Op::Send
    }

    /// Whether an end does nothing but let the other act upon it.
    pub(crate) fn is_passive(&self, client: bool) -> bool {
        self.one_sided() && !self.sends(client)
    }

    /// Whether messages may be lost for good.
    pub(crate) fn lossy(&self) -> bool {
        self.raw && matches!(self.connection, Connection::Uc | Connection::Ud)
    }

    /// Whether an end answers what the other sends.
    fn answers(&self) -> bool {
        self.tool.is_latency() && !self.tool.fetches()
    }

    /// Messages of `size` that are under way on each channel.
    pub(crate) fn depth(&self, size: u32) -> u32 {
        let whole = (size as usize).next_power_of_two() * self.qps as usize;
        self.tx_depth.min((UNDER_WAY_BYTES_MAX / whole).max(1) as u32)
    }

    /// Whether an end sends in its own right, and not only answers.
    pub(crate) fn sends(&self, client: bool) -> bool {
        client || self.bidirectional || self.answers()
    }

    /// Whether an end receives messages, and can tell.
    pub(crate) fn receives(&self, client: bool) -> bool {
        self.answers() || !self.one_sided() && (!client || self.bidirectional)
    }

    /// What is compared with the peer's, flag by flag.
    pub(crate) fn flags(&self) -> Vec<Flag> {
        let on = |yes: bool| if yes { "on" } else { "off" }.to_owned();
        let (iters, duration) = match self.goal {
            Goal::Messages(count) => (count.to_string(), "off".to_owned()),
            Goal::Span { span, .. } => ("off".to_owned(), format!("{} s", span.as_secs_f64())),
        };
        let size = if self.all { "all".to_owned() } else { self.size.to_string() };
        [
            ("tool", self.tool.name().to_owned()),
            ("-c (connection)", self.connection.to_string()),
            ("--raw", on(self.raw)),
            ("-s / -a (size)", size),
            ("-n (iters)", iters),
            ("-D (duration)", duration),
            ("--run_infinitely", on(self.forever)),
            ("-b (bidirectional)", on(self.bidirectional)),
            ("-t (tx-depth)", self.tx_depth.to_string()),
            ("-q (qp)", self.qps.to_string()),
            ("--paths", self.paths.map_or_else(|| "auto".to_owned(), |paths| paths.to_string())),
            ("-m (mtu)", self.mtu.map_or_else(|| "auto".to_owned(), |mtu| mtu.to_string())),
            ("-o (outs)", self.outs.to_string()),
            ("-A (atomic_type)", self.atomic.name().to_owned()),
            ("--perform_warm_up", on(self.warm_up)),
            ("--data_validation", on(self.validate)),
        ]
        .into_iter()
        .map(|(name, value)| Flag { name: name.to_owned(), value })
        .collect()
    }
}

/// How results are shown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Show {
    pub(crate) gbits: bool,
    pub(crate) peak: bool,
    pub(crate) cpu_util: bool,
    pub(crate) json: bool,
    pub(crate) json_file: Option<PathBuf>,
    pub(crate) histogram: bool,
    pub(crate) unsorted: bool,
    pub(crate) only: Option<Only>,
}

/// The one number that is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Only {
    Bandwidth,
    MessageRate,
    Latency,
}

/// A run, checked.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) host: Option<String>,
    pub(crate) port: u16,
    pub(crate) plan: Plan,
    pub(crate) show: Show,
    pub(crate) device: DeviceChoice,
    pub(crate) rx_depth: u32,
    pub(crate) qp_timeout: Option<u8>,
    /// In place of the class's.
    pub(crate) tclass: Option<u8>,
    pub(crate) post_list: u32,
    pub(crate) cq_mod: Option<u32>,
    pub(crate) ours: Ours,
    pub(crate) notes: Vec<&'static str>,
}

impl Settings {
    /// Checks what clap cannot.
    ///
    /// # Errors
    /// [`UsageError`].
    pub(crate) fn new(tool: Tool, parsed: Parsed) -> Result<Self, UsageError> {
        let settings = match parsed {
            Parsed::Bw(args) => {
                let mut settings = Self::common(tool, args.common);
                let (only, plan, show) = (args.only, &mut settings.plan, &mut settings.show);
                plan.bidirectional = only.bidirectional;
                plan.tx_depth = only.tx_depth;
                plan.qps = only.qp;
                plan.run_forever(only.run_infinitely);
                show.gbits = only.report_gbits;
                show.peak = !only.no_peak && matches!(plan.goal, Goal::Messages(_));
                show.only = only.output.map(|output| match output {
                    BwOutput::Bandwidth => Only::Bandwidth,
                    BwOutput::MessageRate => Only::MessageRate,
                });
                settings.post_list = only.post_list.unwrap_or_else(|| settings.usual_list());
                settings.cq_mod = only.cq_mod.or_else(|| Some(settings.usual_cq_mod()));
                settings
            }
            Parsed::Lat(args) => {
                let mut settings = Self::common(tool, args.common);
                settings.plan.run_forever(args.only.run_infinitely);
                settings.show.histogram = args.only.histogram;
                settings.show.unsorted = args.only.unsorted;
                settings.show.only = args.only.output.map(|LatOutput::Latency| Only::Latency);
                settings
            }
        };
        settings.check()
    }

    fn common(tool: Tool, common: Common) -> Self {
        let mut notes = Vec::new();
        if common.inline_size > 0 {
            notes.push("-I has no effect: the device decides what goes inline");
        }
        let goal = match common.duration {
            None => Goal::Messages(common.iters),
            Some(seconds) => span(seconds, common.margin),
        };
        let show = Show {
            cpu_util: common.cpu_util,
            json: common.json,
            json_file: common.out_json.then_some(common.out_json_file),
            ..Show::default()
        };
        let raw = common.ours.raw;
        let usual = if raw { Connection::Rc } else { Connection::Uc };
        let plan = Plan {
            tool,
            connection: common.connection.unwrap_or(usual),
            raw,
            all: common.all,
            size: common.size,
            goal,
            forever: false,
            bidirectional: false,
            tx_depth: 1,
            qps: 1,
            paths: common.ours.paths,
            mtu: common.mtu,
            outs: common.outs,
            atomic: common.atomic,
            warm_up: common.warm_up,
            validate: common.validate,
        };
        Self {
            host: common.host,
            port: common.port,
            plan,
            show,
            device: common.device.choice(),
            rx_depth: common.rx_depth.unwrap_or(if raw { RAW_RX_DEPTH } else { RX_DEPTH }),
            qp_timeout: common.qp_timeout,
            tclass: common.tclass,
            post_list: 0,
            cq_mod: None,
            ours: common.ours,
            notes,
        }
    }

    fn check(self) -> Result<Self, UsageError> {
        let Plan { qps, tx_depth, goal, .. } = self.plan;
        if qps > QPS_MAX || qps * tx_depth > UNDER_WAY_MAX {
            return Err(UsageError::UnderWay { qps, tx_depth, max: UNDER_WAY_MAX });
        }
        if let Goal::Span { span, margin } = goal
            && margin * 2 >= span
        {
            return Err(UsageError::Margin { span, margin });
        }
        if self.plan.connection == Connection::Tcp && self.faulty() {
            return Err(UsageError::TcpFaults);
        }
        if !self.device.name.is_roce() && self.faulty() {
            return Err(UsageError::DeviceFaults(self.device.name));
        }
        let has_link = !self.plan.raw && self.plan.connection != Connection::Tcp;
        if self.ours.status.is_some() && !has_link {
            return Err(UsageError::StatusOfNoLink);
        }
        let has_ways = self.plan.paths > Some(1) || self.ours.fallback.is_some();
        if has_ways && !has_link {
            return Err(UsageError::PathsOfNoLink);
        }
        self.check_connection()?;
        Ok(self)
    }

    /// Whether the verb, the queue pairs and what is asked of them go together.
    fn check_connection(&self) -> Result<(), UsageError> {
        let plan = &self.plan;
        match (plan.tool.op(), plan.raw, plan.connection) {
            (Op::Read | Op::Atomic, true, Connection::Rc) => {}
            (Op::Read | Op::Atomic, true, other) => return Err(UsageError::RcOnly(other)),
            (Op::Read | Op::Atomic, false, Connection::Tcp) => return Err(UsageError::LaneTcp),
            (_, false, Connection::Ud) => return Err(UsageError::RawOnly),
            (_, false, _) => {}
            (_, true, Connection::Tcp) => return Err(UsageError::RawTcp),
            (Op::Write, true, Connection::Ud) => return Err(UsageError::WriteOnUd),
            (_, true, _) => {}
        }
        if plan.on_lane() && plan.qps > 1 {
            return Err(UsageError::LaneQps { qps: plan.qps });
        }
        if plan.on_lane() && plan.tx_depth > LANE_DEPTH_MAX {
            let (tx_depth, max) = (plan.tx_depth, LANE_DEPTH_MAX);
            return Err(UsageError::LaneDepth { tx_depth, max });
        }
        if plan.raw && plan.tool.op() == Op::Write && plan.validate {
            return Err(UsageError::BlindWrite);
        }
        if plan.tool.op() == Op::Atomic && (plan.all || plan.size != ATOMIC_BYTES) {
            return Err(UsageError::AtomicSize);
        }
        if plan.connection == Connection::Ud && plan.size > plan.mtu_max() {
            return Err(UsageError::Datagram { size: plan.size, mtu: plan.mtu_max() });
        }
        Ok(())
    }

    /// Whether this side is to mishandle packets.
    pub(crate) fn faulty(&self) -> bool {
        let ours = &self.ours;
        [ours.loss, ours.duplicate, ours.reorder, ours.corrupt].iter().any(|&p| p > 0.0)
            || ours.delay > 0
            || !ours.black_hole.is_empty()
    }

    /// Whether each message under way has memory of its own. What is checked is numbered, and so it
    /// must.
    pub(crate) fn apart(&self) -> bool {
        self.ours.cold || self.plan.validate
    }

    /// What packets of plain verbs bear.
    pub(crate) fn raw_tclass(&self) -> u8 {
        self.tclass.unwrap_or(tclass_of(self.ours.class.dscp_default()))
    }

    /// Messages handed over in one go where nobody says: on a driver one, as perftest. rxe works on
    /// what is posted within the call, up to the window of RC; the rest of a long list is left to a
    /// thread of the kernel, beside an end that polls.
    fn usual_list(&self) -> u32 {
        u32::from(self.plan.raw && self.device.target().is_some())
    }

    /// Messages of which one is asked for a completion where nobody says, as in perftest: bulk
    /// comes in one at a time, and on RC a driver has more to send sooner.
    fn usual_cq_mod(&self) -> u32 {
        if self.plan.size > CQ_MOD_BYTES_MAX && !self.plan.all { 1 } else { CQ_MOD }
    }

    /// Polls in a row that find nothing, after which this side waits.
    pub(crate) fn idle_polls_max(&self) -> u32 {
        if self.device.target().is_some() { DRIVER_IDLE_POLLS_MAX } else { IDLE_POLLS_MAX }
    }

    /// Whether this side is the client.
    pub(crate) fn is_client(&self) -> bool {
        self.host.is_some()
    }
}

fn span(seconds: f64, margin: Option<f64>) -> Goal {
    let margin = margin.unwrap_or(seconds / 4.0);
    Goal::Span { span: Duration::from_secs_f64(seconds), margin: Duration::from_secs_f64(margin) }
}
