//! The `vmio` binary. The rest is in the library, which tests and benches use.

fn main() -> std::process::ExitCode {
    // Each of these returns at once unless this process was started as that helper. First the reaper.
    vmio_node::reaper::serve();
    // The server of a modelled disk.
    vmio_rig::disks::modelled::server::serve();
    // The I/O worker, which calls storage that may never answer.
    vmio_node::io_worker::serve();
    // The run itself, under a supervisor, where storage may hold it.
    vmio::supervisor::adopt();
    let code = vmio::cli::main();
    vmio_node::io_worker::end();
    code
}
