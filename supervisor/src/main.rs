//! The `supervise` program.
fn main() -> std::process::ExitCode {
    supervise::main()
}
