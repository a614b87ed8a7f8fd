package io.github.gradwire;

import io.github.gradwire.v1.AutogradServiceGrpc;
import io.grpc.ManagedChannel;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;

/** The addresses of a cluster's servers, and the connection to the one in use. */
final class Servers implements AutoCloseable {
  private final List<String> addresses;
  private final Function<String, ManagedChannel> dial;
  private volatile Link link;

  /** A connection with the stub of its calls. */
  record Link(
      String address, ManagedChannel channel, AutogradServiceGrpc.AutogradServiceStub stub) {
    AutogradServiceGrpc.AutogradServiceBlockingStub blocking() {
      return AutogradServiceGrpc.newBlockingStub(channel);
    }
  }

  Servers(List<String> addresses, Function<String, ManagedChannel> dial) {
    this.addresses = new ArrayList<>(addresses);
    this.dial = dial;
    this.link = connected(addresses.get(0));
  }

  private Link connected(String address) {
    ManagedChannel channel = dial.apply(address);
    return new Link(address, channel, AutogradServiceGrpc.newStub(channel));
  }

  /** Whether no other server is known. */
  synchronized boolean isAlone() {
    return addresses.size() == 1;
  }

  Link link() {
    return link;
  }

  /**
   * Uses another server from now on: the one at `endpoint`, or the next one if it is empty. Does
   * nothing if `from` is no longer in use, or if there is no other server.
   */
  synchronized void leave(Link from, String endpoint) {
    if (link != from) {
      return;
    }
    String wanted = endpoint;
    if (wanted.isEmpty()) {
      wanted = addresses.get((addresses.indexOf(from.address) + 1) % addresses.size());
    }
    if (wanted.equals(from.address)) {
      return;
    }
    if (!addresses.contains(wanted)) {
      addresses.add(wanted);
    }
    link = connected(wanted);
    from.channel.shutdown(); // calls under way may end
  }

  @Override
  public synchronized void close() {
    link.channel.shutdown();
    try {
      if (!link.channel.awaitTermination(5, TimeUnit.SECONDS)) {
        link.channel.shutdownNow();
      }
    } catch (InterruptedException interrupted) {
      link.channel.shutdownNow();
      Thread.currentThread().interrupt();
    }
  }
}
