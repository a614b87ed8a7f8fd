// Trains a model that Python exported with gradwire.export: its network, its Adam optimizer and its step are in the
// file.
#pragma once

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/gradwire.hpp"

inline std::string file_contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// Trains with the inputs of `model.json`, and saves and loads the file after half of the steps. Returns the losses,
/// each beside PyTorch's.
inline std::vector<std::pair<double, double>> train_exported(const std::string& address, const std::string& folder) {
    google::protobuf::Struct told;
    const auto parsed = google::protobuf::util::JsonStringToMessage(file_contents(folder + "/model.json"), &told);
    if (!parsed.ok()) throw std::runtime_error("model.json: " + parsed.ToString());
    std::vector<float> inputs;
    const auto& rows = told.fields().at("x").list_value().values();
    for (const auto& row : rows) {
        for (const auto& value : row.list_value().values()) inputs.push_back(static_cast<float>(value.number_value()));
    }
    std::vector<std::int64_t> labels;
    for (const auto& value : told.fields().at("y").list_value().values()) {
        labels.push_back(static_cast<std::int64_t>(value.number_value()));
    }
    gradwire::Session session(address);
    const std::int64_t columns = static_cast<std::int64_t>(inputs.size()) / rows.size();
    const auto x = session.tensor(inputs, {rows.size(), columns});
    const auto y = session.tensor(labels);
    const auto& wanted = told.fields().at("losses").list_value().values();
    std::vector<std::pair<double, double>> losses;
    std::string file = file_contents(folder + "/model.safetensors");
    for (int half = 0; half < 2; ++half) {
        const gradwire::ProgramFile model = session.load_program(file);
        const auto& step = model.program();
        for (int i = half * wanted.size() / 2; i < (half + 1) * wanted.size() / 2; ++i) {
            losses.emplace_back(step.run({{"x", x}, {"y", y}})[0].item(), wanted[i].number_value());
        }
        file = model.save();
    }
    session.close();
    return losses;
}
