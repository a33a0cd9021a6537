//! The `vmio` binary. All of it is in the library beside, so that tests and benches reach it.

fn main() -> std::process::ExitCode {
    // Started by another vmio, to end what that leaves running when it is killed.
    vmio_node::reaper::serve();
    // Or to be its modelled disk.
    vmio_rig::disks::modelled::server::serve();
    // Or to call storage that may never answer.
    vmio_node::io_worker::serve();
    // Or to do a run under a supervisor, where storage may hold it.
    vmio::supervisor::adopt();
    let code = vmio::cli::main();
    vmio_node::io_worker::end();
    code
}
