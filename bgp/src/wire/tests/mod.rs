//! Recorded messages and properties of the whole codec.

mod malformed;
mod properties;
mod recorded;

/// Octets out of hexadecimal text; `M` is the header marker, blanks are ignored.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: String = text
        .replace('M', &"ff".repeat(16))
        .chars()
        .filter(|c| !c.is_whitespace())
        .collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}
