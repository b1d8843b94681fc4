//! Runtimes of futures: a task for each read in flight.

#[cfg(feature = "compio")]
mod compio;
#[cfg(feature = "glommio")]
mod glommio;
#[cfg(feature = "monoio")]
mod monoio;
mod tokio;

use super::job::Job;
#[cfg(any(feature = "compio", feature = "monoio", feature = "glommio"))]
use crate::suite::ContestantId;
use crate::suite::Entrants;

pub(super) fn enter(entrants: &mut Entrants, job: &Job) {
    tokio::enter(entrants, job);
    #[cfg(feature = "compio")]
    job.enter(entrants, ContestantId::Peer("compio"), compio::run);
    #[cfg(feature = "monoio")]
    job.enter(entrants, ContestantId::Peer("monoio"), monoio::run);
    #[cfg(feature = "glommio")]
    job.enter(entrants, ContestantId::Peer("glommio"), glommio::run);
    entrants.skip_unbuilt(&["compio", "monoio", "glommio"]);
}
