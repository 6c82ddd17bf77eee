//! The CNI executable. Everything it does is in the library's `plugin` module; here is the process around it.

use std::io::Write;
use std::process::ExitCode;

use margay_cni::plugin::{self, Output};
use margay_cni::{CniError, CniVersion, Code};

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let error = CniError::new(Code::INTERNAL, "the CNI plugin failed; this is a defect")
            .with_details(panic.to_string());
        print(&Output::error(&error, CniVersion::NEWEST));
        #[allow(
            clippy::exit,
            clippy::disallowed_methods,
            reason = "nothing is left to clean up, and abort prints more"
        )]
        std::process::exit(1);
    }));
    let mut args = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let program = args.next().unwrap_or_default();
    let args: Vec<String> = args.collect();
    let vars = std::env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect();
    let output = plugin::run(&program, &args, vars, &mut std::io::stdin().lock());
    ExitCode::from(print(&output))
}

/// Prints and returns the exit code; not being able to print is a failure of the call.
fn print(output: &Output) -> u8 {
    let _ = std::io::stderr().write_all(output.stderr.as_bytes());
    let mut stdout = std::io::stdout().lock();
    let written = match &output.stdout {
        None => Ok(()),
        Some(document) => writeln!(stdout, "{document}").and_then(|()| stdout.flush()),
    };
    if written.is_ok() { output.code } else { 1 }
}
