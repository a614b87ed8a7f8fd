// Fine-tunes an exported model: gradwire_exported [ADDRESS [FOLDER]]
#include "exported.hpp"

#include <cstdio>

int main(int count, char** arguments) {
    const std::string folder = count > 2 ? arguments[2] : "../../tests/conformance";
    for (const auto& [found, wanted] : train_exported(count > 1 ? arguments[1] : "127.0.0.1:50051", folder)) {
        std::printf("loss %.6f; in PyTorch %.6f\n", found, wanted);
    }
}
