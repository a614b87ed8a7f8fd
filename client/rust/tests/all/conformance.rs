//! The scenarios of tests/conformance, whose README.md describes the steps.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gradwire::{
    BackwardOptions, Call, Complex, ConnectOptions, DType, Error, Hook, IndexItem, Input, Number, Payload, Program,
    RunOptions, Session, Tensor,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::servers::{Cutting, address, folder};

type Step = Map<String, Value>;
type Outcome = Result<(), Box<dyn std::error::Error>>;

const SERVER_PATIENCE: Duration = Duration::from_secs(60);

/// The error of a hook that fails.
#[derive(Debug)]
struct HookFailed;

impl std::fmt::Display for HookFailed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the hook's own error")
    }
}

impl std::error::Error for HookFailed {}

#[test]
fn all_scenarios_have_pytorchs_answers() {
    let Some(address) = address() else { return };
    let mut report = BTreeMap::new();
    let mut paths: Vec<_> =
        std::fs::read_dir(folder().join("scenarios")).unwrap().map(|at| at.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let scenarios: Vec<Step> = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        for each in scenarios {
            let name = format!("{}: {}", path.file_stem().unwrap().to_string_lossy(), text(&each["name"]));
            let outcome = match each.get("needs") {
                Some(needs) => format!("lacks {}", text(needs)),
                None => match run(&address, &each) {
                    Ok(()) => "ok".to_owned(),
                    Err(error) => format!("failed: {error}"),
                },
            };
            report.insert(name, outcome);
        }
    }
    if let Ok(path) = std::env::var("GRADWIRE_CONFORMANCE_REPORT") {
        std::fs::write(path, serde_json::to_vec(&report).unwrap()).unwrap();
    }
    report.retain(|_, outcome| outcome != "ok" && !outcome.contains("needs a proxy") && !outcome.starts_with("lacks "));
    assert!(report.is_empty(), "{report:#?}");
}

fn run(address: &str, scenario: &Step) -> Outcome {
    let lease = Duration::from_millis(scenario.get("lease_ms").and_then(Value::as_u64).unwrap_or(0));
    let mut options = ConnectOptions::default().lease(lease).patience(SERVER_PATIENCE);
    let mut cutting = None;
    if let Some(cuts) = scenario.get("cuts") {
        let bounds = integers(cuts);
        cutting = Some(Cutting::new(bounds[0] as u64, bounds[1] as u64).ok_or("it needs a proxy that cuts")?);
        options = options.local_stream(false); // it would pass by the proxy
    }
    let session = Session::connect_with(cutting.as_ref().map_or(address, |proxy| &proxy.address), options).wait()?;
    let mut runner = Runner::new(&session);
    for (place, step) in list(&scenario["steps"]).iter().enumerate() {
        let step = step.as_object().unwrap();
        runner.checked(step).map_err(|error| format!("step {place}, {}: {error}", text(&step["do"])))?;
    }
    session.wait().wait().map_err(|error| format!("at the end: {error}"))?;
    let Some(proxy) = cutting else { return Ok(session.close().wait()?) };
    let reconnects = session.reconnects();
    let cuts = proxy.end();
    if cuts < 2 {
        return Err(format!("{cuts} cuts, {reconnects} reconnects").into());
    }
    Ok(())
}

/// Runs steps in a session, or records them in that of a program.
struct Runner {
    session: Session,
    tensors: HashMap<String, Tensor>,
    programs: HashMap<String, Program>,
    hooks: HashMap<String, Hook>,
    called: Arc<Mutex<Vec<String>>>,
    numbers: Vec<Number>,
    round: u64,
}

impl Runner {
    fn new(session: &Session) -> Runner {
        Runner {
            session: session.clone(),
            tensors: HashMap::new(),
            programs: HashMap::new(),
            hooks: HashMap::new(),
            called: Arc::default(),
            numbers: Vec::new(),
            round: 0,
        }
    }

    /// Runs a step, and compares its refusal with the expected one.
    fn checked(&mut self, step: &Step) -> Outcome {
        let mut outcome = self.step(step);
        let Some(expected) = step.get("refused").map(text) else { return outcome };
        if outcome.is_ok() {
            outcome = self.session.wait().wait().map_err(Into::into);
        }
        match (expected, outcome) {
            ("DEPENDENCY_FAILED", Ok(())) if text(&step["do"]) == "read" => Err("a failed tensor was read".into()),
            ("DEPENDENCY_FAILED", _) => Ok(()), // its cause was reported before
            (_, Ok(())) => Err(format!("no refusal instead of {expected}").into()),
            (_, Err(error)) => match (expected, error.downcast_ref::<Error>()) {
                ("HOOK", Some(Error::Hook(error))) if error.is::<HookFailed>() => Ok(()),
                (_, Some(Error::Refused(told)))
                    if told.reason.as_str_name() == format!("REASON_{expected}") && !told.message.is_empty() =>
                {
                    Ok(())
                }
                _ => Err(format!("{error} instead of {expected}").into()),
            },
        }
    }

    fn step(&mut self, step: &Step) -> Outcome {
        let of = || self.tensors[text(&step["of"])].clone();
        let to = || step["to"].as_str().map(|name| &self.tensors[name]);
        match text(&step["do"]) {
            "tensor" => self.leaf(step)?,
            "op" => self.op(step)?,
            "backward" => gradwire::backward(&self.several(step, "tensors"), self.options(step, "gradients"))?,
            "gradients" => self.gradients(step)?,
            "grad" => self.keep(&step["out"], of().grad()),
            "no_grad_of" => {
                if of().has_grad().wait()? {
                    return Err("there is a gradient".into());
                }
            }
            "set_grad" => of().set_grad(to()),
            "set_data" => of().set_data(to().unwrap()),
            "requires_grad" => drop(of().requires_grad_(flag(step, "to"))),
            "retain_grad" => of().retain_grad(),
            "forget" => of().release(),
            "hook" => self.hook(step)?,
            "remove_hook" => self.hooks.remove(text(&step["hook"])).unwrap().remove(),
            "hooks_run" => {
                let called = std::mem::take(&mut *self.called.lock().unwrap());
                if json!(called) != step["expect"] {
                    return Err(format!("{called:?} instead of {}", step["expect"]).into());
                }
            }
            "read" => self.read(step)?,
            "describe" => self.describe(step)?,
            "program" => self.program(step)?,
            "run" => self.run(step),
            "repeat" => {
                for round in 0..step["times"].as_u64().unwrap() {
                    self.round = round;
                    for each in list(&step["steps"]) {
                        self.step(each.as_object().unwrap())?;
                    }
                }
            }
            "seed" => self.session.manual_seed(step["seed"].as_i64().unwrap()),
            "wait" => self.session.wait().wait()?,
            "sleep" => std::thread::sleep(Duration::from_secs_f64(step["seconds"].as_f64().unwrap())),
            unknown => return Err(format!("unknown step {unknown}").into()),
        }
        Ok(())
    }

    fn keep(&mut self, name: &Value, tensor: Tensor) {
        self.tensors.insert(text(name).to_owned(), tensor);
    }

    fn several(&self, step: &Step, key: &str) -> Vec<Tensor> {
        step.get(key).map_or(Vec::new(), |names| self.named(names))
    }

    fn named(&self, names: &Value) -> Vec<Tensor> {
        names.as_array().into_iter().flatten().map(|name| self.tensors[text(name)].clone()).collect()
    }

    fn options(&self, step: &Step, gradients: &str) -> BackwardOptions {
        let mut options = BackwardOptions::default()
            .gradients(&self.several(step, gradients))
            .create_graph(flag(step, "create_graph"))
            .allow_unused(flag(step, "allow_unused"));
        if text(&step["do"]) == "backward" {
            options = options.inputs(&self.several(step, "inputs"));
        }
        if flag(step, "retain_graph") { options.retain_graph(true) } else { options }
    }

    fn gradients(&mut self, step: &Step) -> Outcome {
        let (outputs, inputs) = (self.several(step, "outputs"), self.several(step, "inputs"));
        let found = gradwire::grad_with(&outputs, &inputs, self.options(step, "grad_outputs"))?;
        for (name, gradient) in list(&step["out"]).iter().zip(found) {
            match (name.is_null(), gradient) {
                (true, None) => {}
                (false, Some(gradient)) => self.keep(name, gradient),
                (_, gradient) => return Err(format!("the gradient {name} is {gradient:?}").into()),
            }
        }
        Ok(())
    }

    fn leaf(&mut self, step: &Step) -> Outcome {
        let (dtype, shape) = (dtype_of(&step["dtype"]), integers(&step["shape"]));
        let session = &self.session;
        let mut made = if let Some(ramp) = step.get("ramp").and_then(Value::as_u64) {
            let elements = shape.iter().product::<i64>() as u64;
            let values: Vec<f32> = (0..elements).map(|place| (place % ramp) as f32).collect();
            session.tensor_with_shape(values, shape)
        } else if let Some(hex) = step.get("hex") {
            session.tensor_from_bytes(dtype, unhex(text(hex)), shape)
        } else {
            let values = floats(&step["values"]);
            match dtype {
                DType::Float32 => {
                    session.tensor_with_shape(values.iter().map(|value| *value as f32).collect::<Vec<_>>(), shape)
                }
                DType::Int64 => {
                    session.tensor_with_shape(values.iter().map(|value| *value as i64).collect::<Vec<_>>(), shape)
                }
                other => return Err(format!("values of {other:?}").into()),
            }
        };
        if flag(step, "requires_grad") {
            made = made.requires_grad_(true);
        }
        self.keep(&step["out"], made);
        Ok(())
    }

    fn op(&mut self, step: &Step) -> Outcome {
        match step.get("mode").map(text) {
            Some("no_grad") => gradwire::no_grad(|| self.apply(step)),
            Some("inference") => gradwire::inference_mode(|| self.apply(step)),
            _ => self.apply(step),
        }
    }

    fn apply(&mut self, step: &Step) -> Outcome {
        let op = text(&step["op"]).to_owned();
        let mut call = Call::new(op.clone()).session(&self.session);
        for each in step.get("args").map_or(&[][..], list) {
            call = self.argument(call, "", each);
        }
        for (name, each) in step.get("named").and_then(Value::as_object).into_iter().flatten() {
            call = self.argument(call, name, each);
        }
        match step.get("out") {
            None | Some(Value::Null) => drop(call.in_place()),
            Some(Value::Array(names)) => {
                // ListOps says of split that only the answer tells how many there are.
                let made: Vec<Tensor> = match (&op[..], names.len()) {
                    ("split", _) => call.list().wait()?,
                    (_, 1) => call.several::<1>().into(),
                    (_, 2) => call.several::<2>().into(),
                    (_, 3) => call.several::<3>().into(),
                    (_, 257) => call.several::<257>().into(),
                    (_, count) => return Err(format!("{count} results").into()),
                };
                names.iter().zip(made).for_each(|(name, tensor)| self.keep(name, tensor));
            }
            Some(name) => {
                let made = call.one();
                self.keep(name, made);
            }
        }
        Ok(())
    }

    fn argument(&self, call: Call, name: &str, given: &Value) -> Call {
        let name = name.to_owned();
        let (kind, value) = given.as_object().unwrap().iter().next().unwrap();
        match &kind[..] {
            "tensor" => call.named(name, &self.tensors[text(value)]),
            "tensors" => call.named(name, self.named(value)),
            "float" => call.named(name, float(value)),
            "integer" => call.named(name, value.as_i64().unwrap()),
            "boolean" => call.named(name, value.as_bool().unwrap()),
            "string" => call.named(name, text(value)),
            "dtype" => call.named(name, dtype_of(value)),
            "integers" => call.named(name, integers(value)),
            "floats" => call.named(name, floats(value)),
            "complex" => call.named(name, Complex { re: float(&value[0]), im: float(&value[1]) }),
            "none" => call.named(name, None::<f64>),
            "round" => call.named(name, float(value) * self.round as f64),
            "number" => call.named(name, self.numbers[value.as_u64().unwrap() as usize]),
            "index" => call.named(name, list(value).iter().map(|item| self.item(item)).collect::<Vec<_>>()),
            unknown => panic!("unknown argument {unknown}"),
        }
    }

    fn item(&self, given: &Value) -> IndexItem {
        let (kind, value) = given.as_object().unwrap().iter().next().unwrap();
        match &kind[..] {
            "integer" => value.as_i64().unwrap().into(),
            "boolean" => value.as_bool().unwrap().into(),
            "slice" => IndexItem::slice(value[0].as_i64(), value[1].as_i64(), value[2].as_i64()),
            "new_axis" => IndexItem::new_axis(),
            "tensor" => (&self.tensors[text(value)]).into(),
            "ellipsis" => IndexItem::ellipsis(),
            unknown => panic!("unknown item {unknown}"),
        }
    }

    fn hook(&mut self, step: &Step) -> Outcome {
        let name = text(&step["name"]).to_owned();
        let (fails, factor) = (flag(step, "fails"), step.get("factor").and_then(Value::as_f64));
        let (called, told) = (Arc::clone(&self.called), name.clone());
        let ran = move || {
            called.lock().unwrap().push(told.clone());
            if fails { Err(HookFailed) } else { Ok(()) }
        };
        let of = &self.tensors[text(&step["of"])];
        let hook = if text(&step["kind"]) == "accumulated" {
            of.register_post_accumulate_grad_hook(move |_| Ok(ran()?))?
        } else {
            of.register_hook(move |gradient| {
                ran()?;
                Ok(factor.map(|factor| gradient * factor))
            })?
        };
        self.hooks.insert(name, hook);
        Ok(())
    }

    fn program(&mut self, step: &Step) -> Outcome {
        let given: Vec<&Step> = list(&step["inputs"]).iter().map(|each| each.as_object().unwrap()).collect();
        let input = |each: &&Step| {
            Input::new(dtype_of(&each["dtype"]), integers(&each["shape"])).requires_grad(flag(each, "requires_grad"))
        };
        let inputs: Vec<Input> = given.iter().map(input).collect();
        let numbers = step["numbers"].as_u64().unwrap() as usize;
        let mut wrong = None;
        let made = self.session.trace(&inputs, numbers, |session, inputs, numbers| {
            let mut inner = Runner { numbers: numbers.to_vec(), ..Runner::new(session) };
            given.iter().zip(inputs).for_each(|(each, tensor)| inner.keep(&each["name"], tensor.clone()));
            for each in list(&step["steps"]) {
                wrong = wrong.take().or(inner.step(each.as_object().unwrap()).err());
            }
            Ok(inner.named(&step["outputs"]).iter().map(Tensor::detach).collect())
        });
        if let Some(error) = wrong {
            return Err(error);
        }
        self.programs.insert(text(&step["name"]).to_owned(), made?);
        Ok(())
    }

    fn run(&mut self, step: &Step) {
        let places = step.get("sliced").map_or(Vec::new(), integers);
        let mut options = RunOptions::default()
            .numbers(step.get("numbers").map_or(Vec::new(), floats))
            .sliced(places.iter().map(|place| *place as usize).collect::<Vec<_>>())
            .stacked(flag(step, "stacked"));
        if let Some(times) = step.get("repeat").and_then(Value::as_u64) {
            options = options.repeat(times as usize);
        }
        let made = self.programs[text(&step["program"])].run_with(&self.several(step, "inputs"), options);
        list(&step["out"]).iter().zip(made).for_each(|(name, tensor)| self.keep(name, tensor));
    }

    fn read(&self, step: &Step) -> Outcome {
        let payload = self.tensors[text(&step["of"])].read().wait()?;
        compare(&payload, step["expect"].as_object().unwrap())
    }

    fn describe(&self, step: &Step) -> Outcome {
        let told = self.tensors[text(&step["of"])].describe().wait()?;
        let found = json!({
            "dtype": told.dtype.name(), "shape": told.shape, "requires_grad": told.requires_grad,
            "is_leaf": told.is_leaf, "grad_fn": told.grad_fn, "retains_grad": told.retains_grad,
            "is_view": told.is_view, "version": told.version,
        });
        for (key, wanted) in step["expect"].as_object().unwrap() {
            if found[key] != *wanted {
                return Err(format!("{key} is {} instead of {wanted}", found[key]).into());
            }
        }
        Ok(())
    }
}

fn compare(payload: &Payload, expected: &Step) -> Outcome {
    if payload.dtype != dtype_of(&expected["dtype"]) || payload.shape != integers(&expected["shape"]) {
        return Err(format!("{:?} {:?} instead of {expected:?}", payload.dtype, payload.shape).into());
    }
    let same = |found: String, wanted: &Value| match found == text(wanted) {
        true => Ok(()),
        false => Err(format!("{found} instead of {wanted}").into()),
    };
    if let Some(hash) = expected.get("sha256") {
        return same(hex(&Sha256::digest(&payload.data)), hash);
    }
    if let Some(data) = expected.get("hex") {
        return same(hex(&payload.data), data);
    }
    let tolerance = match payload.dtype {
        DType::Float32 => 1e-5,
        DType::Float64 => 1e-10,
        _ => 0.0,
    };
    let (found, wanted) = (payload.to_f64()?, floats(&expected["values"]));
    if found.len() != wanted.len() {
        return Err(format!("{found:?} instead of {wanted:?}").into());
    }
    for (found, wanted) in found.iter().zip(&wanted) {
        let same = found == wanted || (found.is_nan() && wanted.is_nan());
        // A nan is not near to anything.
        let near = (found - wanted).abs() <= tolerance * wanted.abs().max(1.0);
        if !same && !near {
            return Err(format!("{found} instead of {wanted}").into());
        }
    }
    Ok(())
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn flag(step: &Step, key: &str) -> bool {
    step.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn float(value: &Value) -> f64 {
    match value {
        Value::String(name) => name.parse().unwrap(), // "nan", "inf" and "-inf"
        Value::Bool(value) => f64::from(*value),
        value => value.as_f64().unwrap(),
    }
}

fn floats(values: &Value) -> Vec<f64> {
    list(values).iter().map(float).collect()
}

fn integers(values: &Value) -> Vec<i64> {
    list(values).iter().map(|value| value.as_i64().unwrap()).collect()
}

fn dtype_of(name: &Value) -> DType {
    DType::from_str_name(&format!("DTYPE_{}", text(name).to_uppercase())).unwrap()
}

fn hex(data: &[u8]) -> String {
    data.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn four_thousand_additions_arrive_once() {
    let Some(proxy) = Cutting::new(2_000, 12_000) else { return };
    let options = ConnectOptions::default().local_stream(false); // it would pass by the proxy
    let session = Session::connect_with(&proxy.address, options).wait().unwrap();
    let sum = session.tensor([0f32]);
    for _ in 0..4_000 {
        sum.add_(1.0);
    }
    assert_eq!(sum.item().wait().unwrap(), 4_000.0);
    let cuts = proxy.end();
    assert!(cuts > 1, "{cuts} cuts, {} reconnects", session.reconnects());
}
