//! Writes the CustomResourceDefinition documents to `crds/manifests/`.

use std::path::Path;
use std::process::ExitCode;

use margay_crds::generate;

fn main() -> ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests");
    match write(&folder) {
        Ok(count) => {
            eprintln!("wrote {count} documents to {}", folder.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("margay-crd-gen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> Result<usize, Box<dyn std::error::Error>> {
    let manifests = generate::manifests()?;
    for manifest in &manifests {
        std::fs::write(folder.join(&manifest.file), &manifest.yaml)?;
    }
    std::fs::write(folder.join("all.rs"), generate::table(&manifests))?;
    Ok(manifests.len())
}
