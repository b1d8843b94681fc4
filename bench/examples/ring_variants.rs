//! The cost of bundles and registered files: the measurements behind two decisions in `DESIGN.md`.
//!
//! ```sh
//! cargo run --release -p bench --example ring_variants
//! ```
//!
//! A hand-written echo server on a ring, in a thread on one core, with clients in a thread on
//! another: multishot receives into provided buffers, and sends from them. Each variant changes one
//! property; the last uses `epoll(7)` with one buffer and direct writes. The figure is the server's
//! CPU time per request, the median of interleaved rounds; "again" repeats the first variant and
//! measures the noise.

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("io_uring needs Linux");
}

#[cfg(target_os = "linux")]
fn main() -> std::io::Result<()> {
    linux::main()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::VecDeque;
    use std::io::{self, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsRawFd, RawFd};
    use std::sync::atomic::{AtomicU16, Ordering};
    use std::{mem, ptr, thread};

    use io_uring::squeue::Entry;
    use io_uring::types::{BufRingEntry, Fd, Fixed};
    use io_uring::{IoUring, cqueue, opcode};

    const ROUNDS: usize = 7;
    const GROUP: u16 = 0;
    /// The maximum number of buffers of one send.
    const MOST: usize = 64;

    /// The kind of an operation; its user data is the kind and a connection.
    const RECEIVE: u64 = 0;
    const SEND: u64 = 1;

    #[derive(Clone, Copy)]
    struct Variant {
        name: &'static str,
        /// The size of a buffer; the buffers have 4 MiB in all.
        size: usize,
        way: Way,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Way {
        Plain,
        /// A receive fills several buffers, and a send takes several.
        Bundles,
        /// Connections are registered files.
        Files,
        Epoll,
    }

    const fn variant(name: &'static str, size: usize, way: Way) -> Variant {
        Variant { name, size, way }
    }

    const VARIANTS: [Variant; 7] = [
        variant("64 KiB buffers", 64 << 10, Way::Plain),
        variant("64 KiB buffers again", 64 << 10, Way::Plain),
        variant("registered files", 64 << 10, Way::Files),
        variant("16 KiB buffers", 16 << 10, Way::Plain),
        variant("16 KiB, bundles", 16 << 10, Way::Bundles),
        variant("4 KiB, bundles", 4 << 10, Way::Bundles),
        variant("epoll", 64 << 10, Way::Epoll),
    ];

    #[derive(Clone, Copy)]
    struct Cell {
        connections: usize,
        bytes: usize,
        depth: usize,
        /// The number of requests per connection.
        each: usize,
    }

    const CELLS: [Cell; 4] = [
        Cell { connections: 64, bytes: 64, depth: 1, each: 1_000 },
        Cell { connections: 64, bytes: 16 << 10, depth: 1, each: 300 },
        Cell { connections: 64, bytes: 16 << 10, depth: 16, each: 320 },
        Cell { connections: 512, bytes: 16 << 10, depth: 16, each: 64 },
    ];

    pub(super) fn main() -> io::Result<()> {
        for cell in CELLS {
            let Cell { connections, bytes, depth, .. } = cell;
            println!("{connections} connections, {bytes} bytes, {depth} in flight: ns per request");
            let mut spent = VARIANTS.map(|_| Vec::new());
            for _ in 0..ROUNDS {
                for (variant, spent) in VARIANTS.into_iter().zip(&mut spent) {
                    spent.push(round(cell, variant)?);
                }
            }
            let base = median(&mut spent[0].clone());
            for (variant, mut spent) in VARIANTS.into_iter().zip(spent) {
                let median = median(&mut spent);
                let (least, most) = (spent[0], spent[ROUNDS - 1]);
                let ratio = base / median;
                println!(
                    "  {:22} {median:8.0} ({least:.0} to {most:.0}), {ratio:.2}",
                    variant.name
                );
            }
        }
        Ok(())
    }

    fn median(values: &mut [f64]) -> f64 {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    /// The server's CPU time per request, in nanoseconds.
    fn round(cell: Cell, variant: Variant) -> io::Result<f64> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for _ in 0..cell.connections {
            let client = TcpStream::connect(listener.local_addr()?)?;
            let server = listener.accept()?.0;
            for stream in [&client, &server] {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
            }
            near.push(server);
            far.push(client);
        }
        let clients = thread::spawn(move || {
            pin(1);
            drive(far, cell)
        });
        pin(0);
        let total = cell.connections * cell.bytes * cell.each;
        let spent = if variant.way == Way::Epoll {
            let before = cpu_ns();
            echo_by_epoll(&near, total)?;
            cpu_ns() - before
        } else {
            let mut server = Server::new(near, variant)?;
            let before = cpu_ns();
            server.serve(total)?;
            cpu_ns() - before
        };
        clients.join().expect("the client thread does not panic")?;
        Ok(spent as f64 / (cell.connections * cell.each) as f64)
    }

    /// Keeps the pipeline of each connection full until all requests are answered.
    fn drive(mut streams: Vec<TcpStream>, cell: Cell) -> io::Result<()> {
        let (total, window) = (cell.bytes * cell.each, cell.bytes * cell.depth);
        let (out, mut scratch) = (vec![7_u8; window], vec![0_u8; 256 << 10]);
        let mut moved = vec![(0_usize, 0_usize); streams.len()];
        let mut polls: Vec<_> = streams
            .iter()
            .map(|it| libc::pollfd { fd: it.as_raw_fd(), events: 0, revents: libc::POLLIN })
            .collect();
        let mut left = streams.len();
        while left > 0 {
            for (index, stream) in streams.iter_mut().enumerate() {
                let (sent, got) = &mut moved[index];
                if polls[index].revents == 0 || *got == total {
                    continue;
                }
                match stream.read(&mut scratch) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(count) => *got += count,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                // Whole requests only, one for each answer.
                let goal = (*got / cell.bytes * cell.bytes + window).min(total);
                while *sent < goal {
                    match stream.write(&out[..goal - *sent]) {
                        Ok(count) => *sent += count,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                        Err(error) => return Err(error),
                    }
                }
                polls[index].events = libc::POLLIN | if *sent < goal { libc::POLLOUT } else { 0 };
                if *got == total {
                    polls[index].fd = -1;
                    left -= 1;
                }
            }
            // SAFETY: pointer and length describe the array.
            unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 100) };
        }
        Ok(())
    }

    /// Echoes until `total` bytes have been sent. Rejected bytes wait until the socket is writable.
    fn echo_by_epoll(all: &[TcpStream], total: usize) -> io::Result<()> {
        // SAFETY: no memory is passed.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let change = |index: usize, how, events: i32| {
            let mut event = libc::epoll_event { events: events as u32, u64: index as u64 };
            // SAFETY: the event is a local variable.
            unsafe { libc::epoll_ctl(epoll, how, all[index].as_raw_fd(), &mut event) };
        };
        (0..all.len()).for_each(|index| change(index, libc::EPOLL_CTL_ADD, libc::EPOLLIN));
        let (mut scratch, mut left) = (vec![0_u8; 64 << 10], total);
        let mut waiting: Vec<Vec<u8>> = all.iter().map(|_| Vec::new()).collect();
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 1_024];
        while left > 0 {
            // SAFETY: pointer and length describe the array.
            let count = unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 1_024, -1) };
            for event in &events[..count.max(0) as usize] {
                let (index, mut stream) = (event.u64 as usize, &all[event.u64 as usize]);
                let blocked = !waiting[index].is_empty();
                let bytes = if blocked {
                    &waiting[index][..]
                } else {
                    match stream.read(&mut scratch) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                        count => &scratch[..count?],
                    }
                };
                let sent = match stream.write(bytes) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                    sent => sent?,
                };
                left -= sent;
                let rest = bytes[sent..].to_vec();
                if blocked == rest.is_empty() {
                    let wanted = if blocked { libc::EPOLLIN } else { libc::EPOLLOUT };
                    change(index, libc::EPOLL_CTL_MOD, wanted);
                }
                waiting[index] = rest;
            }
        }
        // SAFETY: opened above, and not used after this.
        unsafe { libc::close(epoll) };
        Ok(())
    }

    #[derive(Default)]
    struct Connection {
        /// Filled buffers and their lengths, in order.
        filled: VecDeque<(u16, usize)>,
        /// The number of bytes of the first buffer that were sent.
        sent: usize,
        is_sending: bool,
        /// The memory lent to a send.
        pieces: Vec<libc::iovec>,
        header: Option<Box<libc::msghdr>>,
    }

    struct Server {
        ring: IoUring,
        buffers: Buffers,
        variant: Variant,
        streams: Vec<TcpStream>,
        connections: Vec<Connection>,
        starved: Vec<usize>,
    }

    impl Server {
        fn new(streams: Vec<TcpStream>, variant: Variant) -> io::Result<Server> {
            let ring = IoUring::builder()
                .setup_single_issuer()
                .setup_coop_taskrun()
                .setup_defer_taskrun()
                .setup_cqsize(16_384)
                .build(4_096)?;
            let buffers = Buffers::new(&ring, variant.size)?;
            if variant.way == Way::Files {
                let files: Vec<RawFd> = streams.iter().map(AsRawFd::as_raw_fd).collect();
                ring.submitter().register_files(&files)?;
            }
            let connections = streams.iter().map(|_| Connection::default()).collect();
            Ok(Server { ring, buffers, variant, streams, connections, starved: Vec::new() })
        }

        /// Echoes until `total` bytes have been sent.
        fn serve(&mut self, total: usize) -> io::Result<()> {
            for index in 0..self.streams.len() {
                self.receive(index)?;
            }
            let (mut done, mut left) = (Vec::new(), total);
            while left > 0 {
                self.ring.submit_and_wait(1)?;
                let completions = self.ring.completion();
                done.extend(completions.map(|it| (it.user_data(), it.result(), it.flags())));
                for (data, result, flags) in done.drain(..) {
                    let index = (data >> 8) as usize;
                    match data & 0xff {
                        RECEIVE => self.received(index, result, flags)?,
                        _ => left -= self.sent(index, result)?,
                    }
                }
                for index in mem::take(&mut self.starved) {
                    self.receive(index)?;
                }
            }
            Ok(())
        }

        fn push(&mut self, entry: Entry, what: u64, index: usize) -> io::Result<()> {
            let entry = entry.user_data(what | (index as u64) << 8);
            loop {
                // SAFETY: the memory of the operations belongs to the server, which outlives them.
                let pushed = unsafe { self.ring.submission().push(&entry) };
                if pushed.is_ok() {
                    return Ok(());
                }
                self.ring.submit()?;
            }
        }

        fn receive(&mut self, index: usize) -> io::Result<()> {
            let (fd, file) = (Fd(self.streams[index].as_raw_fd()), Fixed(index as u32));
            let entry = match self.variant.way {
                Way::Bundles => opcode::RecvMultiBundle::new(fd, GROUP).build(),
                Way::Files => opcode::RecvMulti::new(file, GROUP).build(),
                _ => opcode::RecvMulti::new(fd, GROUP).build(),
            };
            self.push(entry, RECEIVE, index)
        }

        fn received(&mut self, index: usize, result: i32, flags: u32) -> io::Result<()> {
            let more = cqueue::more(flags);
            if result == -libc::ENOBUFS {
                self.starved.push(index);
                return Ok(());
            }
            if result <= 0 {
                return Err(io::Error::from_raw_os_error(-result));
            }
            let mut left = result as usize;
            while left > 0 {
                let part = left.min(self.variant.size);
                let buffer = self.buffers.taken();
                self.connections[index].filled.push_back((buffer, part));
                left -= part;
            }
            if !more {
                self.receive(index)?;
            }
            self.send(index)
        }

        fn send(&mut self, index: usize) -> io::Result<()> {
            let connection = &mut self.connections[index];
            if connection.is_sending || connection.filled.is_empty() {
                return Ok(());
            }
            connection.is_sending = true;
            let (buffers, mut skip) = (&self.buffers, connection.sent);
            let several = if self.variant.way == Way::Bundles { MOST } else { 1 };
            connection.pieces.clear();
            connection.pieces.extend(connection.filled.iter().take(several).map(
                |(buffer, len)| {
                    let start = buffers.start(*buffer).wrapping_add(skip);
                    let piece = libc::iovec { iov_base: start.cast(), iov_len: len - skip };
                    skip = 0;
                    piece
                },
            ));
            let (fd, file) = (Fd(self.streams[index].as_raw_fd()), Fixed(index as u32));
            let first = connection.pieces[0];
            let (start, len) = (first.iov_base.cast_const().cast(), first.iov_len as u32);
            let entry = if connection.pieces.len() > 1 {
                // SAFETY: plain data, for which all zeros are a valid value.
                let empty = || Box::new(unsafe { mem::zeroed() });
                let header = connection.header.get_or_insert_with(empty);
                header.msg_iov = connection.pieces.as_mut_ptr();
                header.msg_iovlen = connection.pieces.len() as _;
                opcode::SendMsg::new(fd, &**header).build()
            } else if self.variant.way == Way::Files {
                opcode::Send::new(file, start, len).build()
            } else {
                opcode::Send::new(fd, start, len).build()
            };
            self.push(entry, SEND, index)
        }

        fn sent(&mut self, index: usize, result: i32) -> io::Result<usize> {
            let mut left =
                usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))?;
            let connection = &mut self.connections[index];
            connection.is_sending = false;
            while let Some((buffer, len)) = connection.filled.front().copied() {
                let rest = len - connection.sent;
                if left < rest {
                    connection.sent += left;
                    break;
                }
                left -= rest;
                connection.sent = 0;
                connection.filled.pop_front();
                self.buffers.give_back(buffer);
            }
            self.send(index)?;
            Ok(result as usize)
        }
    }

    /// The provided buffers, which the kernel consumes in order.
    struct Buffers {
        entries: *mut BufRingEntry,
        memory: *mut u8,
        size: usize,
        count: u16,
        /// The numbers of provided and consumed buffers, modulo 2¹⁶.
        given: u16,
        taken: u16,
        /// The buffer in each entry of the ring.
        order: Vec<u16>,
    }

    impl Buffers {
        fn new(ring: &IoUring, size: usize) -> io::Result<Buffers> {
            const ALL: usize = 4 << 20;
            let count = (ALL / size) as u16;
            let entries: *mut BufRingEntry = map(usize::from(count) * size_of::<BufRingEntry>())?;
            let (memory, order) = (map(ALL)?, vec![0; usize::from(count)]);
            let mut buffers = Buffers { entries, memory, size, count, given: 0, taken: 0, order };
            (0..count).for_each(|buffer| buffers.give_back(buffer));
            let (submitter, entries) = (ring.submitter(), entries as u64);
            // SAFETY: the entries are unmapped after the ring is closed.
            unsafe { submitter.register_buf_ring_with_flags(entries, count, GROUP, 0) }?;
            Ok(buffers)
        }

        fn start(&self, buffer: u16) -> *mut u8 {
            self.memory.wrapping_add(usize::from(buffer) * self.size)
        }

        /// The next buffer that the kernel has filled.
        fn taken(&mut self) -> u16 {
            let place = usize::from(self.taken & (self.count - 1));
            self.taken = self.taken.wrapping_add(1);
            self.order[place]
        }

        fn give_back(&mut self, buffer: u16) {
            let place = usize::from(self.given & (self.count - 1));
            self.order[place] = buffer;
            let address = self.start(buffer) as u64;
            // SAFETY: the entry is within the mapping, and the kernel does not read it before the
            // tail has passed it.
            let entry = unsafe { &mut *self.entries.wrapping_add(place) };
            entry.set_addr(address);
            entry.set_len(self.size as u32);
            entry.set_bid(buffer);
            self.given = self.given.wrapping_add(1);
            // SAFETY: the entries are the start of the ring.
            let tail = unsafe { BufRingEntry::tail(self.entries) };
            // SAFETY: aligned and mapped; shared with the kernel, hence atomic.
            let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
            tail.store(self.given, Ordering::Release);
        }
    }

    /// Maps zeroed pages. They are never unmapped, because the kernel closes rings asynchronously.
    fn map<T>(bytes: usize) -> io::Result<*mut T> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping; the kernel chooses its address.
        let pages = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if pages == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(pages.cast()) }
    }

    fn cpu_ns() -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the time is a local variable.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }

    /// Pins this thread to one core.
    fn pin(core: usize) {
        // SAFETY: plain data; all zeros are the empty set.
        let mut cores: libc::cpu_set_t = unsafe { mem::zeroed() };
        // SAFETY: the number is below `CPU_SETSIZE`.
        unsafe { libc::CPU_SET(core, &mut cores) };
        // SAFETY: pointer and size describe a local variable. A failure is ignored.
        unsafe { libc::sched_setaffinity(0, size_of_val(&cores), &cores) };
    }
}
