//! What is put on a path: streams as fast as they go, fresh channels, and pages that are waited for.
//!
//! The far end serves every path in the same way. The first byte of a connection says what it is: a stream to swallow, or requests of
//! 16 bytes that are each answered with a page.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::contender::Contender;
use bench_stage::{Stage, TARGET};

const CHUNK: usize = 256 << 10;
const PAGE: usize = 4096;
const REQUEST: usize = 16;
const STREAM: u8 = b's';
/// A stream whose end nobody waits for. It may come late, when its relay is killed, and must not be taken for another's.
const NOISE: u8 = b'n';
const PAGES: u8 = b'p';
const DIRECT_PORT: u16 = 9187;
const PATIENCE: Duration = Duration::from_mins(1);

trait Stream: Read + Write + Send {
    fn end(&self) -> std::io::Result<()>;
}

impl Stream for UnixStream {
    fn end(&self) -> std::io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

impl Stream for TcpStream {
    fn end(&self) -> std::io::Result<()> {
        self.shutdown(Shutdown::Write)
    }
}

/// The far end. Its threads live as long as this process.
pub struct FarEnd {
    /// The moment at which a stream ended, and how long it was.
    ended: Receiver<(Instant, u64)>,
    swallowed: Arc<AtomicU64>,
}

impl FarEnd {
    pub fn new(stage: &Stage) -> Result<Self> {
        let unix = UnixListener::bind(stage.path("exit"))?;
        let tcp = stage.target.run(|| TcpListener::bind((TARGET, DIRECT_PORT)))??;
        let (sender, ended) = mpsc::channel();
        let swallowed = Arc::new(AtomicU64::new(0));
        let serve = {
            let swallowed = Arc::clone(&swallowed);
            move |stream: Box<dyn Stream>| {
                let (sender, swallowed) = (sender.clone(), Arc::clone(&swallowed));
                thread::spawn(move || serve(stream, &sender, &swallowed));
            }
        };
        let other = serve.clone();
        thread::spawn(move || unix.incoming().flatten().for_each(|stream| serve(Box::new(stream))));
        thread::spawn(move || {
            tcp.incoming().flatten().for_each(|stream| {
                // A page that waits for an acknowledgement would be measured as slow.
                let _ = stream.set_nodelay(true);
                other(Box::new(stream));
            });
        });
        Ok(Self { ended, swallowed })
    }
}

fn serve(mut stream: Box<dyn Stream>, ended: &mpsc::Sender<(Instant, u64)>, swallowed: &AtomicU64) {
    let mut kind = [0];
    // A connection that says nothing was only a look whether someone is there.
    match stream.read_exact(&mut kind).map(|()| kind[0]) {
        Ok(kind @ (STREAM | NOISE)) => {
            let mut buffer = vec![0; CHUNK];
            let mut length = 0;
            while let Ok(read @ 1..) = stream.read(&mut buffer) {
                length += read as u64;
                swallowed.fetch_add(read as u64, Ordering::Relaxed);
            }
            if kind == STREAM {
                // Who waited for it may have given up.
                let _ = ended.send((Instant::now(), length));
            }
        }
        Ok(_) => {
            let (mut request, page) = ([0; REQUEST], [7; PAGE]);
            while stream.read_exact(&mut request).is_ok() && stream.write_all(&page).is_ok() {}
        }
        Err(_) => {}
    }
}

/// The near end of a path.
pub struct Path<'a> {
    stage: &'a Stage,
    entrance: PathBuf,
    far: &'a FarEnd,
    direct: bool,
}

impl<'a> Path<'a> {
    pub fn new(stage: &'a Stage, far: &'a FarEnd, contender: Contender) -> Self {
        Self { stage, entrance: stage.path("entrance"), far, direct: contender == Contender::Direct }
    }

    fn connect(&self) -> Result<Box<dyn Stream>> {
        if self.direct {
            let stream = self.stage.source.run(|| TcpStream::connect((TARGET, DIRECT_PORT)))??;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            return Ok(Box::new(stream));
        }
        let stream = UnixStream::connect(&self.entrance).context("connecting to the relay")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Box::new(stream))
    }

    /// Moves so many bytes over so many streams at once: how long it took.
    pub fn bulk(&self, streams: u64, bytes: u64) -> Result<Duration> {
        while self.far.ended.try_recv().is_ok() {}
        let each = bytes / streams;
        let mut near = (0..streams).map(|_| self.connect()).collect::<Result<Vec<_>>>()?;
        for stream in &mut near {
            stream.write_all(&[STREAM])?;
        }
        let begun = Instant::now();
        thread::scope(|scope| {
            let writers: Vec<_> = near
                .iter_mut()
                .map(|stream| scope.spawn(move || write(stream.as_mut(), each, &AtomicBool::new(false))))
                .collect();
            for writer in writers {
                writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
            }
            anyhow::Ok(())
        })?;
        let mut last = begun;
        for _ in 0..streams {
            let (ended, length) = self.far.ended.recv_timeout(PATIENCE).context("a stream did not end")?;
            anyhow::ensure!(length == each, "{length} of {each} bytes arrived");
            last = last.max(ended);
        }
        Ok(last - begun)
    }

    /// Opens a channel and fetches a page through it, again and again. A direct one pays for a thread that enters the namespace.
    pub fn opens(&self, count: usize) -> Result<Vec<Duration>> {
        let mut latencies = Vec::with_capacity(count);
        for _ in 0..count {
            let begun = Instant::now();
            let mut stream = self.connect()?;
            stream.write_all(&[PAGES; REQUEST + 1])?;
            stream.read_exact(&mut [0; PAGE])?;
            latencies.push(begun.elapsed());
        }
        Ok(latencies)
    }

    /// Fetches pages through one channel for a while, with a stream on another one: latencies, and MiB/s of the stream.
    pub fn pages_beside_a_stream(&self, time: Duration) -> Result<(Vec<Duration>, f64)> {
        let (mut noise, mut pages) = (self.connect()?, self.connect()?);
        noise.write_all(&[NOISE])?;
        pages.write_all(&[PAGES])?;
        let enough = AtomicBool::new(false);
        thread::scope(|scope| {
            let writer = scope.spawn(|| write(noise.as_mut(), u64::MAX, &enough));
            let measured = self.fetch(pages.as_mut(), time);
            enough.store(true, Ordering::Relaxed);
            writer.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
            measured
        })
    }

    fn fetch(&self, pages: &mut dyn Stream, time: Duration) -> Result<(Vec<Duration>, f64)> {
        let mut fetch = || {
            let begun = Instant::now();
            pages.write_all(&[0; REQUEST])?;
            pages.read_exact(&mut [0; PAGE])?;
            anyhow::Ok(begun.elapsed())
        };
        // Until the stream has filled its buffers.
        let warm = Instant::now();
        while warm.elapsed() < time / 4 {
            fetch()?;
        }
        let (begun, before) = (Instant::now(), self.far.swallowed.load(Ordering::Relaxed));
        let mut latencies = Vec::new();
        while begun.elapsed() < time {
            latencies.push(fetch()?);
        }
        let bytes = self.far.swallowed.load(Ordering::Relaxed) - before;
        Ok((latencies, mebibytes(bytes) / begun.elapsed().as_secs_f64()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn write(stream: &mut dyn Stream, mut bytes: u64, enough: &AtomicBool) -> Result<()> {
    let chunk = vec![0x5a; CHUNK];
    while bytes > 0 && !enough.load(Ordering::Relaxed) {
        let length = usize::try_from(bytes).unwrap_or(CHUNK).min(CHUNK);
        stream.write_all(&chunk[..length])?;
        bytes -= length as u64;
    }
    Ok(stream.end()?)
}
