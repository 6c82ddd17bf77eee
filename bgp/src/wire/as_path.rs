//! AS_PATH (RFC 4271 section 5.1.2) with 2- and 4-octet numbers (RFC 6793).

use std::fmt;

use bytes::{BufMut, BytesMut};

use super::reader::{Reader, Short};

/// Stands for an AS number above 65535 where only two octets fit (RFC 6793 section 9).
pub const AS_TRANS: u32 = 23456;

/// Most AS numbers of one segment: its count is one octet.
const MAX_SEGMENT: usize = 255;

/// Kind of a path segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// AS_SET, 1: unordered.
    Set,
    /// AS_SEQUENCE, 2.
    Sequence,
}

/// One segment of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Kind.
    pub kind: SegmentKind,
    /// AS numbers, 1 to 255 of them.
    pub numbers: Vec<u32>,
}

/// An AS_PATH. Confederation segments (RFC 5065) are not carried: this speaker is in none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct AsPath {
    /// Segments, nearest first.
    pub segments: Vec<Segment>,
}

/// Why an AS_PATH is malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum AsPathError {
    #[error("a segment runs past the end")]
    Overrun,
    #[error("unknown segment type {0}")]
    SegmentType(u8),
    #[error("a segment without AS numbers")]
    EmptySegment,
    #[error("AS 0 in the path")]
    Zero,
}

impl From<Short> for AsPathError {
    fn from(_: Short) -> Self {
        AsPathError::Overrun
    }
}

impl AsPath {
    /// A path of one sequence; empty for no numbers.
    pub fn sequence(numbers: impl Into<Vec<u32>>) -> Self {
        let mut path = AsPath::default();
        for chunk in numbers.into().chunks(MAX_SEGMENT) {
            path.segments.push(Segment {
                kind: SegmentKind::Sequence,
                numbers: chunk.to_vec(),
            });
        }
        path
    }

    /// Length for the decision process: a set counts as one (RFC 4271 section 9.1.2.2).
    pub fn length(&self) -> usize {
        let weight = |segment: &Segment| match segment.kind {
            SegmentKind::Set => 1,
            SegmentKind::Sequence => segment.numbers.len(),
        };
        self.segments.iter().map(weight).sum()
    }

    /// First AS number, when the path begins with a sequence.
    pub fn first(&self) -> Option<u32> {
        match self.segments.first() {
            Some(Segment {
                kind: SegmentKind::Sequence,
                numbers,
            }) => numbers.first().copied(),
            _ => None,
        }
    }

    /// How often an AS number occurs.
    pub fn count(&self, number: u32) -> usize {
        self.numbers()
            .filter(|candidate| *candidate == number)
            .count()
    }

    /// All numbers in order.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.segments
            .iter()
            .flat_map(|segment| segment.numbers.iter().copied())
    }

    /// True when a segment is an AS_SET.
    pub fn has_set(&self) -> bool {
        self.segments
            .iter()
            .any(|segment| segment.kind == SegmentKind::Set)
    }

    /// Puts one number in front, into a leading sequence that has room (RFC 4271 section 5.1.2).
    pub fn prepend(&mut self, number: u32) {
        match self.segments.first_mut() {
            Some(Segment {
                kind: SegmentKind::Sequence,
                numbers,
            }) if numbers.len() < MAX_SEGMENT => {
                numbers.insert(0, number);
            }
            _ => {
                let segment = Segment {
                    kind: SegmentKind::Sequence,
                    numbers: vec![number],
                };
                self.segments.insert(0, segment);
            }
        }
    }

    /// Reads a path; `wide` is 4 octets per number. An empty value is the empty path.
    pub(super) fn decode(value: &[u8], wide: bool) -> Result<Self, AsPathError> {
        let mut reader = Reader::new(value);
        let mut path = AsPath::default();
        while !reader.is_empty() {
            let kind = match reader.u8()? {
                1 => SegmentKind::Set,
                2 => SegmentKind::Sequence,
                other => return Err(AsPathError::SegmentType(other)),
            };
            let count = reader.u8()?;
            if count == 0 {
                return Err(AsPathError::EmptySegment);
            }
            let mut numbers = Vec::with_capacity(usize::from(count));
            for _ in 0..count {
                let number = if wide {
                    reader.u32()?
                } else {
                    u32::from(reader.u16()?)
                };
                if number == 0 {
                    return Err(AsPathError::Zero);
                }
                numbers.push(number);
            }
            path.segments.push(Segment { kind, numbers });
        }
        Ok(path)
    }

    /// Writes the path. Numbers that do not fit two octets become [`AS_TRANS`].
    pub(super) fn encode(&self, wide: bool, out: &mut BytesMut) {
        for segment in &self.segments {
            for numbers in segment.numbers.chunks(MAX_SEGMENT) {
                out.put_u8(match segment.kind {
                    SegmentKind::Set => 1,
                    SegmentKind::Sequence => 2,
                });
                // A chunk has at most MAX_SEGMENT numbers.
                out.put_u8(numbers.len() as u8);
                for number in numbers {
                    if wide {
                        out.put_u32(*number);
                    } else {
                        out.put_u16(u16::try_from(*number).unwrap_or(AS_TRANS as u16));
                    }
                }
            }
        }
    }

    /// True when a number needs four octets.
    pub(super) fn needs_wide(&self) -> bool {
        self.numbers().any(|number| number > u32::from(u16::MAX))
    }

    /// The real path out of a 2-octet AS_PATH and an AS4_PATH (RFC 6793 section 4.2.3).
    pub(super) fn merge_as4(self, as4: AsPath) -> AsPath {
        let (Some(mut keep), false) = (
            self.length().checked_sub(as4.length()),
            as4.segments.is_empty(),
        ) else {
            return self;
        };
        let mut merged = AsPath::default();
        for mut segment in self.segments {
            let weight = match segment.kind {
                SegmentKind::Set => 1,
                SegmentKind::Sequence => segment.numbers.len(),
            };
            if keep == 0 {
                break;
            }
            if weight > keep {
                segment.numbers.truncate(keep);
            }
            keep = keep.saturating_sub(weight);
            merged.segments.push(segment);
        }
        for segment in as4.segments {
            match (merged.segments.last_mut(), segment.kind) {
                (Some(last), SegmentKind::Sequence)
                    if last.kind == SegmentKind::Sequence
                        && last.numbers.len() + segment.numbers.len() <= MAX_SEGMENT =>
                {
                    last.numbers.extend(segment.numbers);
                }
                _ => merged.segments.push(segment),
            }
        }
        merged
    }
}

impl fmt::Display for AsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.segments.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            let numbers: Vec<String> = segment.numbers.iter().map(u32::to_string).collect();
            match segment.kind {
                SegmentKind::Set => write!(f, "{{{}}}", numbers.join(","))?,
                SegmentKind::Sequence => f.write_str(&numbers.join(" "))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_leading_sequence_is_not_extended() {
        let mut path = AsPath::sequence(vec![7; 255]);
        path.prepend(8);
        assert_eq!(path.segments.len(), 2);
        assert_eq!(path.first(), Some(8));
        assert_eq!(path.length(), 256);
    }

    #[test]
    fn an_as4_path_longer_than_the_as_path_is_ignored() {
        let short = AsPath::sequence([65002, AS_TRANS]);
        assert_eq!(short.clone().merge_as4(AsPath::sequence([1, 2, 3])), short);
    }

    #[test]
    fn the_leading_numbers_survive_the_merge_with_as4_path() {
        let merged = AsPath::sequence([65002, AS_TRANS, AS_TRANS])
            .merge_as4(AsPath::sequence([131_072, 131_073]));
        assert_eq!(merged, AsPath::sequence([65002, 131_072, 131_073]));
    }

    #[test]
    fn sets_print_in_braces_and_count_as_one() {
        let mut path = AsPath::sequence([1, 2]);
        path.segments.push(Segment {
            kind: SegmentKind::Set,
            numbers: vec![3, 4],
        });
        assert_eq!(path.to_string(), "1 2 {3,4}");
        assert_eq!(path.length(), 3);
    }
}
