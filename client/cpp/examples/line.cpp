// Fits a line: gradwire_line [ADDRESS]
#include "line.hpp"

#include <cstdio>

int main(int count, char** arguments) {
    const auto [slope, intercept] = fit_line(count > 1 ? arguments[1] : "127.0.0.1:50051");
    std::printf("y = %.3f x + %.3f\n", slope, intercept);
}
