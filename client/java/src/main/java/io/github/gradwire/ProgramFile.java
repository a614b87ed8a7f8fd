package io.github.gradwire;

import com.google.protobuf.ByteString;
import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.LoadProgramRequest;
import io.github.gradwire.v1.LoadProgramResponse;
import io.github.gradwire.v1.LoadedProgram;
import io.github.gradwire.v1.LoadedTensor;
import io.github.gradwire.v1.NamedTensor;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.RunProgramRequest;
import io.github.gradwire.v1.SaveProgramRequest;
import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;

/**
 * A model with its programs, as Python's gradwire.export writes it: weights, the optimizer's state,
 * and steps such as training and inference.
 */
public final class ProgramFile implements AutoCloseable {
  private final Session session;
  private final Tensor file;
  private final Map<String, Tensor> tensors = new LinkedHashMap<>();
  private final Map<String, Step> programs = new TreeMap<>();
  private final List<ByteString> hashes = new ArrayList<>(); // of the programs
  private int count; // of the file's tensors

  private ProgramFile(Session session, Tensor file) {
    this.session = session;
    this.file = file;
  }

  static ProgramFile load(Session session, byte[] data) {
    Tensor bytes = session.fromBytes(DType.UINT8, data, data.length).keep();
    LoadProgramRequest.Builder request = LoadProgramRequest.newBuilder().setFile(bytes.id());
    LoadProgramResponse answer;
    try {
      answer = bytes.ask(Command.newBuilder().setLoadProgram(request)).getLoadProgram();
    } catch (GradwireException refused) {
      bytes.close();
      throw refused;
    }
    ProgramFile made = new ProgramFile(session, bytes);
    for (LoadedTensor each : answer.getTensorsList()) {
      made.tensors.put(each.getName(), session.adopt(each.getSpec().getId()).keep());
    }
    for (LoadedProgram each : answer.getProgramsList()) {
      made.programs.put(each.getName(), made.new Step(each));
      made.hashes.add(each.getHash());
    }
    made.count = answer.getTensorsCount();
    session.recent.loaded(made.hashes);
    return made;
  }

  /**
   * Registers programs that the server may have forgotten. The tensors that this makes are freed.
   */
  private void loadAgain() {
    LoadProgramRequest.Builder request = LoadProgramRequest.newBuilder().setFile(file.id());
    List<Tensor> made = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      made.add(session.newTensor());
      request.addIds(made.get(i).id());
    }
    session.sink.send(Command.newBuilder().setLoadProgram(request));
    made.forEach(Tensor::close);
    session.recent.loaded(hashes);
  }

  /** The file's tensors by name, with their present values. */
  public Map<String, Tensor> tensors() {
    return Collections.unmodifiableMap(tensors);
  }

  /** The names of the file's programs, sorted. */
  public List<String> names() {
    return List.copyOf(programs.keySet());
  }

  /** The only program of a file that has one. */
  public Step program() {
    return program(programs.size() == 1 ? names().get(0) : "");
  }

  /** A program by its name. */
  public Step program(String name) {
    Step found = programs.get(name);
    if (found == null) {
      throw GradwireException.mistake(
          Reason.REASON_ARGUMENT_VALUE, "", "no program \"%s\"; the file has %s", name, names());
    }
    return found;
  }

  /** Returns the bytes of a file with the present values. Waits. */
  public byte[] save() {
    SaveProgramRequest.Builder request = SaveProgramRequest.newBuilder().setFile(file.id());
    tensors.forEach(
        (name, each) ->
            request.addTensors(NamedTensor.newBuilder().setName(name).setId(each.id())));
    try (Tensor made = session.newTensor()) {
      session.sink.send(Command.newBuilder().setSaveProgram(request.setId(made.id())));
      return made.read().bytes();
    }
  }

  /** Releases the file's tensors. */
  @Override
  public void close() {
    tensors.values().forEach(Tensor::close);
    file.close();
  }

  /** A program of a file. Its tensors and counters are bound; a run gives the other inputs. */
  public final class Step {
    private final LoadedProgram loaded;
    private final Map<String, Integer> places = new LinkedHashMap<>();

    private Step(LoadedProgram loaded) {
      this.loaded = loaded;
      for (int i = 0; i < loaded.getSignatureCount(); i++) {
        if (i >= loaded.getInputsCount() || loaded.getInputs(i) == 0) {
          places.put(loaded.getSignature(i).getName(), i);
        }
      }
    }

    /** The names that each run gives. */
    public List<String> inputs() {
      return List.copyOf(places.keySet());
    }

    /** The names of the results, in order; empty where the file has none. */
    public List<String> outputs() {
      List<String> names = new ArrayList<>();
      loaded.getOutputsList().forEach(each -> names.add(each.getName()));
      return names;
    }

    /** The place of a named input, for {@link RunOptions#sliced}. */
    public int place(String name) {
      Integer place = places.get(name);
      if (place == null) {
        throw GradwireException.mistake(
            Reason.REASON_ARGUMENT_VALUE, "", "no input \"%s\"; there is %s", name, inputs());
      }
      return place;
    }

    /** Runs the program. It does not wait: a refusal surfaces at the next wait or read. */
    public List<Tensor> run(Map<String, Tensor> named) {
      return run(named, options -> {});
    }

    /** Does {@link #run(Map)} with options. */
    public List<Tensor> run(Map<String, Tensor> named, Consumer<RunOptions> options) {
      RunProgramRequest.Builder request =
          RunProgramRequest.newBuilder()
              .setHash(loaded.getHash())
              .addAllInputs(loaded.getInputsList());
      new TreeMap<>(named)
          .forEach(
              (name, each) -> {
                long id = session.own("run", each).id();
                request.addNamed(NamedTensor.newBuilder().setName(name).setId(id));
              });
      List<Tensor> made;
      synchronized (session.recent) {
        if (!session.recent.has(loaded.getHash())) {
          loadAgain();
        }
        session.recent.ran(loaded.getHash());
        made = Program.send(session, request, loaded.getOutputsCount(), options);
      }
      Reference.reachabilityFence(named);
      Reference.reachabilityFence(ProgramFile.this);
      return made;
    }
  }
}
