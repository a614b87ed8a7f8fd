package io.github.gradwire;

import com.google.protobuf.ByteString;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/** The programs that the server still has, the most recently run last. */
final class RecentPrograms {
  private final long most;
  private final Set<ByteString> hashes = new LinkedHashSet<>();

  RecentPrograms(long most) {
    this.most = most;
  }

  /** Notes a run. Returns whether the server may have forgotten the program. */
  synchronized boolean ran(ByteString hash) {
    boolean known = hashes.remove(hash);
    hashes.add(hash);
    if (most > 0 && hashes.size() > most) {
      hashes.remove(hashes.iterator().next());
    }
    return !known;
  }

  /** Whether the server still has a program. */
  synchronized boolean has(ByteString hash) {
    return hashes.contains(hash);
  }

  /** Notes a file's programs as run, in the server's order: first those that it had. */
  synchronized void loaded(List<ByteString> programs) {
    List<ByteString> fresh = programs.stream().filter(hash -> !has(hash)).toList();
    programs.stream().filter(hash -> !fresh.contains(hash)).forEach(this::ran);
    fresh.forEach(this::ran);
  }
}
