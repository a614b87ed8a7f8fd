package io.github.gradwire;

import com.google.protobuf.ByteString;
import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.ProgramInput;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.RegisterProgramRequest;
import io.github.gradwire.v1.RunProgramRequest;
import java.lang.ref.Reference;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/** A list of commands that the server runs by one small command: see {@link Session#trace}. */
public final class Program {
  private final Session session;
  private final ByteString bytes;
  private final ByteString hash;
  private final int inputs;
  private final int outputs;

  /** What a program does. */
  @FunctionalInterface
  public interface Body {
    /**
     * Returns the outputs.
     *
     * @param recording the session that records
     * @param inputs stand-ins for the inputs
     * @param numbers placeholders for the numbers
     */
    List<Tensor> of(Session recording, List<Tensor> inputs, List<ProgramNumber> numbers);
  }

  private Program(Session session, ByteString bytes, int inputs, int outputs) {
    this.session = session;
    this.bytes = bytes;
    this.hash = sha256(bytes);
    this.inputs = inputs;
    this.outputs = outputs;
  }

  static Program trace(Session session, List<Input> inputs, int numbers, Body body) {
    Recorder recorder = new Recorder();
    Session inner = session.recording(recorder);
    recorder.program.setNumbers(numbers);
    List<Tensor> given = new ArrayList<>();
    for (Input each : inputs) {
      recorder.program.addInputs(
          ProgramInput.newBuilder()
              .setDtype(each.dtype().proto)
              .addAllShape(each.shape())
              .setRequiresGrad(each.requiresGrad())
              .setDevice(each.device()));
      given.add(inner.newTensor());
    }
    List<ProgramNumber> placeholders = new ArrayList<>();
    for (int i = 0; i < numbers; i++) {
      placeholders.add(new ProgramNumber(i));
    }
    for (Tensor each : body.of(inner, List.copyOf(given), List.copyOf(placeholders))) {
      recorder.program.addOutputs(inner.own("trace", each).id());
    }
    io.github.gradwire.v1.Program program = recorder.program.build();
    Program made =
        new Program(session, program.toByteString(), inputs.size(), program.getOutputsCount());
    session.ask(made.registration().build());
    session.recent.ran(made.hash);
    return made;
  }

  static ByteString sha256(ByteString bytes) {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      digest.update(bytes.asReadOnlyByteBuffer());
      return ByteString.copyFrom(digest.digest());
    } catch (NoSuchAlgorithmException impossible) { // every Java has SHA-256
      throw new IllegalStateException(impossible);
    }
  }

  private Command.Builder registration() {
    return Command.newBuilder()
        .setRegisterProgram(RegisterProgramRequest.newBuilder().setHash(hash).setProgram(bytes));
  }

  /**
   * Binds tensors to the inputs and runs the program. It does not wait: a refusal surfaces at the
   * next wait or read.
   */
  public List<Tensor> run(List<Tensor> given) {
    return run(given, options -> {});
  }

  /** Does {@link #run(List)} with options: {@code o -> o.numbers(0.1).repeat(10)}. */
  public List<Tensor> run(List<Tensor> given, Consumer<RunOptions> options) {
    if (given.size() != inputs) {
      throw GradwireException.mistake(
          Reason.REASON_ARGUMENT_TYPE,
          "",
          "the program takes %d inputs, not %d",
          inputs,
          given.size());
    }
    RunProgramRequest.Builder request = RunProgramRequest.newBuilder().setHash(hash);
    given.forEach(each -> request.addInputs(session.own("run", each).id()));
    List<Tensor> made;
    synchronized (session.recent) { // no other run may come before the registration
      if (session.recent.ran(hash)) {
        session.sink.send(registration());
      }
      made = send(session, request, outputs, options);
    }
    Reference.reachabilityFence(given);
    return made;
  }

  /** Completes a request and sends it. */
  static List<Tensor> send(
      Session session, RunProgramRequest.Builder request, int count, Consumer<RunOptions> options) {
    options.accept(new RunOptions(request));
    List<Tensor> outputs = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      Tensor made = session.newTensor();
      outputs.add(made);
      request.addOutputs(made.id());
    }
    session.sink.send(Command.newBuilder().setRunProgram(request));
    return outputs;
  }
}
