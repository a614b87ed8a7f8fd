// Fits y = w x + b to points, with every tensor on a server.
#pragma once

#include <string>
#include <utility>

#include "gradwire/gradwire.hpp"

/// Returns w and b.
inline std::pair<double, double> fit_line(const std::string& address) {
    gradwire::Session session(address);
    auto x = session.tensor({0.f, 1.f, 2.f, 3.f});
    auto y = session.tensor({-1.f, 2.f, 5.f, 8.f});
    auto w = session.tensor({0.f}).requires_grad_();
    auto b = session.tensor({0.f}).requires_grad_();
    for (int step = 0; step < 300; ++step) {
        auto loss = gradwire::functional::mse_loss(x * w + b, y);
        loss.backward();
        gradwire::NoGradGuard guard;
        for (const auto& parameter : {w, b}) {
            parameter.sub_(parameter.grad(), {.alpha = 0.1});
            parameter.zero_grad();
        }
    }
    std::pair<double, double> found{w.item(), b.item()};
    session.close();
    return found;
}
