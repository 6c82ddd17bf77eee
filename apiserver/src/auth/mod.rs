//! Who is asking: client certificates of the server's own CA, or bearer tokens from a file.
//!
//! There is no authorisation beyond that: every identity that can prove itself may do everything. The server is for
//! labs and for clusters whose only clients are the operator and the agents.

pub mod kubeconfig;
pub mod pki;
pub mod tokens;

use x509_parser::prelude::{FromDer, X509Certificate};

/// An authenticated client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Common name of the certificate, or the token's user.
    pub user: String,
    /// Organisations of the certificate, or the token's groups.
    pub groups: Vec<String>,
}

/// Reads user and groups from a certificate that the TLS layer has already verified.
pub fn from_certificate(der: &[u8]) -> Option<Identity> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let user = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok())
        .map(str::to_owned)
        .collect();
    Some(Identity { user, groups })
}
