//! The `vmio` binary. All of it is in the library beside, so that tests and benches reach it.

fn main() -> std::process::ExitCode {
    vmio::cli::main()
}
