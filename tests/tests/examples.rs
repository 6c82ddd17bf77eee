//! Every file of `examples/` is taken by the program it is for.
#![allow(clippy::unwrap_used, clippy::expect_used)] // a panic is how a test fails

use margay_lab::Lab;
use margay_tests::{repository_file, text_of, up};
use std::path::PathBuf;
use std::process::Command;

fn peer(name: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache =
        cache.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"));
    let file = cache.join("margay/bin").join(name);
    assert!(
        file.exists(),
        "{} is missing: run make setup",
        file.display()
    );
    file
}

fn accepts(command: &mut Command) {
    let out = command.output().unwrap();
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(out.status.success(), "{text}");
}

#[test]
fn bird_accepts_its_configuration() {
    accepts(
        Command::new(peer("bird"))
            .args(["-p", "-c"])
            .arg(repository_file("examples/tor/bird.conf")),
    );
}

#[test]
fn gobgp_accepts_its_configuration() {
    accepts(
        Command::new(peer("gobgpd"))
            .args(["--dry-run", "-f"])
            .arg(repository_file("examples/tor/gobgp.toml")),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_accepts_every_manifest() {
    let lab = up(Lab::builder().nodes(1).pods_per_node(0)).await;
    let mut seen = 0;
    for folder in ["pools", "peers", "bgp"] {
        for entry in std::fs::read_dir(repository_file("examples").join(folder)).unwrap() {
            let file = format!("examples/{folder}/{}", entry.unwrap().file_name().display());
            if let Err(e) = lab.apply(&text_of(&file)).await {
                panic!("{file}: {e}");
            }
            seen += 1;
        }
    }
    assert!(seen >= 10, "only {seen} manifests were found");
}
