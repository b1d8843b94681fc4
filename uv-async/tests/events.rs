//! Signals, file changes, foreign descriptors, terminals, local sockets, names and deadlines, on every
//! backend.

#![cfg(unix)]

mod common;

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use common::{Runtime, every, serial};
use uv_async::{
    AsyncPoll, Child, FsChange, FsEvents, LoopExt, Signal, TcpListener, TcpStream, Tty,
    UnixListener, UnixStream,
};
use uv_core::{Command, FsEvent, FsEventFlags, Handle, PollEvents, signum};

/// Runs a case on each backend; nothing may be left afterwards.
fn each(case: impl AsyncFn(Runtime) -> io::Result<()>) {
    let _serial = serial();
    every(|lp| {
        lp.block_on(async |rt| case(rt).await).unwrap().unwrap();
        for _ in 0..200 {
            if !lp.walk().is_empty() {
                lp.run(uv_core::RunMode::NoWait).unwrap();
            }
        }
        assert!(lp.walk().is_empty(), "handles are left: {:?}", lp.walk());
    });
}

/// A path that no other test uses.
fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("uv-async-{name}-{}", std::process::id()))
}

/// Raises a signal in this thread: its handler has run when this returns. One for the process could
/// wait for another thread.
fn raise(signum: i32) -> io::Result<()> {
    // SAFETY: no memory is passed, and uv-core has installed a handler that any thread may run.
    match unsafe { libc::raise(signum) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[test]
fn signals_are_queued_and_their_handles_go_to_callbacks() {
    each(async |rt| {
        let mut signal = Signal::new(&rt, signum::SIGUSR1)?;
        for _ in 0..3 {
            raise(signum::SIGUSR1)?;
            signal.recv().await;
        }
        // A dropped wait loses none.
        assert!(rt.timeout(Duration::from_millis(1), signal.recv()).await.is_err());
        raise(signum::SIGUSR1)?;
        rt.sleep(Duration::from_millis(5)).await;
        let (key, unread) = signal.into_key();
        assert_eq!(unread, 1);
        let caught = Rc::new(Cell::new(0));
        let inside = Rc::clone(&caught);
        rt.with(|lp| key.start(lp, signum::SIGUSR1, move |_, _, _| inside.set(inside.get() + 1)))?;
        raise(signum::SIGUSR1)?;
        while caught.get() == 0 {
            rt.sleep(Duration::from_millis(1)).await;
        }
        // And back.
        let mut signal = Signal::from_key(&rt, key, signum::SIGUSR2)?;
        raise(signum::SIGUSR2)?;
        signal.recv().await;
        assert_eq!(caught.get(), 1);
        Ok(())
    });
}

/// True for a change of that entry. Not every system names it.
fn is_of(change: &FsChange, name: &str) -> bool {
    match change {
        FsChange::Rename(path) | FsChange::Change(path) => {
            path == Path::new(name) || cfg!(not(target_os = "linux"))
        }
        _ => false,
    }
}

#[test]
fn changes_of_files_are_queued_and_their_handles_go_to_callbacks() {
    each(async |rt| {
        let directory = path("changes");
        std::fs::create_dir(&directory)?;
        let mut events = FsEvents::new(&rt, &directory, FsEventFlags::empty())?;
        std::fs::write(directory.join("one"), "1")?;
        assert!(is_of(&events.next().await?, "one"));
        let (key, _) = events.into_key();
        let mut events = FsEvents::from_key(&rt, key, &directory, FsEventFlags::empty())?;
        std::fs::write(directory.join("two"), "2")?;
        while !is_of(&events.next().await?, "two") {}
        drop(events);
        std::fs::remove_dir_all(&directory)?;
        assert!(FsEvents::new(&rt, &directory, FsEventFlags::empty()).is_err());
        let key = rt.with(FsEvent::new);
        assert!(FsEvents::from_key(&rt, key, &directory, FsEventFlags::empty()).is_err());
        Ok(())
    });
}

#[test]
fn a_foreign_descriptor_is_awaited_again_and_again() {
    each(async |rt| {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let mut reader = theirs.try_clone()?;
        let poll = AsyncPoll::from_key(&rt, rt.with(|lp| uv_core::Poll::new(lp, theirs))?);
        assert!(poll.readiness(PollEvents::WRITABLE).await?.contains(PollEvents::WRITABLE));
        for round in 0..3 {
            let waiting = poll.readiness(PollEvents::READABLE);
            assert!(rt.timeout(Duration::from_millis(1), waiting).await.is_err());
            ours.write_all(&[round])?;
            let ready = poll.readiness(PollEvents::READABLE).await?;
            assert!(ready.contains(PollEvents::READABLE));
            let mut byte = [0];
            reader.read_exact(&mut byte)?;
            assert_eq!(byte, [round]);
        }
        let key = poll.into_key();
        rt.with(|lp| {
            assert!(!key.is_active(lp));
            key.close(lp)
        })
    });
}

#[test]
fn a_child_is_given_up() {
    each(async |rt| {
        let child = Child::spawn(&rt, &Command::new("true"))?;
        let key = child.into_key();
        rt.with(|lp| key.close(lp))
    });
}

/// Both ends of a pseudo-terminal.
fn pseudo_terminal() -> io::Result<(std::fs::File, std::fs::File)> {
    use std::os::fd::{FromRawFd, OwnedFd};
    let (mut screen, mut program) = (-1, -1);
    let (name, mode, size) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: both descriptors outlive the call; the null pointers select defaults.
    if unsafe { libc::openpty(&mut screen, &mut program, name, mode, size) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `openpty` has just created them, and they have no other owner.
    let own = |fd| std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok((own(screen), own(program)))
}

#[test]
fn a_terminal_is_read_and_written() {
    each(async |rt| {
        let (mut screen, program) = pseudo_terminal()?;
        let key = rt.with(|lp| uv_core::Tty::new(lp, &program))?;
        let terminal = Tty::from_key(&rt, key);
        screen.write_all(b"typed\n")?;
        assert_eq!(&*terminal.lend().await?, b"typed\n");
        terminal.write_slice(b"shown").await?;
        let mut shown = vec![0; 7 + 5]; // The echo of the line, and the answer.
        screen.read_exact(&mut shown)?;
        assert_eq!(shown, b"typed\r\nshown");
        Ok(())
    });
}

#[test]
fn local_sockets_connect_by_a_path() {
    each(async |rt| {
        let path = path("socket");
        let listener = UnixListener::bind(&rt, &path)?;
        let client = UnixStream::connect(&rt, &path).await?;
        let server = listener.accept().await?;
        client.write_slice(b"question").await?;
        assert_eq!(&*server.lend().await?, b"question");
        server.write_slice(b"answer").await?;
        assert_eq!(&*client.lend().await?, b"answer");
        assert!(UnixStream::connect(&rt, path.with_extension("none")).await.is_err());
        Ok(())
    });
}

#[test]
fn hosts_are_connected_by_name() {
    each(async |rt| {
        let listener = TcpListener::bind(&rt, "127.0.0.1:0".parse().unwrap())?;
        let port = listener.local_addr()?.port();
        // The name may have an address of the other family first, where nothing listens.
        let stream = TcpStream::connect_host(&rt, "localhost", port).await?;
        assert_eq!(stream.peer_addr()?, listener.local_addr()?);
        assert_eq!(listener.accept().await?.peer_addr()?, stream.local_addr()?);
        Ok(())
    });
}

#[test]
fn a_deadline_is_not_before_its_time() {
    each(async |rt| {
        let deadline = rt.now() + Duration::from_millis(3);
        rt.sleep_until(deadline).await;
        assert!(rt.now() >= deadline);
        rt.sleep_until(Duration::ZERO).await; // It has passed.
        Ok(())
    });
}

#[test]
fn halves_read_and_write() {
    each(async |rt| {
        let (one, other) = TcpStream::pair(&rt)?;
        let (mut reader, mut writer) = one.split();
        let (mut far_reader, mut far_writer) = other.split();
        assert_eq!(writer.write(b"ab".to_vec()).await.0?, 2);
        writer.write_slice(b"cd").await?;
        writer.write_all(vec!["ef", "gh"]).await.0?;
        let (result, bytes) = far_reader.read_exact(vec![0; 8]).await;
        result?;
        assert_eq!(bytes, b"abcdefgh");
        let path = path("halves");
        std::fs::write(&path, "a file")?;
        let file = uv_core::fs::open(&path, uv_core::fs::OpenOptions::new().read(true));
        let file = rt.fs(file).await?;
        assert_eq!(far_writer.send_file(&file, 2..6).await?, 4);
        far_writer.shutdown().await?;
        let (count, bytes) = reader.read(vec![0; 9]).await;
        assert_eq!(&bytes[..count?], b"file");
        assert!(reader.lend().await?.is_empty());
        std::fs::remove_file(&path)
    });
}

/// A child that other code has reaped: each wait ends.
#[test]
fn every_wait_for_a_lost_child_ends() {
    each(async |rt| {
        let mut child = Child::spawn(&rt, &Command::new("true"))?;
        let pid = child.id()? as i32;
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
        let first = child.wait().await.unwrap_err();
        assert_eq!(first.raw_os_error(), Some(libc::ECHILD));
        let second = rt.timeout(Duration::from_secs(10), child.wait()).await.expect("it ends");
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::NotFound);
        Ok(())
    });
}
