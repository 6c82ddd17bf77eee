//! One message on the agent's socket: a 4-octet big-endian length and that many octets of JSON.

use std::io::{self, Read};

/// Longest message, either way. Standard input is at most half of it, and JSON text in JSON at most doubles in practice.
pub const MAX_FRAME: usize = 8 << 20;

/// A message with its length in front.
///
/// # Errors
/// `InvalidInput` when it is longer than [`MAX_FRAME`].
pub fn encode(message: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(message.len())
        .ok()
        .filter(|_| message.len() <= MAX_FRAME);
    let length = length.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "message of {} bytes exceeds the limit of {MAX_FRAME}",
                message.len()
            ),
        )
    })?;
    let mut frame = Vec::with_capacity(message.len() + 4);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(message);
    Ok(frame)
}

/// Reads the length in front of a message.
///
/// # Errors
/// `InvalidData` when it exceeds [`MAX_FRAME`]; nothing is allocated for it then.
pub fn decode_length(header: [u8; 4]) -> io::Result<usize> {
    let length = u32::from_be_bytes(header) as usize;
    if length > MAX_FRAME {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("message of {length} bytes exceeds the limit of {MAX_FRAME}"),
        ));
    }
    Ok(length)
}

/// Reads one message.
///
/// # Errors
/// `UnexpectedEof` when the stream ends early, `InvalidData` when the length exceeds [`MAX_FRAME`].
pub fn read(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut message = vec![0; decode_length(header)?];
    stream.read_exact(&mut message)?;
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn frames_round_trip(message in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let frame = encode(&message).expect("short");
            prop_assert_eq!(read(&mut frame.as_slice()).expect("whole"), message);
            for cut in 0..frame.len() {
                prop_assert!(read(&mut &frame[..cut]).is_err());
            }
        }
    }

    #[test]
    fn length_is_limited_both_ways() {
        assert!(encode(&vec![0; MAX_FRAME + 1]).is_err());
        let error = read(&mut [0xff; 8].as_slice()).expect_err("too long");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
