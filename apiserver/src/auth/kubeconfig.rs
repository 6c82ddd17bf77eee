//! kubeconfig files with everything in them, readable by their owner only.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::pki::{Authority, PkiError, write_private};

/// Issues a client certificate for `user` in `group` and writes a kubeconfig for `server` (a URL) to `out`.
pub fn write(
    authority: &Authority,
    user: &str,
    group: Option<&str>,
    server: &str,
    out: &Path,
) -> Result<(), PkiError> {
    let pair = authority.client(user, group)?;
    let encode = |text: &str| STANDARD.encode(text);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "margay", "cluster": {
            "server": server,
            "certificate-authority-data": encode(authority.certificate()),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": encode(&pair.certificate),
            "client-key-data": encode(&pair.key),
        }}],
        "contexts": [{"name": "margay", "context": {"cluster": "margay", "user": user}}],
        "current-context": "margay",
    });
    // JSON is YAML.
    let text = serde_json::to_string_pretty(&config).unwrap_or_default();
    write_private(out, &(text + "\n"))
}
