//! The server's own certificate authority: made once, kept in the data directory, reused by every start.

use std::fs;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// Why the certificates could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("{path}: {cause}")]
    File {
        /// The file.
        path: String,
        /// The reason.
        cause: std::io::Error,
    },
    /// A stored certificate or key is unusable.
    #[error("{path} is not usable: {cause}; remove the pki folder to start over")]
    Damaged {
        /// The file.
        path: String,
        /// The reason.
        cause: String,
    },
    /// A certificate cannot be made.
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// There is no certificate authority to issue from.
    #[error("{0} holds no certificate authority: start the server there once")]
    Missing(String),
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Pair {
    /// Certificate.
    pub certificate: String,
    /// Private key.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pair")
    }
}

/// The certificate authority in a data directory.
#[derive(Debug)]
pub struct Authority {
    directory: PathBuf,
    pair: Pair,
}

impl Authority {
    /// Reads the authority below `data_dir`, or makes it when there is none.
    pub fn open_or_create(data_dir: &Path) -> Result<Self, PkiError> {
        let directory = data_dir.join("pki");
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(|cause| PkiError::File {
                path: directory.display().to_string(),
                cause,
            })?;
        if let Some(pair) = read_pair(&directory, "ca")? {
            return Ok(Self { directory, pair });
        }
        let key = KeyPair::generate()?;
        let mut params = parameters("margay-ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let certificate = params.self_signed(&key)?.pem();
        let pair = Pair {
            certificate,
            key: key.serialize_pem(),
        };
        write_pair(&directory, "ca", &pair)?;
        Ok(Self { directory, pair })
    }

    /// Reads the authority below `data_dir`; an error when there is none.
    pub fn open(data_dir: &Path) -> Result<Self, PkiError> {
        let directory = data_dir.join("pki");
        match read_pair(&directory, "ca")? {
            Some(pair) => Ok(Self { directory, pair }),
            None => Err(PkiError::Missing(data_dir.display().to_string())),
        }
    }

    /// The authority's certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.pair.certificate
    }

    /// The server's certificate, reused while it covers all of `names`.
    pub fn server(&self, names: &[String]) -> Result<Pair, PkiError> {
        if let Some(pair) = read_pair(&self.directory, "server")?
            && covers(&pair.certificate, names)
        {
            return Ok(pair);
        }
        let mut params = parameters("margay-apiserver");
        params.subject_alt_names = names.iter().filter_map(|n| san(n)).collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let pair = self.issue(params)?;
        write_pair(&self.directory, "server", &pair)?;
        Ok(pair)
    }

    /// A new client certificate for a user, in a group if given.
    pub fn client(&self, user: &str, group: Option<&str>) -> Result<Pair, PkiError> {
        let mut params = parameters(user);
        if let Some(group) = group {
            params
                .distinguished_name
                .push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params)
    }

    fn issue(&self, mut params: CertificateParams) -> Result<Pair, PkiError> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let authority_key = KeyPair::from_pem(&self.pair.key)?;
        let issuer = Issuer::from_ca_cert_pem(&self.pair.certificate, authority_key)?;
        let certificate = params.signed_by(&key, &issuer)?.pem();
        Ok(Pair {
            certificate,
            key: key.serialize_pem(),
        })
    }
}

/// Ten years, starting a day ago for clocks that are behind.
fn parameters(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    let now = jiff::Zoned::now().date();
    let day = |years: i16, days: i64| {
        let date = now
            .saturating_add(jiff::Span::new().years(years))
            .saturating_sub(jiff::Span::new().days(days));
        rcgen::date_time_ymd(
            i32::from(date.year()),
            date.month().unsigned_abs(),
            date.day().unsigned_abs(),
        )
    };
    params.not_before = day(0, 1);
    params.not_after = day(10, 1);
    params
}

fn san(name: &str) -> Option<SanType> {
    match name.parse::<IpAddr>() {
        Ok(address) => Some(SanType::IpAddress(address)),
        Err(_) => name.try_into().ok().map(SanType::DnsName),
    }
}

fn covers(pem: &str, names: &[String]) -> bool {
    let Ok((_, pem)) = x509_parser::pem::parse_x509_pem(pem.as_bytes()) else {
        return false;
    };
    let Ok((_, certificate)) = X509Certificate::from_der(&pem.contents) else {
        return false;
    };
    let Ok(Some(sans)) = certificate.subject_alternative_name() else {
        return false;
    };
    let have: Vec<String> = sans
        .value
        .general_names
        .iter()
        .filter_map(|n| match n {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            GeneralName::IPAddress(bytes) => match bytes.len() {
                4 => <[u8; 4]>::try_from(*bytes)
                    .ok()
                    .map(|b| IpAddr::from(b).to_string()),
                16 => <[u8; 16]>::try_from(*bytes)
                    .ok()
                    .map(|b| IpAddr::from(b).to_string()),
                _ => None,
            },
            _ => None,
        })
        .collect();
    certificate.validity().is_valid()
        && names.iter().all(|n| {
            let wanted = n
                .parse::<IpAddr>()
                .map_or_else(|_| n.clone(), |a| a.to_string());
            have.contains(&wanted)
        })
}

fn read_pair(directory: &Path, name: &str) -> Result<Option<Pair>, PkiError> {
    let read = |suffix: &str| {
        let path = directory.join(format!("{name}.{suffix}"));
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(PkiError::File {
                path: path.display().to_string(),
                cause,
            }),
        }
    };
    let (Some(certificate), Some(key)) = (read("crt")?, read("key")?) else {
        return Ok(None);
    };
    if let Err(cause) = KeyPair::from_pem(&key) {
        let path = directory.join(format!("{name}.key")).display().to_string();
        return Err(PkiError::Damaged {
            path,
            cause: cause.to_string(),
        });
    }
    Ok(Some(Pair { certificate, key }))
}

fn write_pair(directory: &Path, name: &str, pair: &Pair) -> Result<(), PkiError> {
    // The certificate last: a pair is complete only with it.
    write_private(&directory.join(format!("{name}.key")), &pair.key)?;
    write_private(&directory.join(format!("{name}.crt")), &pair.certificate)
}

/// Writes a file only its owner can read, durably and in one step.
pub fn write_private(path: &Path, text: &str) -> Result<(), PkiError> {
    let failed = |cause| PkiError::File {
        path: path.display().to_string(),
        cause,
    };
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(failed)?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(failed)?;
    fs::rename(&temporary, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_restart_reuses_everything_and_new_names_renew_only_the_server() {
        let dir = tempfile::tempdir().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let first = Authority::open_or_create(dir.path()).unwrap();
        let server = first.server(&names).unwrap();
        let again = Authority::open_or_create(dir.path()).unwrap();
        assert_eq!(again.certificate(), first.certificate());
        assert_eq!(
            again.server(&names[..1]).unwrap().certificate,
            server.certificate
        );
        let more = again.server(&["other.example".to_owned()]).unwrap();
        assert_ne!(more.certificate, server.certificate);
        assert_eq!(
            Authority::open(dir.path()).unwrap().certificate(),
            first.certificate()
        );
    }

    #[test]
    fn keys_are_private() {
        let dir = tempfile::tempdir().unwrap();
        Authority::open_or_create(dir.path()).unwrap();
        let mode = fs::metadata(dir.path().join("pki/ca.key"))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn client_certificates_carry_user_and_group() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::open_or_create(dir.path()).unwrap();
        let pair = authority.client("ada", Some("ops")).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(pair.certificate.as_bytes()).unwrap();
        let identity = super::super::from_certificate(&pem.contents).unwrap();
        assert_eq!(identity.user, "ada");
        assert_eq!(identity.groups, ["ops"]);
    }
}
