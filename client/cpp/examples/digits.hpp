// Trains a classifier of handwritten digits. A training step is a program: the server runs an epoch by one command.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "gradwire/gradwire.hpp"

namespace digits {

using gradwire::Tensor;

inline constexpr std::int64_t pixels = 64;
inline constexpr std::int64_t hidden = 256;
inline constexpr std::int64_t rows = 128;  // of a batch
inline constexpr std::int64_t held = 360;  // images for the test

struct Data {
    std::vector<float> images;  // with values in [0, 1]
    std::vector<std::int64_t> labels;
};

/// Reads the images in a random order.
inline Data load(const std::string& path) {
    gzFile file = gzopen(path.c_str(), "rb");
    if (!file) throw std::runtime_error("cannot read " + path);
    std::vector<std::array<int, pixels + 1>> lines;
    for (std::array<char, 1024> line; gzgets(file, line.data(), line.size());) {
        std::array<int, pixels + 1> numbers{};
        char* at = line.data();
        for (int& number : numbers) {
            number = static_cast<int>(std::strtol(at, &at, 10));
            if (*at == ',') ++at;
        }
        lines.push_back(numbers);
    }
    gzclose(file);
    std::shuffle(lines.begin(), lines.end(), std::mt19937(0));
    Data made;
    for (const auto& line : lines) {
        for (std::int64_t i = 0; i < pixels; ++i) made.images.push_back(static_cast<float>(line[i]) / 16);
        made.labels.push_back(line[pixels]);
    }
    return made;
}

/// A matrix of weights, uniform within 1/√inputs as PyTorch's Linear makes them.
inline Tensor layer(gradwire::Session& session, std::int64_t inputs, std::int64_t outputs) {
    const double bound = 2 / std::sqrt(static_cast<double>(inputs));
    return ((session.rand({inputs, outputs}) - 0.5) * bound).requires_grad_();
}

inline Tensor forward(const std::vector<Tensor>& parameters, const Tensor& x) {
    auto inner = (x.matmul(parameters[0]) + parameters[1]).relu();
    return inner.matmul(parameters[2]) + parameters[3];
}

/// The program of a step of gradient descent; its number is the learning rate.
inline gradwire::Program trace(gradwire::Session& session, const std::vector<Tensor>& parameters) {
    std::vector<gradwire::Input> inputs;
    for (const Tensor& each : parameters) inputs.push_back(gradwire::Input::like(each));
    inputs.push_back({.shape = {rows, pixels}});
    inputs.push_back({.dtype = gradwire::DType::Int64, .shape = {rows}});
    return session.trace(inputs, 1, [](gradwire::Session&, const auto& given, const auto& numbers) {
        const std::vector<Tensor> bound(given.begin(), given.begin() + 4);
        auto loss = gradwire::functional::cross_entropy(forward(bound, given[4]), given[5]);
        loss.backward();
        gradwire::NoGradGuard guard;
        for (const Tensor& parameter : bound) {
            parameter.sub_(parameter.grad(), {.alpha = numbers[0]});
            parameter.zero_grad();
        }
        return std::vector<Tensor>{loss.detach()};
    });
}

/// Returns the accuracy on images that the classifier has not seen.
inline double train(const std::string& address, const std::string& path, int epochs) {
    const Data data = load(path);
    const auto count = static_cast<std::int64_t>(data.labels.size()) - held;
    gradwire::Session session(address);
    session.manual_seed(0);
    const auto split = data.images.begin() + count * pixels;
    const auto x = session.tensor(std::vector<float>(data.images.begin(), split), {count, pixels});
    const auto y = session.tensor(std::vector<std::int64_t>(data.labels.begin(), data.labels.begin() + count));
    const std::vector<Tensor> parameters{layer(session, pixels, hidden), session.zeros({hidden}).requires_grad_(),
                                         layer(session, hidden, 10), session.zeros({10}).requires_grad_()};
    const auto step = trace(session, parameters);
    auto bound = parameters;
    bound.insert(bound.end(), {x, y});
    for (int epoch = 1; epoch <= epochs; ++epoch) {
        const auto repeat = static_cast<std::uint32_t>(count / rows);
        const auto losses = step.run(bound, {.numbers = {0.2}, .repeat = repeat, .sliced = {4, 5}, .stacked = true});
        if (epoch % 10 == 0) std::printf("epoch %d: loss %.4f\n", epoch, losses[0].mean().item());
    }
    gradwire::NoGradGuard guard;
    const auto seen = session.tensor(std::vector<float>(split, data.images.end()), {held, pixels});
    const auto known = session.tensor(std::vector<std::int64_t>(data.labels.begin() + count, data.labels.end()));
    const auto best = forward(parameters, seen).argmax({.dim = 1});
    return best.eq(known).to({.dtype = gradwire::DType::Float32}).mean().item();
}

}  // namespace digits
