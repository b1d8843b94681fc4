//! The handles of a program: how each kind is opened and closed.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;

use uv_core::{
    AnyHandle, Async, AsyncSender, Channel, Check, FsEvent, FsPoll, Handle, Idle, Listener, Pipe,
    Prepare, Sender, Signal, Stream, Tcp, TcpBindFlags, Timer, Udp, UdpBindFlags,
};

use super::descriptors::{self, Watched};
use super::exec::{drain, is_expected, run_body};
use super::lanes::{DatagramLane, Lane};
use super::program::{Kind, Step};
use super::world::{Bomb, Life, Stage, World};
use super::{children, passing};
use crate::Loop;

/// A handle in a slot. It stays there when it is closed: then its key is stale.
#[derive(Clone)]
pub(super) struct Item {
    pub(super) name: Rc<str>,
    pub(super) handle: AnyHandle,
    pub(super) life: Rc<Life>,
    pub(super) extra: Extra,
}

/// The additional state of some kinds of handles.
#[derive(Clone)]
pub(super) enum Extra {
    None,
    Async(Rc<AsyncSender>),
    Channel(Rc<Sender<u64>>, Rc<Cell<u64>>),
    Poll { peer: Rc<UdpSocket>, watched: Watched },
    Signal,
    Stream { input: Rc<Lane>, output: Rc<Lane>, peer: Rc<Life> },
    Udp { input: Rc<DatagramLane>, output: Rc<DatagramLane>, peer: SocketAddr },
}

impl Item {
    pub(super) fn new(name: &str, handle: impl Into<AnyHandle>, extra: Extra) -> Item {
        Item { name: name.into(), handle: handle.into(), life: Rc::default(), extra }
    }
}

/// Opens what a slot is for, if nothing in it is open.
pub(super) fn open(world: &Rc<World>, lp: &mut Loop, step: &Step) {
    let is_open = |item: &Option<Item>| item.as_ref().is_some_and(|item| !item.life.closed.get());
    if world.slots.borrow()[step.slot].iter().any(is_open) {
        return;
    }
    let name = format!("{:?}{}", world.kinds[step.slot], step.slot).to_lowercase();
    let opened = match world.kinds[step.slot] {
        Kind::Tcp => Tcp::pair(lp).map(|(one, other)| stream_pair(&name, one, other)),
        Kind::Pipe => Pipe::pair(lp).map(|(one, other)| stream_pair(&name, one, other)),
        Kind::OneWay => Pipe::one_way(lp).map(|(one, other)| stream_pair(&name, one, other)),
        Kind::Dialled => dial(world, lp, step, &name),
        Kind::Passing => passing::open(lp, &name),
        Kind::Child => children::open(world, lp, step, &name),
        Kind::Poll => descriptors::open_poll(lp, &name),
        Kind::RawPoll => descriptors::open_raw_poll(lp, &name),
        Kind::Signal => Ok([Some(Item::new(&name, Signal::new(lp), Extra::Signal)), None]),
        Kind::FsEvent => Ok([Some(Item::new(&name, FsEvent::new(lp), Extra::None)), None]),
        Kind::FsPoll => Ok([Some(Item::new(&name, FsPoll::new(lp), Extra::None)), None]),
        Kind::Udp => udp_pair(lp, &name),
        Kind::Timer => Ok([Some(Item::new(&name, Timer::new(lp), Extra::None)), None]),
        Kind::Idle => Ok([Some(Item::new(&name, Idle::new(lp), Extra::None)), None]),
        Kind::Prepare => Ok([Some(Item::new(&name, Prepare::new(lp), Extra::None)), None]),
        Kind::Check => Ok([Some(Item::new(&name, Check::new(lp), Extra::None)), None]),
        Kind::Async => Ok([Some(open_async(world, lp, step, &name)), None]),
        Kind::Channel => Ok([Some(open_channel(world, lp, step, &name)), None]),
    };
    match opened {
        Ok(items) => {
            let old = std::mem::replace(&mut world.slots.borrow_mut()[step.slot], items);
            drop(old); // The last sender of a channel may go with it.
        }
        Err(error) if error.kind() == io::ErrorKind::Unsupported || world.tolerated.errors => {}
        Err(error) => world.fail(format!("{name}: cannot be opened: {error}")),
    }
}

/// The items of two connected streams.
pub(super) fn stream_pair<S: Stream>(name: &str, one: S, other: S) -> [Option<Item>; 2] {
    let (lanes, lives) = (<[Rc<Lane>; 2]>::default(), <[Rc<Life>; 2]>::default());
    let item = |end: usize, handle: S| {
        let (input, output) = (Rc::clone(&lanes[1 - end]), Rc::clone(&lanes[end]));
        let extra = Extra::Stream { input, output, peer: Rc::clone(&lives[1 - end]) };
        let name = format!("{name}.{}", ["a", "b"][end]).into();
        Some(Item { name, handle: handle.into(), life: Rc::clone(&lives[end]), extra })
    };
    [item(0, one), item(1, other)]
}

fn dial(
    world: &Rc<World>,
    lp: &mut Loop,
    step: &Step,
    name: &str,
) -> io::Result<[Option<Item>; 2]> {
    let (listener, client) = (Tcp::new(lp), Tcp::new(lp));
    connect(world, lp, step, name, listener, client).inspect_err(|_| {
        // A listener without a client would keep the loop alive.
        let _ = listener.close(lp).and(client.close(lp));
    })
}

/// A client connects; the listener accepts it into end `b` and closes.
fn connect(
    world: &Rc<World>,
    lp: &mut Loop,
    step: &Step,
    name: &str,
    listener: Tcp,
    client: Tcp,
) -> io::Result<[Option<Item>; 2]> {
    let [one, other] = stream_pair(name, client, client);
    let (Some(one), Some(other)) = (one, other) else { return Ok([None, None]) };
    listener.bind(lp, "127.0.0.1:0".parse().expect("an address"), TcpBindFlags::empty())?;
    let (for_peer, slot) = (RefCell::new(Some(other)), step.slot);
    let (this, what) = (Rc::clone(world), format!("{name} accepts"));
    listener.listen(lp, 4, move |lp, listener, result| {
        this.begin_callback(lp, &what, None);
        if let (Ok(()), Some(other)) = (result, for_peer.take())
            && let Ok(peer) = listener.accept(lp)
        {
            // An event that is late may come when the slot has another pair.
            let one = this.slots.borrow()[slot][0].as_ref().map(|one| one.handle);
            if one == Some(client.into()) {
                let item = Item { handle: peer.into(), ..other };
                this.slots.borrow_mut()[slot][1] = Some(item.clone());
                if this.stage.get() == Stage::Drain {
                    drain(&this, lp, &item);
                }
            } else {
                let _ = peer.close(lp);
            }
        }
        let _ = listener.close(lp);
    })?;
    let (this, life, body) = (Rc::clone(world), Rc::clone(&one.life), Rc::clone(&step.body));
    let Extra::Stream { input, output, peer } = one.extra.clone() else { return Ok([None, None]) };
    let (what, bomb) = (format!("{name} connects"), Bomb(step.bomb));
    let ticket = world.ticket(what.clone());
    let id = ticket.id;
    let address = listener.local_addr(lp)?;
    world.listeners.borrow_mut().push(listener);
    let connecting = world.verb(&what.clone(), || {
        client.connect(lp, address, move |lp, _, result| {
            let _bomb = bomb;
            ticket.report(Some(&life));
            this.begin_callback(lp, &what, None);
            if let Err(error) = result {
                input.broken.set(true);
                output.broken.set(true);
                listener.close_if_open(lp);
                if !is_expected(&this, &error, [&life, &peer]) {
                    this.fail(format!("{what}: {error}"));
                }
            }
            run_body(&this, lp, &body);
        })
    });
    if let Err(error) = connecting {
        world.refuse(id);
        return Err(error);
    }
    Ok([Some(one), None])
}

fn udp_pair(lp: &mut Loop, name: &str) -> io::Result<[Option<Item>; 2]> {
    let sockets = [Udp::new(lp), Udp::new(lp)];
    let local = "127.0.0.1:0".parse().expect("an address");
    for socket in sockets {
        socket.bind(lp, local, UdpBindFlags::empty())?;
    }
    let lanes = <[Rc<DatagramLane>; 2]>::default();
    let mut items = [None, None];
    for end in 0..2 {
        let peer = sockets[1 - end].local_addr(lp)?;
        let (input, output) = (Rc::clone(&lanes[1 - end]), Rc::clone(&lanes[end]));
        let name = format!("{name}.{}", ["a", "b"][end]);
        items[end] = Some(Item::new(&name, sockets[end], Extra::Udp { input, output, peer }));
    }
    Ok(items)
}

fn open_async(world: &Rc<World>, lp: &mut Loop, step: &Step, name: &str) -> Item {
    let life = Rc::<Life>::default();
    let (this, of, body) = (Rc::clone(world), Rc::clone(&life), Rc::clone(&step.body));
    let (what, bomb, mut calls) = (format!("{name} is notified"), Bomb(step.bomb), 0);
    let (handle, sender) = Async::new(lp, move |lp, _| {
        let _bomb = &bomb;
        this.begin_callback(lp, &what, Some(&of));
        calls += 1;
        if calls <= 3 {
            run_body(&this, lp, &body);
        }
    });
    Item { life, ..Item::new(name, handle, Extra::Async(Rc::new(sender))) }
}

fn open_channel(world: &Rc<World>, lp: &mut Loop, step: &Step, name: &str) -> Item {
    let life = Rc::<Life>::default();
    let (this, of, body) = (Rc::clone(world), Rc::clone(&life), Rc::clone(&step.body));
    let (name_of, bomb, mut next) = (name.to_string(), Bomb(step.bomb), 0);
    let (channel, sender) = Channel::new(lp, move |lp, _, value: u64| {
        let _bomb = &bomb;
        this.begin_callback(lp, &format!("{name_of} delivers {value}"), Some(&of));
        if value != next {
            this.fail(format!("{name_of}: value {value} was delivered instead of {next}"));
        }
        next += 1;
        if next <= 3 {
            run_body(&this, lp, &body);
        }
    });
    let extra = Extra::Channel(Rc::new(sender), Rc::default());
    Item { life, ..Item::new(name, channel.handle(), extra) }
}

/// Closes a handle with a callback.
pub(super) fn close(world: &Rc<World>, lp: &mut Loop, item: &Item, step: Option<&Step>) {
    let (this, life) = (Rc::clone(world), Rc::clone(&item.life));
    let body = step.map(|step| Rc::clone(&step.body)).unwrap_or_default();
    let bomb = Bomb(step.is_some_and(|step| step.bomb));
    let what = format!("{} closes", item.name);
    let ticket = world.ticket(what.clone());
    let id = ticket.id;
    let closing = item.life.closing.get();
    let called = world.verb(&what.clone(), || {
        item.handle.close_with(lp, move |lp, _| {
            let _bomb = bomb;
            ticket.report(Some(&life));
            life.closed.set(true);
            this.begin_callback(lp, &what, None);
            run_body(&this, lp, &body);
        })
    });
    match called {
        Ok(()) if closing => world.fail(format!("{}: closed twice", item.name)),
        Ok(()) => {
            item.life.closing.set(true);
            if let Extra::Stream { input, output, .. } = &item.extra {
                // Bytes that the peer has not read are lost if this end had unread bytes.
                input.broken.set(true);
                if !output.ended.get() {
                    output.broken.set(true);
                }
            }
        }
        Err(_) => world.refuse(id),
    }
}
