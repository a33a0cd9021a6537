//! The balloon of a guest (QMP `balloon`, `query-balloon`: qapi/machine.json of QEMU).

use std::sync::{Arc, PoisonError};

use serde_json::{Value, json};
use vmio_node::qmp;

use super::super::{Balloon, Result};
use super::SharedQmp;

/// Id of its device.
pub const ID: &str = "balloon0";
/// Its driver in a guest's kernel (drivers/virtio/virtio_balloon.c).
pub const MODULE: &str = crate::image::BALLOON;

/// The balloon of a guest, by the guest's monitor.
pub struct QemuBalloon {
    /// The guest's name in messages.
    pub guest: String,
    /// Its monitor.
    pub qmp: Arc<SharedQmp>,
}

impl QemuBalloon {
    fn ask(&self, command: &str, arguments: Value) -> Result<Value> {
        let mut qmp = self.qmp.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(qmp.execute(command, arguments)?)
    }
}

impl Balloon for QemuBalloon {
    fn actual_bytes(&self) -> Result<u64> {
        let command = "query-balloon";
        let answer = self.ask(command, json!({}))?;
        let odd = || qmp::Error {
            guest: self.guest.clone(),
            command: command.to_owned(),
            reason: format!("it told no size: {answer}"),
        };
        Ok(answer["actual"].as_u64().ok_or_else(odd)?)
    }
    fn aim_at(&self, bytes: u64) -> Result<()> {
        self.ask("balloon", json!({ "value": bytes })).map(drop)
    }
}
