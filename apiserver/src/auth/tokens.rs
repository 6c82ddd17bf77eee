//! Bearer tokens from a file in Kubernetes' static token format: `token,user,uid[,"group1,group2"]` per line.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::Identity;

/// Why a token file is refused.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("cannot read the token file {path}: {cause}")]
    Read {
        /// The file.
        path: String,
        /// The reason.
        cause: std::io::Error,
    },
    /// Others than its owner may read it.
    #[error("the token file {path} has mode {mode:04o}: run chmod 600 {path}")]
    Permissions {
        /// The file.
        path: String,
        /// Its mode.
        mode: u32,
    },
    /// A line is not in the format. The line's text is a secret and not shown.
    #[error("line {line} of the token file {path} is not token,user,uid[,\"groups\"]")]
    Format {
        /// The file.
        path: String,
        /// Line number from 1.
        line: usize,
    },
}

/// Known tokens, kept as digests: looking one up takes the same time whether or not it is close to a valid one.
#[derive(Default)]
pub struct Tokens(HashMap<[u8; 32], Identity>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    /// Reads the file, which only its owner may be able to read.
    pub fn load(path: &Path) -> Result<Self, TokenFileError> {
        let shown = path.display().to_string();
        let read = |cause| TokenFileError::Read {
            path: shown.clone(),
            cause,
        };
        let mode = std::fs::metadata(path).map_err(read)?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(TokenFileError::Permissions { path: shown, mode });
        }
        let text = std::fs::read_to_string(path).map_err(|cause| TokenFileError::Read {
            path: shown.clone(),
            cause,
        })?;
        let mut tokens = HashMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (token, identity) = parse(line).ok_or(TokenFileError::Format {
                path: shown.clone(),
                line: index + 1,
            })?;
            tokens.insert(Sha256::digest(token.as_bytes()).into(), identity);
        }
        Ok(Self(tokens))
    }

    /// The identity behind a token.
    pub fn identity(&self, token: &str) -> Option<Identity> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        self.0.get(&digest).cloned()
    }
}

fn parse(line: &str) -> Option<(&str, Identity)> {
    let mut parts = line.splitn(4, ',');
    let (token, user, _uid) = (parts.next()?, parts.next()?, parts.next()?);
    if token.is_empty() || user.is_empty() {
        return None;
    }
    let groups = parts.next().unwrap_or_default().trim().trim_matches('"');
    let groups = groups.split(',').map(str::trim).filter(|g| !g.is_empty());
    Some((
        token,
        Identity {
            user: user.to_owned(),
            groups: groups.map(str::to_owned).collect(),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.as_file()
            .set_permissions(std::fs::Permissions::from_mode(mode))
            .unwrap();
        file
    }

    #[test]
    fn tokens_map_to_users_and_groups() {
        let file = file("# comment\nabc,ada,1,\"g1,g2\"\nxyz,bob,2\n", 0o600);
        let tokens = Tokens::load(file.path()).unwrap();
        let ada = tokens.identity("abc").unwrap();
        assert_eq!((ada.user.as_str(), ada.groups.len()), ("ada", 2));
        assert!(tokens.identity("xyz").unwrap().groups.is_empty());
        assert!(tokens.identity("ab").is_none());
    }

    #[test]
    fn a_file_others_can_read_is_refused() {
        let file = file("abc,ada,1\n", 0o644);
        let error = Tokens::load(file.path()).unwrap_err().to_string();
        assert!(
            error.contains("0644") && error.contains("chmod 600"),
            "{error}"
        );
    }

    #[test]
    fn errors_name_the_line_and_never_the_token() {
        let file = file("abc,ada,1\nsecretwithoutuser\n", 0o600);
        let error = Tokens::load(file.path()).unwrap_err().to_string();
        assert!(
            error.contains("line 2") && !error.contains("secret"),
            "{error}"
        );
    }
}
