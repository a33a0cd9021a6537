//! From a study to samples: what a run will do ([`plan`]), the loop that asks the study what comes
//! next ([`measure`]), the machine under it ([`machine`]), where results go ([`store`]).

pub mod afar;
pub mod environment;
pub mod machine;
pub mod measure;
pub mod plan;
mod run;
mod so_far;
mod stop;
pub mod store;
pub mod watcher;

pub use run::{Job, run};
pub use so_far::spent;
pub use stop::StopCause;
pub use store::Store;
