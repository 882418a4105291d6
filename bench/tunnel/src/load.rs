//! What is put on a path: streams as fast as they go, fresh channels, and pages that are waited for.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bench_stage::{Stage, TARGET};

use crate::contender::Contender;
use crate::far_end::{CHUNK, DIRECT_PORT, FarEnd, NOISE, PAGE, PAGES, PATIENCE, REQUEST, STREAM};

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
        for _ in 0..streams {
            let length = self.far.next_end()?;
            anyhow::ensure!(length == each, "{length} of {each} bytes arrived");
        }
        Ok(begun.elapsed())
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
        let (begun, before) = (Instant::now(), self.far.swallowed()?);
        let mut latencies = Vec::new();
        while begun.elapsed() < time {
            latencies.push(fetch()?);
        }
        let (bytes, took) = (self.far.swallowed()? - before, begun.elapsed());
        Ok((latencies, mebibytes(bytes) / took.as_secs_f64()))
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
