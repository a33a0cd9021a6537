//! The `vmio` binary. All of it is in the library beside, so that tests and benches reach it.

fn main() -> std::process::ExitCode {
    // Started by another vmio, to end what that leaves running when it is killed.
    vmio_node::warden::serve();
    // Or to be its modelled disk.
    vmio_rig::disks::modelled::server::serve();
    // Or to look at what storage may hold back for ever.
    vmio_node::errand::serve();
    // Or to run behind another one, where storage may hold it.
    vmio::front::adopt();
    let code = vmio::cli::main();
    vmio_node::errand::end();
    code
}
