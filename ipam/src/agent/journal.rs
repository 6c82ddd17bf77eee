//! The journal: what was handed out or released and is not in the blocks yet.
//!
//! One JSON object per line, appended with one write before the caller gets its answer. The file is meant for a tmpfs:
//! it has to outlive the process and not the host, because a reboot ends every sandbox; so it is not synced. A line cut
//! short by a crash is the last one and was never answered.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::state::Local;
use crate::block::Claim;

const SCHEMA: u32 = 1;
/// Lines beyond which the file is rewritten when most of them are obsolete.
const COMPACT_ABOVE: usize = 256;

/// Whose journal it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    schema: u32,
    /// Boot id of the host.
    boot: String,
    /// Node name.
    node: String,
}

impl Header {
    pub(super) fn new(boot: &str, node: &str) -> Self {
        Header {
            schema: SCHEMA,
            boot: boot.to_owned(),
            node: node.to_owned(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
enum Record {
    /// Handed out.
    Out {
        ip: IpAddr,
        handle: Option<String>,
        attrs: BTreeMap<String, String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<String>,
        at: Timestamp,
    },
    /// Released.
    Cool {
        ip: IpAddr,
        handle: Option<String>,
        at: Timestamp,
    },
    /// The block says what there is to say.
    Done { ip: IpAddr },
}

impl Record {
    fn of(ip: IpAddr, local: &Local) -> Self {
        match local {
            Local::Handed { claim, since, from } => Record::Out {
                ip,
                handle: claim.handle.clone(),
                attrs: claim.attrs.clone(),
                from: from.clone(),
                at: *since,
            },
            Local::Cooling { handle, since } => Record::Cool {
                ip,
                handle: handle.clone(),
                at: *since,
            },
        }
    }
}

/// The open journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    header: Header,
    file: Option<File>,
    lines: usize,
}

/// What a journal contained.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// State of addresses by address.
    pub(super) locals: BTreeMap<IpAddr, Local>,
    /// True when it was written before the host was booted: nothing it says is in use any more.
    pub(super) stale: bool,
}

impl Journal {
    /// Opens the journal and reads what is in it. A journal of another node or of a newer version is moved aside, one of
    /// an earlier boot is read and then begun anew.
    ///
    /// # Errors
    /// The file cannot be read, or its folder cannot be created.
    pub(super) fn open(path: &Path, header: Header) -> io::Result<(Self, Replay)> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error),
        };
        let replay = match text.lines().next().map(serde_json::from_str::<Header>) {
            None => Replay::default(),
            Some(Ok(found)) if found.schema == SCHEMA && found.node == header.node => Replay {
                locals: replay(&text),
                stale: found.boot != header.boot,
            },
            Some(_) => {
                let aside = path.with_extension("unknown");
                tracing::warn!(path = %path.display(), moved_to = %aside.display(), "journal not understood");
                fs::rename(path, aside)?;
                Replay::default()
            }
        };
        let mut journal = Journal {
            path: path.to_owned(),
            header,
            file: None,
            lines: 0,
        };
        journal.rewrite(&replay.locals)?;
        Ok((journal, replay))
    }

    /// Notes the state of an address.
    ///
    /// # Errors
    /// The line could not be written; the address must then not be handed out.
    pub(super) fn note(&mut self, ip: IpAddr, local: &Local) -> io::Result<()> {
        self.append(&Record::of(ip, local))
    }

    /// Notes that the block of an address says what there is to say. Losing this line is harmless.
    pub(super) fn done(&mut self, ip: IpAddr) {
        if let Err(error) = self.append(&Record::Done { ip }) {
            tracing::warn!(%error, "journal not written");
        }
    }

    /// Rewrites the file when most of it is obsolete.
    pub(super) fn compact(&mut self, locals: &BTreeMap<IpAddr, Local>) {
        if self.lines > COMPACT_ABOVE
            && self.lines > 4 * locals.len()
            && let Err(error) = self.rewrite(locals)
        {
            tracing::warn!(%error, "journal not compacted");
        }
    }

    fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        let file = self
            .file
            .as_mut()
            .ok_or_else(|| io::Error::other("journal is not open"))?;
        file.write_all(&line)?;
        self.lines += 1;
        Ok(())
    }

    fn rewrite(&mut self, locals: &BTreeMap<IpAddr, Local>) -> io::Result<()> {
        let mut text = serde_json::to_vec(&self.header)?;
        text.push(b'\n');
        for (ip, local) in locals {
            serde_json::to_writer(&mut text, &Record::of(*ip, local))?;
            text.push(b'\n');
        }
        let next = self.path.with_extension("new");
        fs::write(&next, &text)?;
        let file = OpenOptions::new().append(true).open(&next)?;
        fs::rename(&next, &self.path)?;
        self.file = Some(file);
        self.lines = locals.len();
        Ok(())
    }
}

fn replay(text: &str) -> BTreeMap<IpAddr, Local> {
    let mut locals = BTreeMap::new();
    for line in text.lines().skip(1) {
        match serde_json::from_str::<Record>(line) {
            Ok(Record::Out {
                ip,
                handle,
                attrs,
                from,
                at,
            }) => {
                let claim = Claim { handle, attrs };
                locals.insert(
                    ip,
                    Local::Handed {
                        claim,
                        since: at,
                        from,
                    },
                );
            }
            Ok(Record::Cool { ip, handle, at }) => {
                locals.insert(ip, Local::Cooling { handle, since: at });
            }
            Ok(Record::Done { ip }) => {
                locals.remove(&ip);
            }
            // Cut short by a crash before the caller got its answer.
            Err(error) => tracing::info!(%error, "incomplete line of the journal ignored"),
        }
    }
    locals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handed(handle: &str) -> Local {
        let claim = Claim {
            handle: Some(handle.into()),
            attrs: BTreeMap::new(),
        };
        Local::Handed {
            claim,
            since: Timestamp::UNIX_EPOCH,
            from: None,
        }
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn what_was_noted_comes_back_and_a_torn_line_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ipam/journal");
        let open = |boot: &str| Journal::open(&path, Header::new(boot, "n1")).expect("opens");
        let (mut journal, _) = open("b1");
        journal.note(ip(1), &handed("a")).expect("written");
        journal.note(ip(2), &handed("b")).expect("written");
        journal.done(ip(1));
        journal
            .note(
                ip(2),
                &Local::Cooling {
                    handle: Some("b".into()),
                    since: Timestamp::UNIX_EPOCH,
                },
            )
            .expect("written");
        journal.note(ip(3), &handed("c")).expect("written");
        drop(journal);
        let whole = fs::read(&path).expect("readable");
        fs::write(&path, &whole[..whole.len() - 9]).expect("writable");
        let (_, replay) = open("b1");
        assert!(!replay.stale);
        assert_eq!(replay.locals.keys().copied().collect::<Vec<_>>(), [ip(2)]);
        assert!(matches!(replay.locals[&ip(2)], Local::Cooling { .. }));
        let (_, replay) = open("b2");
        assert!(replay.stale);
    }

    #[test]
    fn the_journal_of_another_node_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path, Header::new("b", "n1")).expect("opens");
        journal.note(ip(1), &handed("a")).expect("written");
        let (_, replay) = Journal::open(&path, Header::new("b", "n2")).expect("opens");
        assert!(replay.locals.is_empty());
    }

    #[test]
    fn a_long_journal_shrinks_to_what_matters() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("journal");
        let (mut journal, _) = Journal::open(&path, Header::new("b", "n1")).expect("opens");
        let mut locals = BTreeMap::new();
        for _ in 0..300 {
            journal.note(ip(1), &handed("a")).expect("written");
        }
        locals.insert(ip(1), handed("a"));
        let before = fs::metadata(&path).expect("exists").len();
        journal.compact(&locals);
        assert!(fs::metadata(&path).expect("exists").len() < before / 10);
        journal.note(ip(2), &handed("b")).expect("still open");
        let (_, replay) = Journal::open(&path, Header::new("b", "n1")).expect("opens");
        assert_eq!(replay.locals.len(), 2);
    }
}
