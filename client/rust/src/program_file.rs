//! Program files: models with their programs, as Python's `gradwire.export` writes them.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::call::unexpected;
use crate::error::{Error, Reason, Result};
use crate::lock;
use crate::pending::Pending;
use crate::program::RunOptions;
use crate::proto::{self, command::Command, result};
use crate::session::Session;
use crate::tensor::Tensor;
use crate::values::DType;

/// A model with its programs: weights, the optimizer's state, and steps such as training and inference.
#[derive(Clone, Debug)]
pub struct ProgramFile {
    session: Session,
    file: Tensor,
    tensors: Arc<BTreeMap<String, Tensor>>,
    programs: BTreeMap<String, FileProgram>,
}

/// A program of a file. Its tensors and counters are bound; a run gives the other inputs by name.
#[derive(Clone, Debug)]
pub struct FileProgram {
    session: Session,
    loaded: Arc<proto::LoadedProgram>,
    /// Names and places of the inputs that each run gives.
    inputs: Vec<(String, usize)>,
    /// They live as long as a program that uses them.
    tensors: Arc<BTreeMap<String, Tensor>>,
    file: Tensor,
    /// Of all programs of the file, in its order.
    hashes: Arc<[[u8; 32]]>,
}

impl Session {
    /// Loads a program file, given its bytes. It blocks this thread until the server has them.
    pub fn load_program(&self, data: impl Into<Bytes>) -> Pending<ProgramFile> {
        let data = data.into();
        let size = data.len() as i64;
        let file = self.tensor_from_bytes(DType::Uint8, data, [size]);
        let request = proto::LoadProgramRequest { file: file.id(), ..Default::default() };
        let session = self.clone();
        file.ask(Command::LoadProgram(request)).map(move |answer| {
            let result::Result::LoadProgram(loaded) = answer else { return Err(unexpected()) };
            ProgramFile::new(session, file, loaded)
        })
    }
}

impl ProgramFile {
    fn new(session: Session, file: Tensor, loaded: proto::LoadProgramResponse) -> Result<ProgramFile> {
        let live = session.must_live("a file")?;
        let named = loaded.tensors.into_iter().map(|each| {
            let id = each.spec.map_or(0, |spec| spec.id);
            (each.name, Tensor::owned(&session, id))
        });
        let tensors = Arc::new(named.collect());
        let hashes = loaded.programs.iter().map(|each| each.hash[..].try_into().map_err(|_| unexpected()));
        let hashes: Arc<[[u8; 32]]> = hashes.collect::<Result<_>>()?;
        live.loaded(&hashes);
        let mut programs = BTreeMap::new();
        for each in loaded.programs {
            let given = |(place, _): &(usize, &proto::ProgramInput)| each.inputs.get(*place).is_none_or(|id| *id == 0);
            let inputs = each.signature.iter().enumerate().filter(given);
            let inputs = inputs.map(|(place, input)| (input.name.clone(), place)).collect();
            let name = each.name.clone();
            let (session, tensors) = (session.clone(), Arc::clone(&tensors));
            let (file, hashes) = (file.clone(), Arc::clone(&hashes));
            programs.insert(name, FileProgram { session, loaded: Arc::new(each), inputs, tensors, file, hashes });
        }
        Ok(ProgramFile { session, file, tensors, programs })
    }

    /// The file's tensors by name, with their present values.
    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    /// The names of the file's programs, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.programs.keys().map(String::as_str)
    }

    /// Returns a program of the file by its name; "" is the only one of a file that has one.
    ///
    /// # Errors
    ///
    /// [`Reason::ArgumentValue`] if there is no such program.
    pub fn program(&self, name: &str) -> Result<&FileProgram> {
        let only = self.programs.values().next().filter(|_| name.is_empty() && self.programs.len() == 1);
        self.programs.get(name).or(only).ok_or_else(|| {
            let names: Vec<&str> = self.names().collect();
            let message = format!("the file has no program {name:?}; it has {}", names.join(", "));
            Error::refused(Reason::ArgumentValue, "", message)
        })
    }

    /// Returns the bytes of a file with the present values.
    pub fn save(&self) -> Pending<Bytes> {
        let tensors = self.tensors.iter().map(|(name, tensor)| named(name, tensor)).collect();
        let made = Tensor::owned(&self.session, self.session.next_id());
        let request = proto::SaveProgramRequest { file: self.file.id(), tensors, id: made.id(), ..Default::default() };
        self.session.send(Command::SaveProgram(request));
        made.read().map(|payload| Ok(payload.data))
    }
}

impl FileProgram {
    /// The name in the file.
    pub fn name(&self) -> &str {
        &self.loaded.name
    }

    /// The names that each run gives.
    pub fn inputs(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().map(|(name, _)| name.as_str())
    }

    /// The names of the results, in order; empty where the file has none.
    pub fn outputs(&self) -> impl Iterator<Item = &str> {
        self.loaded.outputs.iter().map(|output| output.name.as_str())
    }

    /// The place of a named input, for [`RunOptions::sliced`].
    pub fn place(&self, name: &str) -> Option<usize> {
        self.inputs.iter().find(|(known, _)| known == name).map(|(_, place)| *place)
    }

    /// Runs the program with the tensors of this call by their names. A failure surfaces at the next wait or read.
    pub fn run<'a, T: Borrow<Tensor> + 'a>(&self, given: impl IntoIterator<Item = (&'a str, T)>) -> Vec<Tensor> {
        self.run_with(given, RunOptions::default())
    }

    /// Is [`FileProgram::run`] with options.
    pub fn run_with<'a, T: Borrow<Tensor> + 'a>(
        &self,
        given: impl IntoIterator<Item = (&'a str, T)>,
        options: RunOptions,
    ) -> Vec<Tensor> {
        let (mut list, mut inputs) = (Vec::new(), Vec::new());
        for (name, tensor) in given {
            list.push(named(name, tensor.borrow()));
            inputs.push(tensor.borrow().clone());
        }
        let request = proto::RunProgramRequest {
            hash: self.loaded.hash.clone(),
            inputs: self.loaded.inputs.clone(),
            named: list,
            ..Default::default()
        };
        let count = self.loaded.outputs.len();
        let made = self.session.must_live("a program").and_then(|live| {
            let hash = self.loaded.hash[..].try_into().map_err(|_| unexpected())?;
            let _running = lock(&live.running);
            if !live.has(&hash) {
                self.load_again();
                live.loaded(&self.hashes);
            }
            live.ran(hash);
            self.session.run_program(request, &inputs, count, options)
        });
        self.session.outputs(made, count)
    }

    /// Registers programs that the server may have forgotten. The tensors that this makes are released.
    fn load_again(&self) {
        let made: Vec<_> = self.tensors.iter().map(|_| Tensor::owned(&self.session, self.session.next_id())).collect();
        let ids = made.iter().map(Tensor::id).collect();
        let request = proto::LoadProgramRequest { file: self.file.id(), ids, ..Default::default() };
        self.session.send(Command::LoadProgram(request));
    }
}

fn named(name: &str, tensor: &Tensor) -> proto::NamedTensor {
    proto::NamedTensor { name: name.to_owned(), id: tensor.id() }
}
