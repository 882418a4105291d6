//! What is said on one connection to the CNI proxy: a request a line, an answer a line; what is no request is answered and ends it.
//!
//! It knows nothing of sockets, pods or plugins. Who is at the other end was found out before; what is asked for is done behind
//! [`Desk`]. Invariant: nothing is asked of the desk that is not a vNIC of the instance, or of the journal by a vNIC's name.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use api::kubevirt::VirtualMachineInstance;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::sync::Mutex;
use tokio::time::timeout;
use wire::{LINE_LIMIT, ProxyRequest, ProxyResponse, Vnic, VnicName};

use crate::attachments;
use crate::error::chain;
use crate::vnics::{self, PlanError, Planned};

/// How long a request may take to arrive once it has begun, and an answer to leave.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where requests are obeyed: in the product, a pod's attachments.
pub trait Desk: Sync {
    /// The instance whose vNICs these are; none: it is not known yet.
    fn instance(&self) -> Option<Arc<VirtualMachineInstance>>;
    /// One request at a time.
    fn turn(&self) -> &Mutex<()>;
    /// Attaches a vNIC; one that is attached stays as it is.
    fn add(&self, vnic: &Planned) -> impl Future<Output = Result<Vnic, attachments::Error>> + Send;
    /// Whether it is attached.
    fn check(&self, vnic: &Planned) -> impl Future<Output = Result<(), attachments::Error>> + Send;
    /// Detaches it; one that is not attached is well detached.
    fn del(&self, vnic: &VnicName) -> impl Future<Output = Result<(), attachments::Error>> + Send;
    /// What is attached.
    fn list(&self) -> Result<Vec<Vnic>, attachments::Error>;
    /// Takes note of a request that was not obeyed.
    fn refused(&self, request: &ProxyRequest, why: &str);
}

/// Why a request is not obeyed.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("the instance of this pod is not known yet; try again")]
    NoInstance,
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Attachments(#[from] attachments::Error),
}

/// Answers requests until the other side goes. An error is what it was told when it sent what is no request.
pub async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, desk: &impl Desk) -> Result<(), String> {
    let mut stream = BufReader::new(stream);
    loop {
        let request = match next(&mut stream).await {
            Ok(Some(request)) => request,
            Ok(None) => return Ok(()),
            Err(error) => {
                tell(stream.get_mut(), &ProxyResponse::Failed { error: error.clone() }).await;
                return Err(error);
            }
        };
        let response = {
            let _turn = desk.turn().lock().await;
            answer(&request, desk).await.unwrap_or_else(|refusal| {
                let error = chain(&refusal);
                desk.refused(&request, &error);
                ProxyResponse::Failed { error }
            })
        };
        if !tell(stream.get_mut(), &response).await {
            return Ok(());
        }
    }
}

async fn answer(request: &ProxyRequest, desk: &impl Desk) -> Result<ProxyResponse, Refusal> {
    let plan = |vnic| {
        let instance = desk.instance().ok_or(Refusal::NoInstance)?;
        Ok::<_, Refusal>(vnics::planned(&instance, vnic)?)
    };
    Ok(match request {
        ProxyRequest::Add { vnic } => ProxyResponse::Added { vnic: Box::new(desk.add(&plan(vnic)?).await?) },
        ProxyRequest::Check { vnic } => {
            desk.check(&plan(vnic)?).await?;
            ProxyResponse::Checked { vnic: vnic.clone() }
        }
        ProxyRequest::Del { vnic } => {
            // By the journal alone: an instance that is gone still has to give back what it had.
            desk.del(vnic).await?;
            ProxyResponse::Deleted { vnic: vnic.clone() }
        }
        ProxyRequest::List {} => ProxyResponse::Listed { vnics: desk.list()? },
    })
}

/// The next request; none: the other side has gone. The error is for the other side.
async fn next(stream: &mut BufReader<impl AsyncRead + Unpin>) -> Result<Option<ProxyRequest>, String> {
    // It may take as long as it likes to begin one.
    match stream.fill_buf().await {
        Ok([]) | Err(_) => return Ok(None),
        Ok(_) => {}
    }
    let mut line = Vec::new();
    let limit = LINE_LIMIT as u64 + 1;
    let read = timeout(PATIENCE, (&mut *stream).take(limit).read_until(b'\n', &mut line)).await;
    match read {
        Err(_) => return Err(format!("a request must be whole within {} s", PATIENCE.as_secs())),
        Ok(Err(_)) => return Ok(None),
        Ok(Ok(_)) if line.last() != Some(&b'\n') && line.len() <= LINE_LIMIT => {
            return Err("the request ends before its line does".to_owned());
        }
        Ok(Ok(_)) => {}
    }
    wire::decode(&line).map(Some).map_err(|cause| chain(&cause))
}

/// Says whether it could be told. A launcher that does not listen finds out by asking again.
pub async fn tell(stream: &mut (impl AsyncWrite + Unpin), response: &ProxyResponse) -> bool {
    let failed = |cause: wire::EncodeError| wire::encode(&ProxyResponse::Failed { error: chain(&cause) });
    let Ok(line) = wire::encode(response).or_else(failed) else { return false };
    timeout(PATIENCE, stream.write_all(&line)).await.is_ok_and(|written| written.is_ok())
}
