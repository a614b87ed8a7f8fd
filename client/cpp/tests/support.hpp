// What the tests share: where the server is, JSON, and proxies that cut connections.
#pragma once

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradwire/gradwire.hpp"

namespace support {

inline std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value ? value : "";
}

/// The address of a live server; empty without one. Tests that need it skip.
inline std::string address() { return variable("GRADWIRE_ADDRESS"); }

#define NEEDS_A_SERVER() \
    if (support::address().empty()) GTEST_SKIP() << "needs a server: set GRADWIRE_ADDRESS, or run make test-sdks"

/// tests/conformance of the repository.
inline std::string conformance() {
    const std::string told = variable("GRADWIRE_CONFORMANCE");
    return told.empty() ? std::string(GRADWIRE_SOURCE "/../../tests/conformance") : told;
}

inline std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// A value of JSON. What is missing is null, and converts to the empty value.
class Json {
  public:
    Json() = default;
    explicit Json(google::protobuf::Value value) : value_(std::move(value)) {}
    static Json parse(const std::string& text) {
        google::protobuf::Value value;
        const auto status = google::protobuf::util::JsonStringToMessage(text, &value);
        if (!status.ok()) throw std::runtime_error("no JSON: " + status.ToString());
        return Json(value);
    }
    Json operator[](const std::string& key) const {
        const auto& fields = value_.struct_value().fields();
        const auto found = fields.find(key);
        return found == fields.end() ? Json() : Json(found->second);
    }
    std::map<std::string, Json> members() const {
        std::map<std::string, Json> made;
        for (const auto& [key, value] : value_.struct_value().fields()) made.emplace(key, Json(value));
        return made;
    }
    std::vector<Json> items() const {
        std::vector<Json> made;
        for (const auto& each : value_.list_value().values()) made.emplace_back(each);
        return made;
    }
    bool null() const {
        return value_.kind_case() == google::protobuf::Value::KIND_NOT_SET ||
               value_.kind_case() == google::protobuf::Value::kNullValue;
    }
    bool is_string() const { return value_.kind_case() == google::protobuf::Value::kStringValue; }
    bool is_boolean() const { return value_.kind_case() == google::protobuf::Value::kBoolValue; }
    bool is_list() const { return value_.kind_case() == google::protobuf::Value::kListValue; }
    const std::string& text() const { return value_.string_value(); }
    bool flag() const { return value_.bool_value(); }
    double number() const { return value_.number_value(); }
    std::int64_t integer() const { return static_cast<std::int64_t>(value_.number_value()); }
    /// A number, also as "nan", "inf" or a bool.
    double real() const {
        if (is_boolean()) return flag() ? 1 : 0;
        return is_string() ? std::stod(text()) : number();
    }
    std::vector<double> reals() const {
        std::vector<double> made;
        for (const Json& each : items()) made.push_back(each.real());
        return made;
    }
    std::vector<std::int64_t> integers() const {
        std::vector<std::int64_t> made;
        for (const Json& each : items()) made.push_back(each.integer());
        return made;
    }

  private:
    google::protobuf::Value value_;
};

inline std::string unhex(const std::string& text) {
    std::string made;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        made.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
    }
    return made;
}

inline std::string hex(const std::string& bytes) {
    std::string made;
    for (unsigned char byte : bytes) {
        made.push_back("0123456789abcdef"[byte >> 4]);
        made.push_back("0123456789abcdef"[byte & 15]);
    }
    return made;
}

/// A proxy that cuts connections after least to most bytes. It ends with this object.
class Cutter {
  public:
    Cutter(std::int64_t least, std::int64_t most) {
        const std::string control = variable("GRADWIRE_CUTTING");
        const auto colon = control.rfind(':');
        socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<std::uint16_t>(std::stoi(control.substr(colon + 1))));
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
            throw std::runtime_error("cannot connect to " + control);
        }
        const std::string asked = std::to_string(least) + " " + std::to_string(most) + "\n";
        if (::send(socket_, asked.data(), asked.size(), MSG_NOSIGNAL) < 0) throw std::runtime_error("no proxy");
        address_ = line();
    }
    Cutter(const Cutter&) = delete;
    Cutter& operator=(const Cutter&) = delete;
    ~Cutter() { ::close(socket_); }
    const std::string& address() const { return address_; }
    /// How often it cut. It ends the proxy.
    int cuts() {
        ::shutdown(socket_, SHUT_WR);
        return std::stoi(line());
    }

  private:
    std::string line() {
        std::string made;
        for (char byte = 0; ::recv(socket_, &byte, 1, 0) == 1 && byte != '\n';) made.push_back(byte);
        return made;
    }
    int socket_ = -1;
    std::string address_;
};

/// The element type of PyTorch's name.
inline gradwire::DType dtype_of(const std::string& name) {
    for (int number = 1; number < 16; ++number) {
        const auto dtype = static_cast<gradwire::DType>(number);
        if (gradwire::name_of(dtype) == name) return dtype;
    }
    throw std::runtime_error("no element type " + name);
}

}  // namespace support
