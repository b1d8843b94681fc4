//! `futures_core::Stream` of what comes one after the other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use uv_core::poll_core::Backend;

use crate::{FsChange, FsEvents, Incoming, Interval, IoStream, Receiver, Signal};

impl<S: uv_core::Listener + Unpin, B: Backend> Stream for Incoming<'_, S, B> {
    type Item = io::Result<IoStream<S, B>>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_accept(cx).map(Some)
    }
}

impl<B: Backend> Stream for Signal<B> {
    type Item = ();

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.get_mut().poll_recv(cx).map(Some)
    }
}

impl<B: Backend> Stream for FsEvents<B> {
    type Item = io::Result<FsChange>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_next_change(cx).map(Some)
    }
}

impl<T, B: Backend> Stream for Receiver<T, B> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        self.get_mut().poll_recv(cx)
    }
}

impl<B: Backend> Stream for Interval<B> {
    type Item = Duration;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Duration>> {
        self.get_mut().poll_tick(cx).map(Some)
    }
}
