// Programs: recording them, running them, and those of files.
#include "gradwire/program.hpp"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "core.hpp"
#include "failures.hpp"
#include "gradwire/session.hpp"

namespace gradwire {

using namespace detail;  // NOLINT: this library's own

// Recording

namespace detail {

void Recorder::send(pb::Command&& command) {
    pb::ProgramStep& step = *program_.add_steps();
    switch (command.command_case()) {
        case pb::Command::kCreate:
            *step.mutable_create() = std::move(*command.mutable_create());
            break;
        case pb::Command::kBackward:
            *step.mutable_backward() = std::move(*command.mutable_backward());
            break;
        case pb::Command::kRetainGrad:
            *step.mutable_retain_grad() = std::move(*command.mutable_retain_grad());
            break;
        case pb::Command::kGrad:
            *step.mutable_grad() = std::move(*command.mutable_grad());
            break;
        case pb::Command::kGradients:
            *step.mutable_gradients() = std::move(*command.mutable_gradients());
            break;
        case pb::Command::kSetGrad:
            *step.mutable_set_grad() = std::move(*command.mutable_set_grad());
            break;
        case pb::Command::kSetRequiresGrad:
            *step.mutable_set_requires_grad() = std::move(*command.mutable_set_requires_grad());
            break;
        case pb::Command::kSetData:
            *step.mutable_set_data() = std::move(*command.mutable_set_data());
            break;
        case pb::Command::kManualSeed:
            *step.mutable_manual_seed() = std::move(*command.mutable_manual_seed());
            break;
        default:
            raise(mistake(Reason::NotSupported, "", "a program cannot have this command"));
    }
}

void Recorder::op(const Operation& operation) { *program_.add_steps()->mutable_op() = request_of(operation); }

pb::Result Recorder::ask(pb::Command&&) {
    raise(mistake(Reason::NotSupported, "", "a program cannot wait for values while it is recorded"));
}

bool Recorder::wait(std::optional<std::chrono::steady_clock::time_point>) {
    raise(mistake(Reason::NotSupported, "", "a program cannot wait for values while it is recorded"));
}

namespace {

std::string serialized(const pb::Program& program) {
    std::string bytes;
    {
        google::protobuf::io::StringOutputStream text(&bytes);
        google::protobuf::io::CodedOutputStream coded(&text);
        coded.SetSerializationDeterministic(true);
        program.SerializeToCodedStream(&coded);
    }
    return bytes;
}

Hash hash_of(const std::string& bytes) {
    Hash made{};
    std::copy_n(bytes.begin(), std::min(bytes.size(), made.size()), made.begin());
    return made;
}

/// Completes a request and sends it.
std::vector<Tensor> run_program(Core& core, pb::Command&& command, std::size_t outputs, const RunOptions& options) {
    auto* request = command.mutable_run_program();
    std::vector<Tensor> made;
    for (std::size_t i = 0; i < outputs; ++i) made.push_back(core.new_tensor());
    add_ids(made, request->mutable_outputs());
    request->mutable_numbers()->Add(options.numbers.begin(), options.numbers.end());
    request->mutable_sliced()->Add(options.sliced.begin(), options.sliced.end());
    request->set_repeat(options.repeat);
    request->set_first(options.first);
    request->set_stacked(options.stacked);
    core.sink().send(std::move(command));
    return made;
}

}  // namespace
}  // namespace detail

Input Input::like(const Tensor& tensor) {
    Description description = tensor.describe();
    return {description.dtype, std::move(description.shape), description.requires_grad, std::move(description.device)};
}

struct Program::State {
    std::weak_ptr<Core> core;
    std::string bytes;
    Hash hash;
    std::size_t inputs;
    std::size_t outputs;

    pb::Command registration() const {
        pb::Command command;
        command.mutable_register_program()->set_hash(hash.data(), hash.size());
        command.mutable_register_program()->set_program(bytes);
        return command;
    }
};

Program Session::trace(const std::vector<Input>& inputs, std::size_t numbers, const Program::Function& function) {
    pb::Program program;
    program.set_numbers(static_cast<std::uint32_t>(numbers));
    Session inner(Core::recording(std::make_unique<Recorder>(program)));
    std::vector<Tensor> slots;
    for (const Input& each : inputs) {
        pb::ProgramInput& input = *program.add_inputs();
        input.set_dtype(static_cast<pb::Dtype>(each.dtype));
        input.mutable_shape()->Add(each.shape.begin(), each.shape.end());
        input.set_requires_grad(each.requires_grad);
        input.set_device(each.device);
        slots.push_back(inner.core()->new_tensor());
    }
    std::vector<Number> places;
    for (std::uint32_t place = 0; place < numbers; ++place) places.push_back({place});
    const std::vector<Tensor> outputs = function(inner, slots, places);
    for (const Tensor& each : outputs) {
        if (!each.defined() || each.handle()->core != inner.core()) {
            raise(mistake(Reason::ArgumentValue, "trace", "an output of the program is not of its session"));
        }
    }
    add_ids(outputs, program.mutable_outputs());
    auto state = std::make_shared<Program::State>();
    state->core = core_;
    state->bytes = serialized(program);
    state->hash = sha256(state->bytes);
    state->inputs = inputs.size();
    state->outputs = outputs.size();
    core_->ask(state->registration());
    core_->ran(state->hash);
    Program made;
    made.state_ = std::move(state);
    return made;
}

std::vector<Tensor> Program::run(const std::vector<Tensor>& inputs, const RunOptions& options) const {
    const auto core = state_ ? state_->core.lock() : nullptr;
    if (!core) raise(closed());
    if (inputs.size() != state_->inputs) {
        raise(mistake(
            Reason::ArgumentType, "run",
            "the program takes " + std::to_string(state_->inputs) + " inputs, not " + std::to_string(inputs.size())));
    }
    const auto from = common_core("run", {&inputs});
    if (from && from != core) raise(mistake(Reason::ArgumentValue, "run", "the inputs belong to another session"));
    std::lock_guard lock(core->running());
    if (core->ran(state_->hash)) core->sink().send(state_->registration());
    pb::Command command;
    command.mutable_run_program()->set_hash(state_->hash.data(), state_->hash.size());
    add_ids(inputs, command.mutable_run_program()->mutable_inputs());
    return run_program(*core, std::move(command), state_->outputs, options);
}

// Files

struct FileProgram::State {
    std::weak_ptr<Core> core;
    pb::LoadedProgram loaded;
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
    std::map<std::string, std::uint32_t> places;
    std::vector<Tensor> bound;  // the file's tensors live as long as a program that names them
    Tensor file;
    std::shared_ptr<const std::vector<Hash>> hashes;  // of all programs of the file

    void load_again(Core& to) const;
};

/// Registers programs that the server may have forgotten. The tensors that this makes are released.
void FileProgram::State::load_again(Core& to) const {
    pb::Command command;
    command.mutable_load_program()->set_file(file.id());
    std::vector<Tensor> made;
    for (std::size_t i = 0; i < bound.size(); ++i) {
        made.push_back(to.new_tensor());
        command.mutable_load_program()->add_ids(made.back().id());
    }
    to.sink().send(std::move(command));
    to.loaded(*hashes);
}

ProgramFile Session::load_program(std::string_view file) {
    ProgramFile made;
    made.file_ = from_bytes(DType::Uint8, file, {static_cast<std::int64_t>(file.size())});
    pb::Command command;
    command.mutable_load_program()->set_file(made.file_.id());
    const pb::Result result = core_->ask(std::move(command));
    std::vector<Tensor> bound;
    for (const auto& each : result.load_program().tensors()) {
        bound.push_back(core_->adopt(each.spec().id()));
        made.tensors_.emplace(each.name(), bound.back());
    }
    std::vector<Hash> programs;
    for (const auto& each : result.load_program().programs()) programs.push_back(hash_of(each.hash()));
    core_->loaded(programs);
    const auto hashes = std::make_shared<const std::vector<Hash>>(std::move(programs));
    for (const auto& each : result.load_program().programs()) {
        auto state = std::make_shared<FileProgram::State>();
        state->core = core_;
        state->loaded = each;
        state->bound = bound;
        state->file = made.file_;
        state->hashes = hashes;
        for (int place = 0; place < each.signature_size(); ++place) {
            if (place < each.inputs_size() && each.inputs(place) != 0) continue;
            state->inputs.push_back(each.signature(place).name());
            state->places.emplace(each.signature(place).name(), static_cast<std::uint32_t>(place));
        }
        for (const auto& output : each.outputs()) state->outputs.push_back(output.name());
        FileProgram program;
        program.state_ = std::move(state);
        made.programs_.emplace(each.name(), std::move(program));
    }
    return made;
}

const std::string& FileProgram::name() const noexcept { return state_->loaded.name(); }

const std::vector<std::string>& FileProgram::inputs() const noexcept { return state_->inputs; }

const std::vector<std::string>& FileProgram::outputs() const noexcept { return state_->outputs; }

std::uint32_t FileProgram::place(const std::string& input) const {
    const auto found = state_->places.find(input);
    if (found == state_->places.end()) {
        raise(mistake(Reason::ArgumentValue, "run", name() + " has no input \"" + input + "\""));
    }
    return found->second;
}

std::vector<Tensor> FileProgram::run(const std::map<std::string, Tensor>& named, const RunOptions& options) const {
    const auto core = state_->core.lock();
    if (!core) raise(closed());
    pb::Command command;
    auto* request = command.mutable_run_program();
    request->set_hash(state_->loaded.hash());
    *request->mutable_inputs() = state_->loaded.inputs();
    for (const auto& [name, tensor] : named) {
        if (core_of(tensor, "run") != core) {
            raise(mistake(Reason::ArgumentValue, "run", "the inputs belong to another session"));
        }
        auto* input = request->add_named();
        input->set_name(name);
        input->set_id(tensor.id());
    }
    const Hash hash = hash_of(state_->loaded.hash());
    std::lock_guard lock(core->running());
    if (!core->has(hash)) state_->load_again(*core);
    core->ran(hash);
    const auto outputs = static_cast<std::size_t>(state_->loaded.outputs_size());
    return run_program(*core, std::move(command), outputs, options);
}

std::vector<std::string> ProgramFile::names() const {
    std::vector<std::string> made;
    for (const auto& each : programs_) made.push_back(each.first);
    return made;
}

const FileProgram& ProgramFile::program(const std::string& name) const {
    if (name.empty() && programs_.size() == 1) return programs_.begin()->second;
    const auto found = programs_.find(name);
    if (found != programs_.end()) return found->second;
    std::string known;
    for (const auto& each : programs_) known += (known.empty() ? "" : ", ") + each.first;
    raise(mistake(Reason::ArgumentValue, "", "the file has no program \"" + name + "\"; it has " + known));
}

std::string ProgramFile::save() const {
    const auto& core = core_of(file_, "save");
    const Tensor made = core->new_tensor();
    pb::Command command;
    auto* request = command.mutable_save_program();
    request->set_file(file_.id());
    request->set_id(made.id());
    for (const auto& [name, tensor] : tensors_) {
        auto* each = request->add_tensors();
        each->set_name(name);
        each->set_id(tensor.id());
    }
    core->sink().send(std::move(command));
    return made.read().data;
}

}  // namespace gradwire
