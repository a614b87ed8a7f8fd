package io.github.gradwire;

import com.google.protobuf.CodedOutputStream;
import com.google.rpc.Status;
import io.github.gradwire.v1.StreamRequest;
import io.github.gradwire.v1.StreamResponse;
import io.grpc.netty.shaded.io.netty.bootstrap.Bootstrap;
import io.grpc.netty.shaded.io.netty.buffer.ByteBuf;
import io.grpc.netty.shaded.io.netty.channel.Channel;
import io.grpc.netty.shaded.io.netty.channel.ChannelFuture;
import io.grpc.netty.shaded.io.netty.channel.ChannelHandlerContext;
import io.grpc.netty.shaded.io.netty.channel.ChannelInitializer;
import io.grpc.netty.shaded.io.netty.channel.epoll.Epoll;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.netty.shaded.io.netty.handler.codec.ByteToMessageDecoder;
import io.grpc.netty.shaded.io.netty.util.concurrent.DefaultThreadFactory;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;

/**
 * A stream over a Unix socket, to a server of the same machine and user: faster than gRPC. {@code
 * OpenSessionResponse.local_stream} documents the format: each message follows its length.
 *
 * <p>The sockets' names are in Linux's abstract namespace, which Java's own channels cannot reach.
 * The Netty of gRPC can.
 */
final class LocalStream extends StreamCall {
  private static final int PREFIX = 4; // bytes of a length
  private static final int LAST = 1 << 31; // in a length: the message is the stream's status
  private static final System.Logger LOG = System.getLogger(LocalStream.class.getName());

  /** The thread of all local streams. It is made with the first one. */
  private static final class Loop {
    static final EpollEventLoopGroup GROUP =
        new EpollEventLoopGroup(1, new DefaultThreadFactory("gradwire-local", true));
  }

  private final Channel channel;

  private LocalStream(StreamKeeper keeper, Writer writer, Servers.Link link, Channel channel) {
    super(keeper, writer, link);
    this.channel = channel;
  }

  /** Whether a socket of this name can be used here. GRADWIRE_LOCAL_STREAM=0 forbids it. */
  static boolean isUsable(String name) {
    if (name.isEmpty() || "0".equals(System.getenv("GRADWIRE_LOCAL_STREAM"))) {
      return false;
    }
    try {
      return Epoll.isAvailable();
    } catch (LinkageError other) { // the program has replaced gRPC's Netty
      return false;
    }
  }

  /** Connects to a socket. Returns null if it is not there, or is another user's. */
  static LocalStream open(StreamKeeper keeper, Writer writer, Servers.Link link, String name) {
    ChannelFuture connecting =
        new Bootstrap()
            .group(Loop.GROUP)
            .channel(EpollDomainSocketChannel.class)
            .handler(
                new ChannelInitializer<EpollDomainSocketChannel>() {
                  @Override
                  protected void initChannel(EpollDomainSocketChannel made) {
                    made.config().setAutoRead(false); // until there is a stream
                  }
                })
            .connect(new DomainSocketAddress("\0" + name))
            .awaitUninterruptibly();
    Channel channel = connecting.channel();
    try {
      if (!connecting.isSuccess()) {
        throw new IOException(connecting.cause());
      }
      int user = ((EpollDomainSocketChannel) channel).peerCredentials().uid();
      if (user != own()) {
        throw new IOException("the socket is user " + user + "'s");
      }
    } catch (IOException notLocal) {
      LOG.log(System.Logger.Level.DEBUG, "the stream goes by gRPC", notLocal);
      channel.close();
      return null;
    }
    LocalStream made = new LocalStream(keeper, writer, link, channel);
    channel.pipeline().addLast(made.new Messages());
    channel.config().setAutoRead(true);
    return made;
  }

  private static int own() throws IOException {
    return (Integer) Files.getAttribute(Path.of("/proc/self"), "unix:uid");
  }

  @Override
  public void send(StreamRequest message) {
    int size = message.getSerializedSize();
    ByteBuf framed = channel.alloc().directBuffer(PREFIX + size);
    framed.writeIntLE(size);
    try {
      CodedOutputStream to = CodedOutputStream.newInstance(framed.nioBuffer(PREFIX, size));
      message.writeTo(to);
      to.flush();
    } catch (IOException impossible) {
      framed.release();
      throw new IllegalStateException(impossible);
    }
    framed.writerIndex(PREFIX + size);
    // At once, the loop's own thread would overtake the writes of others, which wait for the loop.
    channel.eventLoop().execute(() -> channel.writeAndFlush(framed, channel.voidPromise()));
  }

  @Override
  void cancel() {
    ended("the client has ended the stream");
    channel.close();
  }

  /** Splits what arrives into messages. */
  private final class Messages extends ByteToMessageDecoder {
    @Override
    protected void decode(ChannelHandlerContext context, ByteBuf in, List<Object> out)
        throws IOException {
      if (in.readableBytes() < PREFIX) {
        return;
      }
      int told = in.getIntLE(in.readerIndex());
      int size = told & ~LAST;
      if (in.readableBytes() - PREFIX < size) {
        return;
      }
      var message = in.nioBuffer(in.readerIndex() + PREFIX, size);
      in.skipBytes(PREFIX + size);
      if (isEnded()) {
        return;
      }
      if ((told & LAST) == 0) {
        received(StreamResponse.parseFrom(message));
        return;
      }
      Status status = Status.parseFrom(message);
      if (status.getCode() == 0) {
        ended("the server ended the stream");
      } else {
        ended(GradwireException.fromStatus(status));
      }
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable thrown) {
      ended(String.valueOf(thrown.getMessage()));
      context.close();
    }

    @Override
    public void channelInactive(ChannelHandlerContext context) throws Exception {
      super.channelInactive(context);
      ended("the connection was closed");
    }
  }
}
