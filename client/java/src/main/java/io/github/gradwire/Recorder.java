package io.github.gradwire;

import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.GradMode;
import io.github.gradwire.v1.Program;
import io.github.gradwire.v1.ProgramStep;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.Result;

/** Makes steps of a program of a session's commands. */
final class Recorder implements Sink {
  final Program.Builder program = Program.newBuilder();

  @Override
  public void send(Command.Builder command) {
    ProgramStep.Builder step = ProgramStep.newBuilder();
    switch (command.getCommandCase()) {
      case CREATE -> step.setCreate(command.getCreate());
      case BACKWARD -> step.setBackward(command.getBackward());
      case RETAIN_GRAD -> step.setRetainGrad(command.getRetainGrad());
      case GRAD -> step.setGrad(command.getGrad());
      case GRADIENTS -> step.setGradients(command.getGradients());
      case SET_GRAD -> step.setSetGrad(command.getSetGrad());
      case SET_REQUIRES_GRAD -> step.setSetRequiresGrad(command.getSetRequiresGrad());
      case SET_DATA -> step.setSetData(command.getSetData());
      case MANUAL_SEED -> step.setManualSeed(command.getManualSeed());
      default ->
          throw GradwireException.mistake(
              Reason.REASON_NOT_SUPPORTED,
              "",
              "a program cannot have the command %s",
              command.getCommandCase());
    }
    program.addSteps(step);
  }

  @Override
  public void op(Call call, GradMode mode, Tensor[] made) {
    program.addSteps(ProgramStep.newBuilder().setOp(call.request(mode, made)));
  }

  @Override
  public Result ask(Command command) {
    throw GradwireException.mistake(
        Reason.REASON_NOT_SUPPORTED, "", "a program cannot wait for values while it is recorded");
  }

  @Override
  public void await() {
    ask(Command.getDefaultInstance());
  }

  @Override
  public Error takeFailure() {
    return null;
  }

  @Override
  public Error origin(Error failure) {
    return failure;
  }

  @Override
  public void release(Handle handle) {
    throw new IllegalStateException("slots of a program are not released");
  }
}
