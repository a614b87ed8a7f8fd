// Arguments, and what a call becomes: a message, the key of a prepared op, or the words of a prepared call.
#include "gradwire/call.hpp"

#include <array>
#include <bit>
#include <cstring>

#include "core.hpp"
#include "failures.hpp"

namespace gradwire {

using detail::Lists;

static_assert(std::endian::native == std::endian::little, "the protocol's values are little-endian");

namespace detail {

void too_large() { raise(mistake(Reason::ArgumentValue, "", "Overflow when unpacking long long")); }

}  // namespace detail

namespace {

/// Whether text is UTF-8, without overlong forms and surrogates.
bool is_utf8(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
        const auto byte = [&](std::size_t place) { return static_cast<unsigned char>(text[place]); };
        const unsigned lead = byte(at);
        const std::size_t more = lead < 0x80         ? 0
                                 : lead >> 5 == 0x6  ? 1
                                 : lead >> 4 == 0xE  ? 2
                                 : lead >> 3 == 0x1E ? 3
                                                     : 4;
        if (more == 4 || text.size() - at <= more) return false;
        std::uint32_t code = more == 0 ? lead : lead & (0x3Fu >> more);
        for (std::size_t i = 1; i <= more; ++i) {
            if (byte(at + i) >> 6 != 0x2) return false;
            code = code << 6 | (byte(at + i) & 0x3Fu);
        }
        constexpr std::array<std::uint32_t, 4> least{0, 0x80, 0x800, 0x10000};
        if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
        at += more + 1;
    }
    return true;
}

/// Refuses text that no message can hold: the server could not parse the batch, and the session would end.
void check_text(const std::string& text) {
    if (!is_utf8(text)) raise(detail::mistake(Reason::ArgumentValue, "", "a name or a string is not valid UTF-8"));
}

}  // namespace

// Arguments

Argument::Argument(const char* value) : Argument(std::string(value)) {}

Argument::Argument(const std::string& value) : kind_(Kind::String) {
    check_text(value);
    auto lists = std::make_shared<Lists>();
    lists->text = value;
    lists_ = std::move(lists);
}

Argument::Argument(const Integers& values) : kind_(values.given() ? Kind::Integers : Kind::None) {
    auto lists = std::make_shared<Lists>();
    lists->integers = values.values();
    lists_ = std::move(lists);
}

Argument::Argument(const Floats& values) : kind_(values.given() ? Kind::Floats : Kind::None) {
    auto lists = std::make_shared<Lists>();
    lists->floats = values.values();
    lists_ = std::move(lists);
}

Argument::Argument(const Tensor& tensor)
    : kind_(tensor.defined() ? Kind::Tensor : Kind::None), bits_(tensor.id()), tensor_(tensor.handle()) {}

Argument::Argument(const std::vector<Tensor>& tensors) : kind_(Kind::Tensors) {
    auto lists = std::make_shared<Lists>();
    lists->tensors = tensors;
    lists_ = std::move(lists);
}

Argument::Argument(const std::vector<IndexItem>& items) : kind_(Kind::Index) {
    auto lists = std::make_shared<Lists>();
    lists->items = items;
    lists_ = std::move(lists);
}

void Argument::set_float(double value) {
    kind_ = Kind::Float;
    bits_ = std::bit_cast<std::uint64_t>(value);
}

// Calls

namespace {

constexpr char no_tensor[] = "Expected a proper Tensor but got an empty one, and the call names no session";

}  // namespace

Call::Call(std::string op) : Call(std::shared_ptr<detail::Core>(), std::move(op)) {}

Call::Call(const Session& session, std::string op) : Call(session.core(), std::move(op)) {}

Call::Call(std::shared_ptr<detail::Core> core, std::string op) : op_(std::move(op)), core_(std::move(core)) {
    check_text(op_);
    args_.reserve(4);
}

/// Checks that a tensor is of the call's session.
void Call::check(const std::shared_ptr<detail::Handle>& tensor, std::string_view name) {
    if (!tensor) {
        raise(detail::mistake(Reason::ArgumentType, op_, std::string(name) + ": a tensor of the list is empty"));
    }
    if (!core_) core_ = tensor->core;
    if (core_ != tensor->core) {
        const std::string argument = name.empty() ? std::string() : std::string(name) + ": ";
        raise(detail::mistake(Reason::ArgumentValue, op_, argument + "the tensor belongs to another session"));
    }
}

Call& Call::named(std::string_view name, Argument value) {
    using Kind = Argument::Kind;
    if (value.kind_ == Kind::Absent) value.kind_ = Kind::None;
    if (value.kind_ == Kind::Tensor) {
        check(value.tensor_, name);
        if (!first_) first_ = value.tensor_;
    } else if (value.kind_ == Kind::Tensors) {
        for (const Tensor& each : value.lists_->tensors) check(each.handle(), name);
    } else if (value.kind_ == Kind::Index) {
        for (const IndexItem& each : value.lists_->items) {
            if (each.kind == IndexItem::Kind::Tensor) check(each.tensor.handle(), name);
        }
    }
    value.name_ = name;
    args_.push_back(std::move(value));
    return *this;
}

Call& Call::option(std::string_view name, const std::vector<Tensor>& value) {
    return value.empty() ? *this : named(name, value);
}

Call& Call::option(std::string_view name, const Tensor& value) { return value.defined() ? named(name, value) : *this; }

std::vector<Tensor> Call::several(std::size_t count) {
    if (!core_) raise(detail::mistake(Reason::ArgumentType, op_, no_tensor));
    std::vector<Tensor> made;
    detail::Operation operation{*this, grad_mode(), {}};
    made.reserve(count);
    operation.outputs.reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
        made.push_back(core_->new_tensor());
        operation.outputs.push_back(made.back().id());
    }
    core_->sink().op(operation);
    return made;
}

Tensor Call::one() {
    if (op_.ends_with('_')) return in_place();
    return std::move(several(1).front());
}

Tensor Call::in_place() {
    several(0);
    return Tensor(first_);
}

std::vector<Tensor> Call::list() {
    if (!core_) raise(detail::mistake(Reason::ArgumentType, op_, no_tensor));
    detail::pb::Command command;
    *command.mutable_op() = detail::request_of({*this, grad_mode(), {}});
    detail::pb::Result result = core_->ask(std::move(command));
    std::vector<Tensor> made;
    for (const auto& each : result.op().outputs()) made.push_back(core_->adopt(each.id()));
    return made;
}

// What a call becomes

struct CallAccess {
    using Kind = Argument::Kind;

    static void fill(const Argument& given, v1::Argument& made);
    static void fill(const IndexItem& given, v1::IndexItem& made);
    static v1::OpRequest request(const detail::Operation& operation);
    static bool key(const detail::Operation& operation, std::string& key);
    static void words(const detail::Operation& operation, std::uint32_t number, std::string& words);
    static void append(std::string& text, std::uint64_t value) {
        text.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
};

void CallAccess::fill(const Argument& given, v1::Argument& made) {
    if (!given.name_.empty()) made.set_name(given.name_);
    switch (given.kind_) {
        case Kind::Absent:
        case Kind::None:
            made.mutable_none();
            break;
        case Kind::Tensor:
            made.set_tensor(given.bits_);
            break;
        case Kind::Tensors:
            detail::add_ids(given.lists_->tensors, made.mutable_tensors()->mutable_ids());
            break;
        case Kind::Float:
            made.set_float_(std::bit_cast<double>(given.bits_));
            break;
        case Kind::Integer:
            made.set_integer(static_cast<std::int64_t>(given.bits_));
            break;
        case Kind::Boolean:
            made.set_boolean(given.bits_ != 0);
            break;
        case Kind::String:
            made.set_string(given.lists_->text);
            break;
        case Kind::Dtype:
            made.set_dtype(static_cast<v1::Dtype>(given.bits_));
            break;
        case Kind::Integers: {
            const auto& values = given.lists_->integers;
            made.mutable_integers()->mutable_values()->Add(values.begin(), values.end());
            break;
        }
        case Kind::Floats: {
            const auto& values = given.lists_->floats;
            made.mutable_floats()->mutable_values()->Add(values.begin(), values.end());
            break;
        }
        case Kind::Complex:
            made.mutable_complex()->set_real(std::bit_cast<double>(given.bits_));
            made.mutable_complex()->set_imag(given.imaginary_);
            break;
        case Kind::Index:
            made.mutable_index();
            for (const IndexItem& each : given.lists_->items) fill(each, *made.mutable_index()->add_items());
            break;
        case Kind::Number:
            made.set_number(static_cast<std::uint32_t>(given.bits_));
            break;
    }
}

void CallAccess::fill(const IndexItem& given, v1::IndexItem& made) {
    switch (given.kind) {
        case IndexItem::Kind::Integer:
            made.set_integer(given.integer);
            break;
        case IndexItem::Kind::Boolean:
            made.set_boolean(given.integer != 0);
            break;
        case IndexItem::Kind::Slice:
            made.mutable_slice();
            if (given.bounds.start) made.mutable_slice()->set_start(*given.bounds.start);
            if (given.bounds.stop) made.mutable_slice()->set_stop(*given.bounds.stop);
            if (given.bounds.step) made.mutable_slice()->set_step(*given.bounds.step);
            break;
        case IndexItem::Kind::Ellipsis:
            made.set_ellipsis(true);
            break;
        case IndexItem::Kind::NewAxis:
            made.set_new_axis(true);
            break;
        case IndexItem::Kind::Tensor:
            made.set_tensor(given.tensor.id());
            break;
    }
}

v1::OpRequest CallAccess::request(const detail::Operation& operation) {
    v1::OpRequest made;
    made.set_op(operation.call.op_);
    for (const Argument& each : operation.call.args_) fill(each, *made.add_args());
    made.mutable_outputs()->Add(operation.outputs.begin(), operation.outputs.end());
    made.set_grad_mode(static_cast<v1::GradMode>(operation.mode));
    return made;
}

bool CallAccess::key(const detail::Operation& operation, std::string& key) {
    key.append(operation.call.op_).push_back('\0');
    key.push_back(static_cast<char>(operation.mode));
    append(key, operation.outputs.size());
    for (const Argument& each : operation.call.args_) {
        key.push_back(static_cast<char>(each.kind_));
        key.append(each.name_).push_back('\0');
        switch (each.kind_) {
            case Kind::Tensor:
            case Kind::Float:
                break;
            case Kind::Tensors:
                append(key, each.lists_->tensors.size());
                break;
            case Kind::String:
                key.append(each.lists_->text).push_back('\0');
                break;
            case Kind::Integers:
                append(key, each.lists_->integers.size());
                for (std::int64_t value : each.lists_->integers) append(key, static_cast<std::uint64_t>(value));
                break;
            case Kind::Floats:
            case Kind::Complex:
            case Kind::Index:
                return false;  // rare, and sent as they are
            default:
                append(key, each.bits_);
        }
    }
    return true;
}

void CallAccess::words(const detail::Operation& operation, std::uint32_t number, std::string& words) {
    append(words, number);
    for (const Argument& each : operation.call.args_) {
        if (each.kind_ == Kind::Tensor || each.kind_ == Kind::Float) append(words, each.bits_);
        if (each.kind_ == Kind::Tensors) {
            for (const Tensor& tensor : each.lists_->tensors) append(words, tensor.id());
        }
    }
    for (std::uint64_t id : operation.outputs) append(words, id);
}

namespace detail {

pb::OpRequest request_of(const Operation& operation) { return CallAccess::request(operation); }

bool append_key(const Operation& operation, std::string& key) { return CallAccess::key(operation, key); }

void append_words(const Operation& operation, std::uint32_t number, std::string& words) {
    CallAccess::words(operation, number, words);
}

}  // namespace detail
}  // namespace gradwire
