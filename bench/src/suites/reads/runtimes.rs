//! Runtimes of futures: a task for each read in flight.

#[cfg(feature = "compio")]
mod compio;
#[cfg(feature = "glommio")]
mod glommio;
#[cfg(feature = "monoio")]
mod monoio;
mod tokio;

use super::job::Job;
use crate::suite::{ContestantId, Entrants};

pub(super) fn enter(entrants: &mut Entrants, job: &Job) {
    tokio::enter(entrants, job);
    #[cfg(feature = "compio")]
    job.enter(entrants, ContestantId::Peer("compio"), compio::run);
    #[cfg(feature = "monoio")]
    job.enter(entrants, ContestantId::Peer("monoio"), monoio::run);
    #[cfg(feature = "glommio")]
    job.enter(entrants, ContestantId::Peer("glommio"), glommio::run);
    for (name, is_there) in [
        ("compio", cfg!(feature = "compio")),
        ("monoio", cfg!(feature = "monoio")),
        ("glommio", cfg!(feature = "glommio")),
    ] {
        if !is_there {
            entrants.skip(ContestantId::Peer(name), crate::suites::not_in_this_build(name));
        }
    }
}
