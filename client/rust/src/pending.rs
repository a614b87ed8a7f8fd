//! What a wait returns: a future for async code, which a thread can wait for as well.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::error::Result;

/// A value that the server has not sent yet. Its request is on the way already. In async code `.await` it, on any
/// runtime; elsewhere call [`Pending::wait`]. A dropped one ends the wait, not the command.
#[must_use = "the value and its error come with `.await` or `.wait()`"]
pub struct Pending<T>(Pin<Box<dyn Future<Output = Result<T>> + Send>>);

impl<T> Pending<T> {
    pub(crate) fn new(future: impl Future<Output = Result<T>> + Send + 'static) -> Pending<T> {
        Pending(Box::pin(future))
    }

    pub(crate) fn ready(result: Result<T>) -> Pending<T>
    where
        T: Send + 'static,
    {
        Pending::new(std::future::ready(result))
    }

    /// Blocks this thread until the value is there.
    ///
    /// # Errors
    ///
    /// The first refusal since the last wait, or why the session ended.
    pub fn wait(self) -> Result<T> {
        block_on(self.0, None).expect("without a limit, only a result ends the wait")
    }

    /// Blocks this thread until the value is there, or until the time is over: then it returns `None`.
    pub fn wait_timeout(self, limit: Duration) -> Option<Result<T>> {
        block_on(self.0, Some(Instant::now() + limit))
    }

    pub(crate) fn map<U: 'static>(self, f: impl FnOnce(T) -> Result<U> + Send + 'static) -> Pending<U>
    where
        T: 'static,
    {
        Pending::new(async move { f(self.await?) })
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

/// Wakes a thread that waits for a future.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(mut future: Pin<Box<dyn Future<Output = T> + Send>>, end: Option<Instant>) -> Option<T> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return Some(result);
        }
        match end.map(|end| end.saturating_duration_since(Instant::now())) {
            None => std::thread::park(),
            Some(Duration::ZERO) => return None,
            Some(left) => std::thread::park_timeout(left),
        }
    }
}
