//! From a study to samples: what a run will do ([`plan`]), the loop that asks the study what comes
//! next ([`measure`]), where results go ([`store`]). Under the loop lie what is there for the length of a run (`bed`),
//! what puts a cell's actors on it (`stage`), and what boots guests and runs cells (`runner`).

mod bed;
pub mod environment;
pub mod measure;
pub mod plan;
mod run;
mod runner;
mod so_far;
mod stage;
mod stop;
pub mod store;
pub mod watcher;

pub use run::{Job, run};
pub use so_far::spent;
pub use stop::StopCause;
pub use store::Store;
