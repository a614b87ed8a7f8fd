// Uses the library as a subproject. It ends with 0 if a gradient is right.
#include <cstdlib>
#include <gradwire/gradwire.hpp>

int main() {
    const char* address = std::getenv("GRADWIRE_ADDRESS");
    if (!address) return 0;  // it is built and linked
    gradwire::Session session(address);
    const auto a = session.tensor({3.f}).requires_grad_();
    (a * a).sum().backward();
    return a.grad().item() == 6 ? 0 : 1;
}
