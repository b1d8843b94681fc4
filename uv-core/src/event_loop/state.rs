//! Values of the program that live in the loop, one for each type.

use std::any::Any;
use std::fmt;

use poll_core::Backend;

use crate::Loop;
use crate::storage::contain;

/// The states of a loop. A program has one or two types, so that a search is a comparison.
#[derive(Default)]
pub(crate) struct States(Vec<Box<dyn Any>>);

impl States {
    fn get<S: Default + 'static>(&mut self) -> &mut S {
        let found = self.0.iter().position(|state| state.is::<S>());
        let at = found.unwrap_or_else(|| {
            self.0.push(Box::new(S::default()));
            self.0.len() - 1
        });
        match self.0[at].downcast_mut() {
            Some(state) => state,
            None => unreachable!("the position was found by the type"),
        }
    }
}

impl Drop for States {
    fn drop(&mut self) {
        // One by one: a destructor that panics must not keep the others from running.
        self.0.drain(..).for_each(|state| contain(|| drop(state)));
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "States({})", self.0.len())
    }
}

impl<B: Backend> Loop<B> {
    /// The loop's value of type `S`, which is created by its `Default` the first time.
    ///
    /// A callback gets the loop, so it reaches the state of the program without an `Rc` or a
    /// `RefCell`. The loop has one value for each type: parts of a program that do not know each
    /// other use types of their own. A type without a default is kept as an `Option` of it. The
    /// values are dropped with the loop.
    ///
    /// ```
    /// use std::collections::HashMap;
    /// use uv_core::{Handle, Loop, RunMode, Tcp};
    ///
    /// #[derive(Default)]
    /// struct Chat {
    ///     names: HashMap<Tcp, String>,
    /// }
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// lp.state::<Chat>().names.insert(one, "Ada".into());
    /// lp.defer(move |lp| {
    ///     assert_eq!(lp.state::<Chat>().names[&one], "Ada");
    /// });
    /// # one.close(&mut lp)?; other.close(&mut lp)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_loop_set_data")]
    #[doc(alias = "uv_loop_get_data")]
    pub fn state<S: Default + 'static>(&mut self) -> &mut S {
        self.states.get()
    }

    /// Calls `f` with the loop and its [state](Loop::state) of type `S` side by side, to use
    /// handles while the state is borrowed.
    ///
    /// No call of the API runs a callback inline, so no other code uses the state meanwhile. The
    /// state is moved out for the call: inside, [`state`](Loop::state) of the same type is a new
    /// default, which is dropped at the end.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// #[derive(Default)]
    /// struct Room(Vec<Tcp>);
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// lp.state::<Room>().0.push(one);
    /// lp.with_state(|lp, room: &mut Room| {
    ///     for &member in &room.0 {
    ///         member.send(lp, "hello"); // Uses the loop while `room` is borrowed.
    ///     }
    ///     room.0.clear();
    /// });
    /// assert!(lp.state::<Room>().0.is_empty());
    /// # one.close(&mut lp)?; other.close(&mut lp)?;
    /// # lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn with_state<S: Default + 'static, R>(
        &mut self,
        f: impl FnOnce(&mut Loop<B>, &mut S) -> R,
    ) -> R {
        let state = std::mem::take(self.state::<S>());
        // The closure drops a state that was stored in the loop meanwhile.
        self.finally(state, |lp, mut state| std::mem::swap(lp.state(), &mut state), f)
    }
}
