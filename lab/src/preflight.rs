//! What a machine must have before a lab starts: found out first, told in one line each with the remedy.

use crate::error::{Error, Kind, Result};
use crate::names::netns_path;
use crate::namespaces;
use crate::programs;
use std::path::Path;
use std::process::Command;

/// Checks what can be checked without making anything: Linux, root, programs.
///
/// # Errors
/// [`Kind::Preflight`] with cause and remedy.
pub(crate) fn machine() -> Result<()> {
    if !cfg!(target_os = "linux") || !Path::new("/proc/self/ns/net").exists() {
        return Err(missing(
            "a lab needs Linux network namespaces",
            "/proc/self/ns/net does not exist",
            "run on Linux, in a virtual machine or a privileged container",
        ));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(missing(
            "a lab needs root",
            "network and mount namespaces cannot be made without it",
            "run the command with sudo",
        ));
    }
    if programs::on_path("ip").is_none() {
        return Err(missing(
            "a lab needs the command ip",
            "it is not on PATH",
            "apt-get install iproute2",
        ));
    }
    Ok(())
}

/// Checks in a fresh network namespace that the kernel has what the agents use: veth, bridge, VXLAN, nf_tables.
///
/// # Errors
/// [`Kind::Preflight`], naming the missing piece.
pub(crate) fn kernel(netns: &str) -> Result<()> {
    let devices = [
        ("veth", "peer name pf1"),
        ("bridge", ""),
        ("vxlan", "id 1 dstport 4789 dev lo"),
    ];
    for (kind, more) in devices {
        let ip = programs::on_path("ip").unwrap_or_else(|| "ip".into());
        let mut command = Command::new(ip);
        command
            .args(["-n", netns, "link", "add", "pf0", "type", kind])
            .args(more.split_whitespace());
        let output = command
            .output()
            .map_err(|e| Error::new("cannot run ip", e))?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(missing(
                &format!("the kernel cannot make {kind} devices"),
                &why,
                &format!("modprobe {kind}"),
            ));
        }
        let mut delete = Command::new("ip");
        delete.args(["-n", netns, "link", "del", "pf0"]);
        delete
            .output()
            .map_err(|e| Error::new("cannot run ip", e))?;
    }
    let path = netns_path(netns);
    let opened = namespaces::in_netns(&path, nf_tables)
        .map_err(|e| Error::new("cannot enter a network namespace", e))?;
    opened.map_err(|e| {
        missing(
            "the kernel has no nf_tables",
            &e.to_string(),
            "modprobe nf_tables",
        )
    })
}

/// Whether nf_tables answers on netlink: asks for the generation number (NFT_MSG_GETGEN).
fn nf_tables() -> std::io::Result<()> {
    use nix::sys::socket::{
        AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
        socket,
    };
    use std::os::fd::AsRawFd;
    const NFNL_SUBSYS_NFTABLES: u16 = 10;
    const NFT_MSG_GETGEN: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const NLMSG_ERROR: u16 = 2;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    let mut request = Vec::with_capacity(20);
    request.extend(20_u32.to_ne_bytes());
    request.extend((NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN).to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([1, 0, 0, 0, 0, 0, 0, 0]); // sequence, port
    request.extend([0, 0, 0, 0]); // nfgenmsg: family, version, resource
    send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut answer = [0_u8; 256];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    if length >= 20 && kind == NLMSG_ERROR {
        let code = i32::from_ne_bytes([answer[16], answer[17], answer[18], answer[19]]);
        return Err(std::io::Error::from_raw_os_error(-code));
    }
    Ok(())
}

fn missing(what: &str, why: &str, remedy: &str) -> Error {
    Error::new(what, why).kind(Kind::Preflight).remedy(remedy)
}
