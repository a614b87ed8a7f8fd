package io.github.gradwire;

import io.github.gradwire.v1.Calls;
import io.github.gradwire.v1.Command;
import io.github.gradwire.v1.Error;
import io.github.gradwire.v1.GradMode;
import io.github.gradwire.v1.OpRequest;
import io.github.gradwire.v1.OpenSessionResponse;
import io.github.gradwire.v1.Prepare;
import io.github.gradwire.v1.Reason;
import io.github.gradwire.v1.ReleaseRequest;
import io.github.gradwire.v1.Result;
import io.github.gradwire.v1.RunRequest;
import io.github.gradwire.v1.RunResponse;
import io.github.gradwire.v1.StreamAcknowledge;
import io.github.gradwire.v1.StreamAttach;
import io.github.gradwire.v1.StreamRequest;
import io.github.gradwire.v1.StreamResponse;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * Numbers a session's commands, sends them over one stream after another, and keeps what is not
 * answered. {@link StreamKeeper} opens the streams. All fields are guarded by this object's lock.
 */
final class Writer implements Sink {
  static final int SEND_AT = 64; // commands at which a batch is sent while few are under way
  static final int GROW_TO = 1024; // commands up to which a batch grows while many are under way
  static final int MOST_SENT = 8; // batches under way; the server stops reading at 16
  private static final int MOST_ROOTS = 1024; // refusals kept for commands that depend on them
  private static final int MOST_FAILURES = 64; // refusals of quiet commands until the next wait
  private static final int MOST_PREPARED_BYTES = 256;

  /** A place for the answer to a command that is not quiet. */
  private static final class Answer {
    Result result;
    boolean done;
  }

  /** A message of commands, kept until its answer comes. */
  private static final class Batch {
    final long last;
    final Map<Long, Answer> waiting;
    RunRequest.Builder open; // null once the acknowledgement is set: it is sent again unchanged
    StreamRequest message;
    long size;

    Batch(RunRequest.Builder open, long last, Map<Long, Answer> waiting) {
      this.open = open;
      this.last = last;
      this.waiting = waiting;
    }

    void stamp(long acknowledged) {
      if (open != null) {
        RunRequest run = open.setAcknowledgedSeq(acknowledged).build();
        message = StreamRequest.newBuilder().setBatch(run).build();
        size = run.getSerializedSize();
        open = null;
      }
    }

    void abandon() {
      waiting.values().forEach(answer -> answer.done = true);
    }
  }

  private final OpenSessionResponse opened;
  private final Consumer<List<Long>> droppedHooks;
  private final AtomicReference<Handle> releases = new AtomicReference<>();

  // Commands that wait for the next batch.
  private RunRequest.Builder commands = RunRequest.newBuilder();
  private final Words words = new Words(1024);
  private int calls;
  private int count;
  private int bytes;
  private Map<Long, Answer> waiting = new HashMap<>();
  private long first = 1; // seq of the first of them
  private long next = 1; // seq of the next command
  private final Map<Words, Integer> prepared = new HashMap<>();
  private final Set<Words> seen = new HashSet<>();
  private final Words key = new Words(256);

  // Batches that are not answered, in order; those before `sent` were sent on the present stream.
  private final List<Batch> queue = new ArrayList<>();
  private int sent;
  private int window = MOST_SENT; // batches that may be under way
  private long credit;
  private boolean attached;
  private long acked;
  private long told; // acknowledged by a message
  private int attempt;
  private Wire wire; // null between two streams
  private volatile Error dead;

  private final ArrayDeque<Error> failures = new ArrayDeque<>();
  private final Map<Long, Error> roots =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(Map.Entry<Long, Error> eldest) {
          return size() > MOST_ROOTS;
        }
      };

  Writer(OpenSessionResponse opened, Consumer<List<Long>> droppedHooks) {
    this.opened = opened;
    this.droppedHooks = droppedHooks;
  }

  /** The last answered command, and the bytes of the batch that is to be answered next. */
  record Unanswered(long acked, long size) {}

  /** What is not answered; null if there is nothing. */
  synchronized Unanswered unanswered() {
    return queue.isEmpty() ? null : new Unanswered(acked, queue.get(0).size);
  }

  /** Sends messages of one stream. */
  interface Wire {
    /** Sends without waiting. After the stream's end it does nothing. */
    void send(StreamRequest message);
  }

  // Commands that wait for the next batch

  @Override
  public synchronized void send(Command.Builder command) {
    add(command.setQuiet(true).build(), null);
  }

  private void add(Command command, Answer answer) {
    throwIfDead();
    int size = command.getSerializedSize() + 8;
    long most = opened.getLimits().getMaxMessageBytes();
    if (count > 0 && most > 0 && bytes + size > most - 1024) {
      cut();
    }
    endCalls();
    commands.addCommands(command);
    if (answer != null) {
      waiting.put(next, answer);
    }
    bytes += size;
    counted();
  }

  /**
   * Follows every command: sends a batch that is large enough, and waits if it can grow no more.
   */
  private void counted() {
    next++;
    count++;
    if (count < SEND_AT) {
      return;
    }
    int limit = (int) opened.getLimits().getMaxBatchCommands();
    int most = limit > 0 ? Math.min(limit, GROW_TO) : GROW_TO;
    boolean interrupted = false;
    while (count >= most && queue.size() >= MOST_SENT && dead == null) {
      try {
        wait();
      } catch (InterruptedException later) { // for the next wait of the program
        interrupted = true;
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    if (queue.size() < MOST_SENT || dead != null) {
      cut();
    }
  }

  private void endCalls() {
    if (calls > 0) {
      Calls.Builder made = Calls.newBuilder().setCount(calls).setWords(words.toByteString());
      commands.addCommands(Command.newBuilder().setCalls(made));
      calls = 0;
      words.clear();
    }
  }

  /** Adds a call of an op: the second time and later as a call of a prepared op. */
  @Override
  public synchronized void op(Call call, GradMode mode, Tensor[] made) {
    throwIfDead();
    key.clear();
    boolean can = call.key(key, mode, made.length);
    Integer number = can ? prepared.get(key) : null;
    if (number == null) {
      OpRequest request = call.request(mode, made);
      number = can ? prepare(request) : null;
      if (number == null) {
        add(Command.newBuilder().setQuiet(true).setOp(request).build(), null);
        return;
      }
    }
    int before = words.size();
    call.words(words, number, made);
    calls++;
    bytes += words.size() - before;
    counted();
  }

  /**
   * Adds a Prepare under the present key, if the key was seen before and the server allows it, and
   * returns its number. It may wait, and other threads may then prepare ops.
   */
  private Integer prepare(OpRequest request) {
    long most = opened.getLimits().getMaxPrepared();
    if (!seen.contains(key)) {
      if (seen.size() < 4 * most) {
        seen.add(key.copy());
      }
      return null;
    }
    if (prepared.size() >= most || request.getSerializedSize() > MOST_PREPARED_BYTES) {
      return null;
    }
    int number = prepared.size();
    Prepare.Builder made = Prepare.newBuilder().setNumber(number).setOp(request);
    seen.remove(key);
    prepared.put(key.copy(), number);
    add(Command.newBuilder().setQuiet(true).setPrepare(made).build(), null);
    return number;
  }

  @Override
  public void release(Handle handle) {
    if (dead != null) {
      return;
    }
    Handle top;
    do {
      top = releases.get();
      handle.next = top;
    } while (!releases.compareAndSet(top, handle));
  }

  /** Makes a batch of the commands that wait. Releases are its end: answers come before them. */
  private void cut() {
    Handle each = releases.getAndSet(null);
    if (each != null) {
      endCalls();
      ReleaseRequest.Builder request = ReleaseRequest.newBuilder();
      for (; each != null; each = each.next) {
        request.addTensors(each.id);
      }
      commands.addCommands(Command.newBuilder().setQuiet(true).setRelease(request));
      next++;
    }
    endCalls();
    if (commands.getCommandsCount() == 0) {
      return;
    }
    Batch made = new Batch(commands.setFirstSeq(first), next - 1, waiting);
    commands = RunRequest.newBuilder();
    waiting = new HashMap<>();
    first = next;
    count = 0;
    bytes = 0;
    if (dead != null) {
      made.abandon();
      return;
    }
    queue.add(made);
    pump();
  }

  // Waiting

  @Override
  public synchronized Result ask(Command command) {
    Answer answer = new Answer();
    add(command, answer);
    cut();
    while (!answer.done) {
      pause();
    }
    if (answer.result == null) {
      throw GradwireException.of(dead);
    }
    return answer.result;
  }

  @Override
  public synchronized void await() {
    cut();
    if (!queue.isEmpty()) {
      long last = queue.get(queue.size() - 1).last;
      while (!queue.isEmpty() && queue.get(0).last <= last && dead == null) {
        pause();
      }
    }
    throwIfDead();
  }

  private void pause() {
    try {
      wait();
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw GradwireException.mistake(Reason.REASON_CANCELLED, "", "the wait was interrupted");
    }
  }

  private void throwIfDead() {
    Error why = dead;
    if (why != null) {
      throw GradwireException.of(why);
    }
  }

  /** The other failures are dropped: most follow from the first one. */
  @Override
  public synchronized Error takeFailure() {
    Error first = failures.peekFirst();
    failures.clear();
    return first;
  }

  @Override
  public synchronized Error origin(Error failure) {
    return roots.getOrDefault(failure.getRootSeq(), failure);
  }

  /** Ends everything with an error. */
  synchronized void kill(Error why) {
    if (dead != null) {
      return;
    }
    dead = why;
    queue.forEach(Batch::abandon);
    queue.clear();
    sent = 0;
    wire = null;
    cut();
    releases.set(null);
    notifyAll();
  }

  boolean isDead() {
    return dead != null;
  }

  // The stream

  /** Begins a stream: attaches, and sends again all that is not answered. */
  synchronized void attach(Wire opening) {
    wire = opening;
    attempt++;
    // A connection that breaks again would break before the first answer to a burst of old batches.
    window = attempt > 1 ? 1 : MOST_SENT;
    sent = 0;
    credit = 0;
    attached = false;
    told = acked;
    StreamAttach.Builder attach =
        StreamAttach.newBuilder()
            .setSessionId(opened.getSessionId())
            .setWriter(opened.getWriter())
            .setEpoch(opened.getEpoch())
            .setAcknowledgedSeq(acked)
            .setAttempt(attempt)
            .setJoinedAnswers(true);
    wire.send(StreamRequest.newBuilder().setAttach(attach).build());
  }

  /** Ends the present stream. */
  synchronized void detach(Wire ended) {
    if (wire == ended) {
      wire = null;
    }
  }

  /** Number of streams that were opened. */
  synchronized int attempts() {
    return attempt;
  }

  /** Takes a message of a stream, unless another one has replaced it. */
  synchronized void received(Wire from, StreamResponse message) {
    if (from != wire) {
      return;
    }
    credit += message.getCreditBytes();
    attached |= message.hasAttached();
    if (message.hasBatch()) {
      answered(Math.max(1, message.getBatches()), message.getBatch());
    }
    pump();
    notifyAll();
  }

  /** Takes batches from the queue, of which the last one has the results. */
  private void answered(int several, RunResponse run) {
    int taken = Math.min(several, queue.size());
    if (taken == 0) {
      return;
    }
    Batch last = queue.get(taken - 1);
    for (Result result : run.getResultsList()) {
      Answer answer = last.waiting.get(result.getSeq());
      if (result.hasError()) {
        refused(result.getSeq(), result.getError(), answer == null);
      }
      if (answer != null) {
        answer.result = result;
      }
    }
    queue.subList(0, taken).forEach(Batch::abandon);
    queue.subList(0, taken).clear();
    sent = Math.max(0, sent - taken);
    window = Math.min(2 * window, MOST_SENT);
    acked = last.last;
    if (run.getDroppedHooksCount() > 0) {
      droppedHooks.accept(run.getDroppedHooksList());
    }
  }

  /** Keeps a refusal, as the origin of others and, of a quiet command, for the next wait. */
  private void refused(long seq, Error failure, boolean quiet) {
    boolean follows = failure.getReason() == Reason.REASON_DEPENDENCY_FAILED;
    if (!follows) {
      roots.put(seq, failure);
    }
    boolean known = follows && roots.containsKey(failure.getRootSeq());
    if (quiet && !known && failures.size() < MOST_FAILURES) {
      failures.add(failure);
    }
  }

  /** Sends batches while there is credit, and acknowledges answers before a pause. */
  private void pump() {
    if (wire == null || !attached) {
      return;
    }
    while (sent < Math.min(queue.size(), window)) {
      Batch each = queue.get(sent);
      each.stamp(acked);
      if (credit < each.size) {
        return;
      }
      credit -= each.size;
      sent++;
      told = Math.max(told, each.message.getBatch().getAcknowledgedSeq());
      wire.send(each.message);
    }
    if (queue.isEmpty() && acked > told + SEND_AT) {
      told = acked;
      StreamAcknowledge.Builder made = StreamAcknowledge.newBuilder().setAcknowledgedSeq(acked);
      wire.send(StreamRequest.newBuilder().setAcknowledge(made).build());
    }
  }
}
