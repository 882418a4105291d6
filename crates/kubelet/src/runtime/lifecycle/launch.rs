//! From nothing to a running container: files, overlay, shim.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use super::{
    Container, Directory, Error, Lifecycle, Mounts, Propagation, Task, cgroup_of, file, name, record, rootfs,
    spec,
};
use crate::shim;

/// How long the OCI runtime may take to create and to start a container.
const DEADLINE: Duration = Duration::from_mins(2);

impl Lifecycle {
    /// Makes and starts a container of which there is no trace. What a failure leaves is for the caller to clear.
    pub(super) fn launch(&self, container: &Container) -> Result<(), Error> {
        let id = &container.id;
        let image = self.images.get(&container.image)?;
        let directory = self.directory(id)?;
        let cgroup = cgroup_of(&self.options.cgroup_parent, id);
        let around = spec::Surroundings {
            root: &directory.root(),
            image: &image.configuration,
            cgroup: &cgroup,
            capabilities: &self.capabilities,
        };
        let spec = spec::spec(container, &around).map_err(|source| Error::Spec { id: id.clone(), source })?;
        check_propagation(container)?;

        fs::create_dir_all(directory.bundle()).map_err(file("making", &directory.bundle()))?;
        let task = Task {
            name: name(id)?,
            runtime: self.options.runtime.clone(),
            run: self.options.run.clone(),
            log: self.log(id),
            cgroup,
        };
        record::write(&directory.task(), &task).map_err(file("writing", &directory.task()))?;
        rootfs::mount(&image.root, &directory).map_err(file("mounting", &directory.root()))?;
        record::write(&directory.config(), &spec).map_err(file("writing", &directory.config()))?;
        self.run_shim(container, &directory)
    }

    /// Starts the shim and waits until the container runs.
    fn run_shim(&self, container: &Container, directory: &Directory) -> Result<(), Error> {
        let failed =
            |source| Error::System { id: container.id.clone(), operation: "starting its shim", source };
        let not_created = |text| Error::Create { id: container.id.clone(), text };
        let (program, arguments) = self
            .options
            .shim
            .split_first()
            .ok_or_else(|| not_created("no command line of a shim is configured".to_owned()))?;
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        let log = fs::File::create(directory.shim_log()).map_err(file("making", &directory.shim_log()))?;
        let mut command = tokio::process::Command::new(program);
        // Not where the agent happens to be: it may outlive that directory.
        command.args(arguments).arg(directory.path()).current_dir("/");
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(log);
        let mut shim = command.spawn().map_err(failed)?;
        // Its end of the socket is its own now: when it is gone, reading ends.
        drop(command);
        // It outlives us, or else we take note of its end. How it ended is in its files.
        tokio::spawn(async move { shim.wait().await });

        match converse(ours).map_err(failed)? {
            Answer::Started => Ok(()),
            Answer::NotCreated(text) => Err(not_created(text)),
            Answer::NotStarted(text) => Err(Error::Run { id: container.id.clone(), text }),
            Answer::Nothing => Err(not_created(last_words(&directory.shim_log()))),
        }
    }
}

/// What a shim says in the end.
enum Answer {
    Started,
    NotCreated(String),
    NotStarted(String),
    /// It ended without a word.
    Nothing,
}

fn converse(shim: UnixStream) -> io::Result<Answer> {
    shim.set_read_timeout(Some(DEADLINE))?;
    let mut shim = BufReader::new(shim);
    let mut line = String::new();
    shim.read_line(&mut line)?;
    if line.trim_end() != shim::LOCKED {
        return Ok(Answer::Nothing);
    }
    writeln!(shim.get_mut(), "{}", shim::GO)?;
    line.clear();
    shim.read_line(&mut line)?;
    let line = line.trim_end();
    Ok(if line == shim::STARTED {
        Answer::Started
    } else if let Some(text) = line.strip_prefix(shim::NOT_CREATED) {
        Answer::NotCreated(serde_json::from_str(text)?)
    } else if let Some(text) = line.strip_prefix(shim::NOT_STARTED) {
        Answer::NotStarted(serde_json::from_str(text)?)
    } else {
        Answer::Nothing
    })
}

fn last_words(log: &Path) -> String {
    let log = fs::read_to_string(log).unwrap_or_default();
    let last = log.lines().last().unwrap_or("it did not say why");
    format!("its shim ended before the container ran: {last}")
}

/// Refuses a mount that cannot pass on what is mounted in it: it would seem to work.
fn check_propagation(container: &Container) -> Result<(), Error> {
    let mounts = Mounts::read().map_err(file("reading", Path::new("/proc/self/mountinfo")))?;
    for mount in container.mounts.iter().filter(|mount| mount.propagation == Propagation::Bidirectional) {
        let source = fs::canonicalize(&mount.source).map_err(file("looking for", &mount.source))?;
        if !mounts.is_shared(&source) {
            let text = format!(
                "{} is not on a shared mount of the node, so mounts in it cannot be Bidirectional",
                mount.source.display()
            );
            return Err(Error::Create { id: container.id.clone(), text });
        }
    }
    Ok(())
}
