//! Writing netlink messages: a message is a header, a fixed part and attributes; attributes may nest.

/// Set on the type of an attribute that holds attributes.
const NLA_F_NESTED: u16 = 0x8000;
const HEADER: usize = 16;
/// Largest payload of one attribute: its length field has 16 bits and counts its own 4-byte header.
pub const MAX_ATTRIBUTE: usize = 65_531;

/// Builds one or more messages in one buffer.
#[derive(Debug, Clone, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends one message. The sequence number is left 0 for the socket to fill in.
    pub fn message(&mut self, kind: u16, flags: u16, fixed: &[u8], body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        self.bytes.extend([0; 4]);
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes
            .extend((flags | libc::NLM_F_REQUEST as u16).to_ne_bytes());
        self.bytes.extend([0; 8]);
        self.bytes.extend(fixed);
        self.pad();
        body(self);
        let length = u32::try_from(self.bytes.len() - start).unwrap_or(u32::MAX);
        self.bytes[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    /// One message alone.
    pub fn single(kind: u16, flags: u16, fixed: &[u8], body: impl FnOnce(&mut Self)) -> Self {
        let mut encoder = Self::new();
        encoder.message(kind, flags, fixed, body);
        encoder
    }

    /// Appends an attribute with the given payload, which must not exceed [`MAX_ATTRIBUTE`].
    pub fn attr(&mut self, kind: u16, payload: &[u8]) {
        let at = self.open(kind);
        self.bytes.extend(payload);
        self.close(at);
    }

    /// An attribute without payload.
    pub fn flag(&mut self, kind: u16) {
        self.attr(kind, &[]);
    }

    /// One octet.
    pub fn u8(&mut self, kind: u16, value: u8) {
        self.attr(kind, &[value]);
    }

    /// 16 bits in host order.
    pub fn u16(&mut self, kind: u16, value: u16) {
        self.attr(kind, &value.to_ne_bytes());
    }

    /// 16 bits in network order.
    pub fn be16(&mut self, kind: u16, value: u16) {
        self.attr(kind, &value.to_be_bytes());
    }

    /// 32 bits in host order (rtnetlink).
    pub fn u32(&mut self, kind: u16, value: u32) {
        self.attr(kind, &value.to_ne_bytes());
    }

    /// 32 bits in network order (nf_tables, conntrack).
    pub fn be32(&mut self, kind: u16, value: u32) {
        self.attr(kind, &value.to_be_bytes());
    }

    /// 64 bits in network order.
    pub fn be64(&mut self, kind: u16, value: u64) {
        self.attr(kind, &value.to_be_bytes());
    }

    /// An address in its 4 or 16 octets.
    pub fn ip(&mut self, kind: u16, address: std::net::IpAddr) {
        match address {
            std::net::IpAddr::V4(a) => self.attr(kind, &a.octets()),
            std::net::IpAddr::V6(a) => self.attr(kind, &a.octets()),
        }
    }

    /// Text with a terminating NUL.
    pub fn string(&mut self, kind: u16, text: &str) {
        let at = self.open(kind);
        self.bytes.extend(text.as_bytes());
        self.bytes.push(0);
        self.close(at);
    }

    /// An attribute that holds attributes.
    pub fn nest(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        let at = self.open(kind | NLA_F_NESTED);
        body(self);
        self.close(at);
    }

    /// Appends bytes as they are, padded to four.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.pad();
    }

    fn open(&mut self, kind: u16) -> usize {
        let at = self.bytes.len();
        self.bytes.extend([0; 2]);
        self.bytes.extend(kind.to_ne_bytes());
        at
    }

    fn close(&mut self, at: usize) {
        let length = self.bytes.len() - at;
        debug_assert!(
            length <= MAX_ATTRIBUTE + 4,
            "attribute of {length} bytes: split it"
        );
        let length = u16::try_from(length).unwrap_or(u16::MAX);
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// True when nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The messages.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Numbers the messages from `first` on and adds `flags` to the last one (or to all). Returns how many there are.
    pub(crate) fn number(&mut self, first: u32, flags: u16, on_all: bool) -> u32 {
        let starts: Vec<usize> = self.starts().collect();
        let mut seq = first;
        for start in &starts {
            self.bytes[start + 8..start + 12].copy_from_slice(&seq.to_ne_bytes());
            seq = seq.wrapping_add(1);
            if on_all {
                self.add_flags(*start, flags);
            }
        }
        if let (false, Some(last)) = (on_all, starts.last()) {
            self.add_flags(*last, flags);
        }
        starts.len() as u32
    }

    /// Number of messages.
    pub(crate) fn count(&self) -> u32 {
        self.starts().count() as u32
    }

    /// Asks for an acknowledgement of the message of an index.
    pub(crate) fn acknowledge(&mut self, index: u32) {
        let start = self.starts().nth(index as usize);
        if let Some(start) = start {
            self.add_flags(start, libc::NLM_F_ACK as u16);
        }
    }

    fn starts(&self) -> impl Iterator<Item = usize> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let word = self.bytes.get(next..next + 4)?;
            let length = u32::from_ne_bytes(word.try_into().ok()?) as usize;
            let start = next;
            next += length.max(HEADER).next_multiple_of(4);
            Some(start)
        })
    }

    fn add_flags(&mut self, message: usize, flags: u16) {
        let at = message + 6;
        let old = u16::from_ne_bytes([self.bytes[at], self.bytes[at + 1]]);
        self.bytes[at..at + 2].copy_from_slice(&(old | flags).to_ne_bytes());
    }
}
