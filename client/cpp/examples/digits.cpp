// Trains a classifier of handwritten digits: gradwire_digits [ADDRESS [IMAGES]]
#include "digits.hpp"

int main(int count, char** arguments) {
    const std::string path = count > 2 ? arguments[2] : "../../examples/data/digits.csv.gz";
    const double accuracy = digits::train(count > 1 ? arguments[1] : "127.0.0.1:50051", path, 40);
    std::printf("accuracy on %d images that it has not seen: %.1f %%\n", static_cast<int>(digits::held),
                100 * accuracy);
}
