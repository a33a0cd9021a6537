//! Power by a management controller over HTTPS ([`crate::redfish`]), asked about once a second from this host.

use std::sync::Arc;
use std::time::Duration;

use vmio_model::figure::Figure;
use vmio_node::Node;

use super::poll::{self, Answer, Poll};
use super::{ByItself, Looking, Probe, ProbeMethod, ProbeSubject, Unseen, energy};
use crate::redfish::{Amount, Controller};

/// How long after a question the next one follows.
pub const EVERY: Duration = Duration::from_secs(1);
/// Time for one answer of a cell; later ones would not be used.
const LIMIT: Duration = Duration::from_secs(2);
/// Joules of a kilowatt hour.
const KILOWATT_HOUR: f64 = 3.6e6;

/// Entry of the list of probes.
pub struct Redfish;

impl Probe for Redfish {
    fn name(&self) -> &'static str {
        "redfish"
    }
    fn about(&self) -> &'static str {
        "energy and mean power of each chassis of the management controller that --power names, about once a second; \
         blind to faster changes"
    }
    fn figures(&self, _: &ProbeSubject) -> Vec<Figure> {
        energy::figures()
    }
    fn sees(&self, subject: &ProbeSubject) -> bool {
        matches!(subject, ProbeSubject::Redfish(_))
    }
    fn method(&self) -> ProbeMethod {
        ProbeMethod::Own(&Redfish)
    }
}

impl ByItself for Redfish {
    fn start(&self, subject: &ProbeSubject, _: &Arc<dyn Node>) -> Result<Box<dyn Looking>, Unseen> {
        let ProbeSubject::Redfish(controller) = subject else {
            return Err(Unseen::OtherSubject("it is not a management controller"));
        };
        let controller = Arc::clone(controller);
        Poll::start("redfish", EVERY, move || ask(&controller))
    }
}

fn ask(controller: &Controller) -> Answer {
    let amount = |amount| match amount {
        Amount::Watts(watts) => poll::Amount::Watts(watts),
        Amount::KilowattHours(kwh) => poll::Amount::Joules(kwh * KILOWATT_HOUR),
    };
    let all = controller.amounts(LIMIT)?;
    Ok(all.into_iter().map(|(domain, told)| (domain, amount(told))).collect())
}
