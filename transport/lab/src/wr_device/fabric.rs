//! The fabric as a wire for messages: one message is one train.

use super::{ArrivedBurst, Burst, BurstLink};
use std::net::SocketAddr;
use towpath_base::Time;
use towpath_sim::{TxTrain, VirtualLink};
use towpath_verbs::{LinkCaps, PacketLink};

impl BurstLink for VirtualLink {
    fn caps(&self) -> LinkCaps {
        PacketLink::caps(self)
    }

    fn local_addr(&self) -> SocketAddr {
        PacketLink::local_addr(self)
    }

    fn now(&self) -> Time {
        PacketLink::now(self)
    }

    fn send_burst(&mut self, burst: &Burst<'_>) -> bool {
        let train = TxTrain {
            dest: burst.dest,
            source_port: burst.source_port,
            tclass: burst.tclass,
            packets: burst.packets,
            byte_len: burst.packet_bytes,
            token: 0,
            bytes: burst.bytes,
        };
        self.transmit_trains(&[train]) == 1
    }

    fn receive_bursts(&mut self, budget: usize, sink: &mut dyn FnMut(ArrivedBurst<'_>)) -> usize {
        self.receive_trains(budget, &mut |train| {
            sink(ArrivedBurst {
                source: train.source,
                tclass: train.tclass,
                bytes: train.bytes,
                is_damaged: train.is_damaged,
                timestamp: train.timestamp,
            });
        })
    }
}
