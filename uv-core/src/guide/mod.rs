//! A guide, from a first server to a backend of one's own. Every snippet runs as a test.
//!
//! | page | |
//! |---|---|
//! | [`first_server`] | a server in ten minutes |
//! | [`the_loop`] | the phases of an iteration |
//! | [`handles`] | handles, requests, closing |
//! | [`state`] | where the state of a program lives |
//! | [`errors`] | one path for errors |
//! | [`streams`] | reading and writing with back-pressure |
//! | [`udp`] | datagrams, with retries |
//! | [`threads`] | threads, the pool, channels |
//! | [`files`] | files |
//! | [`processes`] | processes, signals, standard streams |
//! | [`choosing_a_backend`] | with measurements |
//! | [`writing_a_backend`] | in an afternoon: the trait, wakers, `fork` |
//! | [`testing`] | programs that have a loop |
//! | [`several_loops`] | a loop per core, connections that move, embedding |
//! | [`coming_from_libuv`], [`coming_from_mio`], [`coming_from_tokio`] | translations |
//! | [`platforms`] | what differs |
//! | [`cookbook`] | twenty answers |
//! | [`complete_server`] | lines, idle time-outs, a limit and a graceful end in one program |
//!
//! Complete programs are in the folder `examples`.

macro_rules! pages {
    ($($name:ident)*) => {$(
        #[doc = include_str!(concat!(stringify!($name), ".md"))]
        pub mod $name {}
    )*};
}

pages! {
    first_server the_loop handles state errors streams udp threads files processes choosing_a_backend
    writing_a_backend testing several_loops coming_from_libuv coming_from_mio coming_from_tokio
    platforms cookbook complete_server
}
