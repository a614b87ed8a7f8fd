/// @file
/// Programs: lists of commands that the server runs by one small command, recorded here or exported by Python.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/tensor.hpp"

namespace gradwire {

/// What a tensor must be like to be bound to a program's input.
struct Input {
    DType dtype = DType::Float32;
    /// For a sliced input, the sizes of one slice.
    std::vector<std::int64_t> shape{};
    bool requires_grad = false;
    std::string device{};
    /// Describes an input like a tensor. Waits.
    static Input like(const Tensor& tensor);
};

/// What a run can do without.
struct RunOptions {
    /// The program's numbers: one set for all repetitions, or one set for each.
    std::vector<double> numbers{};
    /// Number of repetitions, one after the other.
    std::uint32_t repeat = 1;
    /// Inputs, counted from 0, of which each repetition takes the next slice along the first dimension.
    std::vector<std::uint32_t> sliced{};
    /// Number of slices to skip at the beginning.
    std::uint32_t first = 0;
    /// Returns the outputs of all repetitions along a new first dimension, instead of those of the last one.
    bool stacked = false;
};

/// A program that Session::trace recorded. A copy is the same program.
class Program {
  public:
    /// What a recorded function takes and returns.
    using Function = std::function<std::vector<Tensor>(Session& session, const std::vector<Tensor>& inputs,
                                                       const std::vector<Number>& numbers)>;

    /// Binds tensors to the inputs and runs the program. Does not wait: a failure surfaces at the next wait or read.
    std::vector<Tensor> run(const std::vector<Tensor>& inputs, const RunOptions& options = {}) const;

  private:
    friend class Session;
    struct State;
    std::shared_ptr<const State> state_;
};

/// A program of a file. The file's tensors and counters are bound; a run gives the other inputs by name.
class FileProgram {
  public:
    /// The name in the file.
    const std::string& name() const noexcept;
    /// The names that each run gives.
    const std::vector<std::string>& inputs() const noexcept;
    /// The names of the results, in order; empty where the file has none.
    const std::vector<std::string>& outputs() const noexcept;
    /// The place of a named input, for RunOptions::sliced. Throws ArgumentValueError for another name.
    std::uint32_t place(const std::string& input) const;
    /// Runs the program with the tensors of this call. Does not wait: a failure surfaces at the next wait or read.
    std::vector<Tensor> run(const std::map<std::string, Tensor>& named, const RunOptions& options = {}) const;

  private:
    friend class ProgramFile;
    friend class Session;
    struct State;
    std::shared_ptr<const State> state_;
};

/// A model with its programs, as Python's gradwire.export writes it: weights, the optimizer's state, and steps such as
/// training and inference. See Session::load_program.
class ProgramFile {
  public:
    /// The file's tensors by name, with their present values.
    const std::map<std::string, Tensor>& tensors() const noexcept { return tensors_; }
    /// The names of the programs, sorted.
    std::vector<std::string> names() const;
    /// A program by its name; "" is the only one of a file that has one. Throws ArgumentValueError for another name.
    const FileProgram& program(const std::string& name = "") const;
    /// The bytes of a file with the present values. Waits.
    std::string save() const;

  private:
    friend class Session;
    Tensor file_;
    std::map<std::string, Tensor> tensors_;
    std::map<std::string, FileProgram> programs_;
};

}  // namespace gradwire
