package io.github.gradwire;

import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.HookCall;
import io.github.gradwire.v1.HookKind;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.RegisterHookRequest;
import io.github.gradwire.v1.Result;
import io.github.gradwire.v1.ResumeBackwardRequest;
import io.github.gradwire.v1.TensorSpec;
import java.lang.ref.Reference;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.UnaryOperator;

/** The functions that a backward calls: hooks of tensors, and derivatives of custom functions. */
final class Hooks {
  /** Answers a stop of a backward: the gradients that replace the given ones, or null. */
  interface Answer {
    Tensor[] of(HookCall due);
  }

  private final Session session;
  private final Map<Long, Answer> answers = new ConcurrentHashMap<>();

  Hooks(Session session) {
    this.session = session;
  }

  boolean isEmpty() {
    return answers.isEmpty();
  }

  /** Forgets functions that no graph or tensor can call any more. */
  void drop(List<Long> numbers) {
    numbers.forEach(answers::remove);
  }

  /** Adds a function under a new number. */
  long add(Answer answer) {
    if (session.isRecording()) {
      throw GradwireException.mistake(
          Reason.REASON_NOT_SUPPORTED, "", "a program has no hooks and no custom functions");
    }
    long number = session.newId();
    answers.put(number, answer);
    return number;
  }

  Hook register(Tensor tensor, HookKind kind, UnaryOperator<Tensor> function) {
    boolean ofLeaf = kind == HookKind.HOOK_KIND_ACCUMULATED;
    long number = add(due -> ofLeaf ? leaf(due, function) : gradient(due, function));
    RegisterHookRequest.Builder request =
        RegisterHookRequest.newBuilder().setHook(number).setTensor(tensor.id()).setKind(kind);
    tensor.send(Command.newBuilder().setRegisterHook(request));
    return new Hook(session, number);
  }

  private Tensor[] leaf(HookCall due, UnaryOperator<Tensor> function) {
    function.apply(
        new Tensor(session, due.getLeaf().getId())); // the program's own tensor has the id
    return null;
  }

  private Tensor[] gradient(HookCall due, UnaryOperator<Tensor> function) {
    Tensor[] given = adopted(due.getGradientsList());
    if (given.length == 0 || given[0] == null) {
      return null;
    }
    Tensor replacement = function.apply(given[0]);
    return replacement == null ? null : new Tensor[] {session.own("hook", replacement)};
  }

  /** Tensors of the ids that the server made; null where there is none. */
  Tensor[] adopted(List<TensorSpec> specs) {
    return specs.stream()
        .map(spec -> spec.getId() == 0 ? null : session.adopt(spec.getId()))
        .toArray(Tensor[]::new);
  }

  /**
   * Sends a backward, and runs the functions at which it stops, with a graph only for createGraph.
   * Returns the gradients of `grad`.
   */
  List<TensorSpec> run(Command command, boolean createGraph) {
    try (GradModeScope mode = createGraph ? session.enableGrad() : session.noGrad()) {
      return run(command);
    }
  }

  private List<TensorSpec> run(Command command) {
    Command next = command;
    RuntimeException own = null; // thrown by a hook
    while (true) {
      Result result = session.sink.ask(next);
      if (own != null) {
        throw own;
      }
      Error earlier = session.sink.takeFailure();
      if (earlier == null && result.hasError()) {
        earlier = session.sink.origin(result.getError());
      }
      if (earlier != null) {
        throw GradwireException.of(earlier);
      }
      HookCall due = due(result);
      if (due == null) {
        return gradients(result);
      }
      ResumeBackwardRequest.Builder resume =
          ResumeBackwardRequest.newBuilder().setBackward(due.getBackward());
      Tensor[] replacement = null;
      try {
        replacement = answer(due);
      } catch (RuntimeException thrown) {
        own = thrown;
        resume.setAbandon(true);
      }
      if (replacement != null) {
        resume.setReplaces(true);
        Arrays.stream(replacement)
            .forEach(each -> resume.addGradients(each == null ? 0 : each.id()));
      }
      next = Command.newBuilder().setResumeBackward(resume).build();
      Reference.reachabilityFence(replacement);
    }
  }

  private Tensor[] answer(HookCall due) {
    Answer answer = answers.get(due.getHook());
    if (answer == null) {
      throw GradwireException.mistake(
          Reason.REASON_NOT_SUPPORTED,
          "",
          "the backward stopped at hook %d of another client",
          due.getHook());
    }
    return answer.of(due);
  }

  private static HookCall due(Result result) {
    return switch (result.getResultCase()) {
      case BACKWARD -> result.getBackward().hasDue() ? result.getBackward().getDue() : null;
      case GRADIENTS -> result.getGradients().hasDue() ? result.getGradients().getDue() : null;
      case RESUME_BACKWARD ->
          result.getResumeBackward().hasDue() ? result.getResumeBackward().getDue() : null;
      default -> null;
    };
  }

  private static List<TensorSpec> gradients(Result result) {
    return result.hasGradients()
        ? result.getGradients().getGradientsList()
        : result.getResumeBackward().getGradientsList();
  }
}
