//! sysctls under `/proc/sys`. `/proc/sys/net` shows the namespace of the *calling thread*, so these functions are only
//! right on a thread that is in the wanted namespace ([`super::Netns::run`], [`super::Netns::spawn`]).

use std::fs;
use std::io;

/// Reads a setting, for example `net/ipv4/ip_forward`, without the final newline.
pub fn read(key: &str) -> io::Result<String> {
    Ok(fs::read_to_string(path(key))?.trim_end().to_owned())
}

/// Writes a setting unless it has the value already; true when it was written. Some writes have side effects even when
/// nothing changes (`net/ipv6/conf/all/forwarding` resets every interface), hence the comparison.
pub fn write(key: &str, value: &str) -> io::Result<bool> {
    if read(key).is_ok_and(|current| current == value) {
        return Ok(false);
    }
    fs::write(path(key), value)?;
    Ok(true)
}

fn path(key: &str) -> String {
    format!("/proc/sys/{key}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Netns;

    #[test]
    fn a_write_in_another_namespace_leaves_our_own_value() {
        let key = "net/ipv4/conf/all/send_redirects";
        let before = read(key).unwrap();
        let other = if before == "1" { "0" } else { "1" };
        let netns = Netns::create().expect("needs root");
        let written = netns
            .run(move || {
                write(key, if other == "1" { "0" } else { "1" }).unwrap();
                write(key, other).unwrap();
                (read(key).unwrap(), write(key, other).unwrap())
            })
            .unwrap();
        assert_eq!(written, (other.to_owned(), false));
        assert_eq!(read(key).unwrap(), before);
        // No thread of this process has another namespace than the one it started in.
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        for task in fs::read_dir("/proc/self/task").unwrap() {
            let link = task.unwrap().path().join("ns/net");
            assert!(fs::read_link(link).map_or(true, |ns| ns == own));
        }
    }
}
