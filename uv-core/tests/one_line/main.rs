//! The program of the guide's first chapter runs on every backend, and one line of it differs.

use std::io;

macro_rules! on {
    ($($(#[$cfg:meta])* $name:ident $backend:ident;)*) => {
        $(
            $(#[$cfg])*
            mod $name {
                use uv_core::backends::$backend as Backend;

                include!("server.rs");
            }
        )*

        /// The programs, by the names of their backends.
        const ALL: &[(&str, Program)] = &[$( $(#[$cfg])* (stringify!($name), $name::main), )*];
    };
}

type Program = fn() -> io::Result<()>;

on! {
    auto Auto;
    default DefaultBackend;
    #[cfg(has_epoll)]
    epoll Epoll;
    #[cfg(has_kqueue)]
    kqueue Kqueue;
    #[cfg(has_iocp)]
    iocp Iocp;
    #[cfg(has_uring)]
    uring Uring;
    #[cfg(has_poll)]
    poll Poll;
    #[cfg(has_select)]
    select Select;
}

#[test]
fn one_line_chooses_the_backend() {
    for (name, main) in ALL {
        if uv_core::backends::Auto::NAMES.contains(name)
            && let Err(error) = uv_core::backends::Auto::named(name)
        {
            eprintln!("skip: {name} does not work here: {error}");
            continue;
        }
        main().unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// What is tested is what the guide prints, but for the line.
#[test]
fn the_program_is_that_of_the_guide() {
    let chapter = include_str!("../../src/guide/first_server.md");
    let program = chapter.split("```\n").find(|text| text.contains("as Backend;")).unwrap();
    let mut lines: Vec<String> = program.lines().map(shown).collect();
    let line = lines.iter().position(|line| line.contains("as Backend;")).unwrap();
    lines.remove(line);
    let words = |text: &str| text.split_whitespace().collect::<String>();
    let tested = include_str!("server.rs").replace("pub(super) ", "");
    assert_eq!(words(&lines.concat()), words(&tested));
}

/// A line of an example, which may be hidden.
fn shown(line: &str) -> String {
    line.strip_prefix('#').unwrap_or(line).to_owned() + "\n"
}
