//! Binary and thin library: driver, command line, words.
/// Runs the program: parses the command line, does what it says, returns the documented exit code.
pub fn main() -> std::process::ExitCode {
    if let Some(code) = helper() {
        return code;
    }
    std::process::ExitCode::SUCCESS
}

/// Our own helpers are this program, executed again: they come before anything else is set up.
fn helper() -> Option<std::process::ExitCode> {
    let mut args = std::env::args_os().skip(1);
    let code = match args.next()?.to_str()? {
        "__guard" => supervise_host::guard::main(&args.collect::<Vec<_>>()),
        "__sink" => supervise_host::sink::main(),
        _ => return None,
    };
    Some(u8::try_from(code).map_or(std::process::ExitCode::FAILURE, std::process::ExitCode::from))
}
