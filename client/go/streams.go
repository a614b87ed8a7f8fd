package gradwire

import (
	"context"

	"google.golang.org/grpc"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// mostRejected is how often the server may end a local stream before it attaches; then one goes by gRPC.
const mostRejected = 2

// streams opens a session's streams, one after another: by the server's Unix socket where that works, else by gRPC.
type streams struct {
	session  *Session
	wanted   bool
	local    string // name of the socket
	address  string // of the server that has the socket
	rejected int    // local streams in a row that the server ended before it attached
}

// newStreams begins with the socket that OpenSession told.
func newStreams(session *Session, wanted bool) *streams {
	_, address := session.places.current()
	return &streams{session: session, wanted: wanted, local: session.opened.GetLocalStream(), address: address}
}

// connect opens a stream. The writer calls it again only after the stream before has ended.
func (v *streams) connect(ctx context.Context) (wire, error) {
	conn, address := v.session.places.current()
	if v.wanted && v.local != "" && v.address == address {
		if v.rejected < mostRejected {
			if made, err := openLocal(v.local); err == nil {
				v.rejected++
				context.AfterFunc(ctx, made.close)
				return &watchedWire{made, v, address}, nil
			}
		} else {
			v.rejected = 0 // for example, the server has too many connections
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := pb.NewAutogradServiceClient(conn).Stream(ctx)
	if err != nil {
		cancel()
		v.session.places.failed(address, fromStatus(err, nil))
		return nil, err
	}
	return &watchedWire{grpcWire{stream, cancel}, v, address}, nil
}

// grpcWire is a stream over gRPC.
type grpcWire struct {
	grpc.BidiStreamingClient[pb.StreamRequest, pb.StreamResponse]
	cancel context.CancelFunc
}

func (w grpcWire) refusal(err error) *Error { return fromStatus(err, w.Trailer()) }
func (w grpcWire) close()                   { w.cancel() }

// watchedWire tells of a stream what decides where the next one goes.
type watchedWire struct {
	wire
	streams *streams
	address string
}

func (w *watchedWire) Recv() (*pb.StreamResponse, error) {
	message, err := w.wire.Recv()
	if attached := message.GetAttached(); err == nil && attached != nil {
		w.streams.rejected, w.streams.local, w.streams.address = 0, attached.GetLocalStream(), w.address
	}
	return message, err
}

func (w *watchedWire) refusal(err error) *Error {
	told := w.wire.refusal(err)
	// A broken socket tells nothing of the server: the next stream asks it.
	if _, grpc := w.wire.(grpcWire); grpc || told.Reason == pb.Reason_REASON_SESSION_MOVED {
		w.streams.session.places.failed(w.address, told)
	}
	return told
}
