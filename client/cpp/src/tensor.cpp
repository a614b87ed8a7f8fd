// Tensors: what asks the server about them, and what changes them.
#include "gradwire/tensor.hpp"

#include <cstring>

#include "core.hpp"
#include "failures.hpp"
#include "gradwire/autograd.hpp"

namespace gradwire {

using namespace detail;  // NOLINT: this library's own

namespace detail {

const std::shared_ptr<Core>& core_of(const Tensor& tensor, const char* op) {
    if (!tensor.defined()) raise(mistake(Reason::ArgumentType, op, "the tensor is empty"));
    return tensor.handle()->core;
}

std::shared_ptr<Core> common_core(const char* op, std::initializer_list<const std::vector<Tensor>*> lists) {
    std::shared_ptr<Core> core;
    for (const auto* list : lists) {
        for (const Tensor& each : *list) {
            if (!each.defined()) continue;
            if (!core) core = each.handle()->core;
            if (core != each.handle()->core) {
                raise(mistake(Reason::ArgumentValue, op, "the tensors belong to different sessions"));
            }
        }
    }
    return core;
}

}  // namespace detail

std::uint64_t Tensor::id() const noexcept { return handle_ ? handle_->id : 0; }

Payload Tensor::read() const {
    Payload made;
    read_into([&](DType dtype, std::vector<std::int64_t> shape, std::size_t size) {
        made.dtype = dtype;
        made.shape = std::move(shape);
        resize_for_read(made.data, size);
        return made.data.data();
    });
    return made;
}

void Tensor::read_into(const Place& place) const {
    const auto& core = core_of(*this, "read");
    pb::Command command;
    command.mutable_read()->set_tensor(id());
    pb::Result result = core->ask(std::move(command));
    auto& answer = *result.mutable_read();
    auto placed = [&](const auto& values, std::size_t size) {
        return place(static_cast<DType>(values.dtype()), {values.shape().begin(), values.shape().end()}, size);
    };
    if (answer.has_transfer()) {
        download(*core, answer.transfer(), placed(answer.transfer(), answer.transfer().total_bytes()));
    } else {
        const std::string& data = answer.payload().data();
        char* target = placed(answer.payload(), data.size());
        if (!data.empty()) std::memcpy(target, data.data(), data.size());
    }
}

double Tensor::item() const {
    const std::vector<double> values = to_doubles();
    if (values.size() != 1) {
        raise(mistake(Reason::Runtime, "",
                      "a Tensor with " + std::to_string(values.size()) + " elements cannot be converted to Scalar"));
    }
    return values.front();
}

void Tensor::expect(DType found, DType wanted) {
    if (found != wanted) {
        raise(mistake(Reason::Dtype, "",
                      "the tensor has " + std::string(name_of(found)) + ", not " + std::string(name_of(wanted))));
    }
}

Description Tensor::describe() const {
    const auto& core = core_of(*this, "describe");
    pb::Command command;
    command.mutable_describe()->add_tensors(id());
    const pb::Result result = core->ask(std::move(command));
    if (result.describe().tensors_size() != 1) raise(mistake(Reason::Internal, "", "the server described nothing"));
    const auto& spec = result.describe().tensors(0);
    Description made;
    made.dtype = static_cast<DType>(spec.dtype());
    made.shape.assign(spec.shape().begin(), spec.shape().end());
    made.device = spec.device();
    made.requires_grad = spec.requires_grad();
    made.is_leaf = spec.is_leaf();
    made.grad_fn = spec.grad_fn();
    made.retains_grad = spec.retains_grad();
    made.is_view = spec.is_view();
    made.version = spec.version();
    return made;
}

Tensor Tensor::requires_grad_(bool requires_grad) const {
    const auto& core = core_of(*this, "requires_grad_");
    pb::Command command;
    command.mutable_set_requires_grad()->set_tensor(id());
    command.mutable_set_requires_grad()->set_requires_grad(requires_grad);
    core->sink().send(std::move(command));
    return *this;
}

Tensor Tensor::retain_grad() const {
    const auto& core = core_of(*this, "retain_grad");
    pb::Command command;
    command.mutable_retain_grad()->set_tensor(id());
    core->sink().send(std::move(command));
    return *this;
}

Tensor Tensor::grad() const {
    const auto& core = core_of(*this, "grad");
    Tensor made = core->new_tensor();
    pb::Command command;
    command.mutable_grad()->set_tensor(id());
    command.mutable_grad()->set_id(made.id());
    core->sink().send(std::move(command));
    return made;
}

bool Tensor::has_grad() const {
    const auto& core = core_of(*this, "has_grad");
    const Tensor made = core->new_tensor();
    pb::Command command;
    command.mutable_grad()->set_tensor(id());
    command.mutable_grad()->set_id(made.id());
    return core->ask(std::move(command)).grad().has_grad();
}

void Tensor::set_grad(const Tensor& grad) const {
    const auto& core = core_of(*this, "set_grad");
    if (grad.defined() && grad.handle()->core != core) {
        raise(mistake(Reason::ArgumentValue, "set_grad", "the tensors belong to different sessions"));
    }
    pb::Command command;
    command.mutable_set_grad()->set_tensor(id());
    command.mutable_set_grad()->set_grad(grad.id());
    core->sink().send(std::move(command));
}

void Tensor::set_data(const Tensor& data) const {
    const auto& core = core_of(*this, "set_data");
    if (core_of(data, "set_data") != core) {
        raise(mistake(Reason::ArgumentValue, "set_data", "the tensors belong to different sessions"));
    }
    pb::Command command;
    command.mutable_set_data()->set_tensor(id());
    command.mutable_set_data()->set_data(data.id());
    core->sink().send(std::move(command));
}

Tensor Tensor::index(const std::vector<IndexItem>& items) const { return Call("getitem").arg(*this).arg(items).one(); }

Tensor Tensor::operator[](const IndexItem& item) const { return index({item}); }

Tensor Tensor::set_index(const std::vector<IndexItem>& items, const Operand& value) const {
    return Call("setitem_").arg(*this).arg(items).arg(value).in_place();
}

Tensor& Tensor::operator+=(const Operand& other) {
    Call("add_").arg(*this).arg(other).in_place();
    return *this;
}
Tensor& Tensor::operator-=(const Operand& other) {
    Call("sub_").arg(*this).arg(other).in_place();
    return *this;
}
Tensor& Tensor::operator*=(const Operand& other) {
    Call("mul_").arg(*this).arg(other).in_place();
    return *this;
}
Tensor& Tensor::operator/=(const Operand& other) {
    Call("div_").arg(*this).arg(other).in_place();
    return *this;
}

Tensor operator+(const Tensor& a, const Operand& b) { return Call("add").arg(a).arg(b).one(); }
Tensor operator-(const Tensor& a, const Operand& b) { return Call("sub").arg(a).arg(b).one(); }
Tensor operator*(const Tensor& a, const Operand& b) { return Call("mul").arg(a).arg(b).one(); }
Tensor operator/(const Tensor& a, const Operand& b) { return Call("div").arg(a).arg(b).one(); }
Tensor operator+(const Scalar& a, const Tensor& b) { return Call("add").arg(a).arg(b).one(); }
Tensor operator-(const Scalar& a, const Tensor& b) { return Call("sub").arg(a).arg(b).one(); }
Tensor operator*(const Scalar& a, const Tensor& b) { return Call("mul").arg(a).arg(b).one(); }
Tensor operator/(const Scalar& a, const Tensor& b) { return Call("div").arg(a).arg(b).one(); }
Tensor operator-(const Tensor& a) { return Call("neg").arg(a).one(); }
Tensor operator<(const Tensor& a, const Operand& b) { return Call("lt").arg(a).arg(b).one(); }
Tensor operator>(const Tensor& a, const Operand& b) { return Call("gt").arg(a).arg(b).one(); }
Tensor operator<=(const Tensor& a, const Operand& b) { return Call("le").arg(a).arg(b).one(); }
Tensor operator>=(const Tensor& a, const Operand& b) { return Call("ge").arg(a).arg(b).one(); }

}  // namespace gradwire
