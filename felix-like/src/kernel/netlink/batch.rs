//! Many requests in one datagram.
//!
//! The kernel works a datagram off inside `send`, message by message, and goes on after an error; each error carries
//! the sequence number of its message. So only the last message asks for an acknowledgement: once it is there, every
//! message without an error has been done. When an answer may have been lost, the same messages are sent again, fewer
//! at a time and each with an acknowledgement; the operations must therefore be ones that may be repeated.

use super::encode::Encoder;
use super::socket::{NetlinkSocket, acknowledgement};
use crate::kernel::KernelError;

/// Messages in one datagram.
const PER_DATAGRAM: usize = 256;
/// Messages in one datagram when each is acknowledged: the answers must fit even a small receive buffer.
const PER_DATAGRAM_ACKED: usize = 64;
/// How often unanswered messages are sent again.
const ATTEMPTS: usize = 3;

/// One request of a batch.
#[derive(Debug, Clone)]
pub struct Operation(pub Encoder);

impl NetlinkSocket {
    /// Performs all operations and says for each how it went, in the same order.
    pub fn batch(&mut self, operations: &[Operation]) -> Vec<Result<(), KernelError>> {
        let mut results = vec![Ok(()); operations.len()];
        let all: Vec<usize> = (0..operations.len()).collect();
        let mut unknown = Vec::new();
        for chunk in all.chunks(PER_DATAGRAM) {
            if let Err(e) = self.send_chunk(operations, chunk, false, &mut results) {
                self.drain();
                for index in chunk {
                    results[*index] = Err(e.clone());
                }
                unknown.extend_from_slice(chunk);
            }
        }
        for _ in 0..ATTEMPTS {
            let again = std::mem::take(&mut unknown);
            for chunk in again.chunks(PER_DATAGRAM_ACKED) {
                if let Err(e) = self.send_chunk(operations, chunk, true, &mut results) {
                    self.drain();
                    for index in chunk {
                        results[*index] = Err(e.clone());
                    }
                    unknown.extend_from_slice(chunk);
                }
            }
        }
        results
    }

    /// Sends messages that form one transaction, as they are; says for each how it went. The last but one, the last
    /// inside the frame, is acknowledged after all errors.
    ///
    /// # Errors
    /// When it is unknown what became of the transaction.
    pub(crate) fn transaction(
        &mut self,
        mut messages: Encoder,
    ) -> Result<Vec<Result<(), KernelError>>, KernelError> {
        let count = messages.count();
        let first = self.next_seq(count);
        messages.number(first, 0, false);
        messages.acknowledge(count.saturating_sub(2));
        self.send(messages.bytes())?;
        let mut results = vec![Ok(()); count as usize];
        loop {
            let mut finished = false;
            self.receive(|message| {
                let offset = message.seq.wrapping_sub(first);
                if offset >= count {
                    return;
                }
                if let Some(result) = acknowledgement(message) {
                    finished |= offset + 2 >= count || (offset == 0 && result.is_err());
                    results[offset as usize] = result;
                }
            })?;
            if finished {
                return Ok(results);
            }
        }
    }

    /// `Err` when it is unknown what became of the chunk.
    fn send_chunk(
        &mut self,
        operations: &[Operation],
        chunk: &[usize],
        ack_all: bool,
        results: &mut [Result<(), KernelError>],
    ) -> Result<(), KernelError> {
        let mut datagram = Encoder::new();
        for index in chunk {
            datagram.raw(operations[*index].0.bytes());
        }
        let count = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        let first = self.next_seq(count);
        datagram.number(first, libc::NLM_F_ACK as u16, ack_all);
        self.send(datagram.bytes())?;
        for index in chunk {
            results[*index] = Ok(());
        }
        let mut answered = 0;
        loop {
            let mut finished = false;
            self.receive(|message| {
                let offset = message.seq.wrapping_sub(first);
                if offset >= count {
                    return;
                }
                if let Some(result) = acknowledgement(message) {
                    results[chunk[offset as usize]] = result;
                    answered += 1;
                    finished |= if ack_all {
                        answered == count
                    } else {
                        offset + 1 == count
                    };
                }
            })?;
            if finished {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::kernel::Netns;
    use crate::kernel::netlink::Protocol;
    use crate::kernel::rtnl::{RouteKey, RouteSpec};

    #[test]
    fn answers_that_do_not_fit_the_buffer_are_asked_for_again_and_none_is_lost() {
        let netns = Netns::create().expect("needs root");
        let mut socket = NetlinkSocket::open_in(&netns, Protocol::Route).unwrap();
        // A quarter of what one datagram of refusals needs.
        socket.set_receive_buffer(64 << 10).unwrap();
        let refused: Vec<Operation> = (0..1000u32)
            .map(|i| {
                let address = std::net::Ipv4Addr::from(0x1400_0000 + (i << 8));
                let prefix = ipnet::IpNet::new(address.into(), 24).unwrap();
                RouteSpec::blackhole(80).delete(&RouteKey::new(prefix, 0))
            })
            .collect();
        let start = Instant::now();
        let results = socket.batch(&refused);
        assert!(start.elapsed() < Duration::from_secs(5));
        assert_eq!(results.len(), 1000);
        assert!(
            results
                .iter()
                .all(|r| r.as_ref().is_err_and(|e| e.is(libc::ESRCH)))
        );
    }
}
