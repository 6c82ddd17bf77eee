//! TCP-MD5 keys (RFC 2385).

use std::fmt;

/// Longest key the Linux TCP-MD5 option takes (`TCP_MD5SIG_MAXKEYLEN`).
pub const MAX_PASSWORD_LENGTH: usize = 80;

/// A TCP-MD5 key of 1 to 80 octets, used exactly as given. Its `Debug` output hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Box<[u8]>);

/// Why a key is refused. Never holds the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// No octets.
    #[error("the password is empty")]
    Empty,
    /// More octets than the kernel takes; nothing is cut off silently.
    #[error("the password has {0} octets; TCP-MD5 takes at most {MAX_PASSWORD_LENGTH}")]
    TooLong(usize),
}

impl Password {
    /// Wraps a key.
    ///
    /// # Errors
    /// The key is empty or longer than [`MAX_PASSWORD_LENGTH`].
    pub fn new(octets: impl Into<Box<[u8]>>) -> Result<Self, PasswordError> {
        let octets = octets.into();
        match octets.len() {
            0 => Err(PasswordError::Empty),
            1..=MAX_PASSWORD_LENGTH => Ok(Password(octets)),
            length => Err(PasswordError::TooLong(length)),
        }
    }

    /// The key itself, for the socket option only.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_key_and_its_length() {
        let key = Password::new(*b"s3cret").unwrap();
        assert_eq!(format!("{key:?}"), "Password(..)");
        assert_eq!(key.expose(), b"s3cret");
    }

    #[test]
    fn keys_the_kernel_would_refuse_are_refused_here() {
        assert_eq!(Password::new(vec![]), Err(PasswordError::Empty));
        assert_eq!(Password::new(vec![0; 81]), Err(PasswordError::TooLong(81)));
        assert!(Password::new(vec![0; 80]).is_ok());
    }
}
