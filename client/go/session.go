package gradwire

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// Version is that of this module.
const Version = "0.1.0"

const (
	defaultPatience = 120 * time.Second
	openingPatience = 5 * time.Second // how long an unreachable server is tried while a session is opened
	collectEvery    = 1024            // tensors beyond those that the last collection left, after which another one is due
)

// sink takes a session's commands: the writer of a live session, or the recorder of a program.
type sink interface {
	send(command *pb.Command)
	op(call *Call, mode pb.GradMode, made []*Tensor)
	ask(ctx context.Context, command *pb.Command) (*pb.Result, error)
	wait(ctx context.Context) error
	release(id uint64)
	failed(err error)
	takeFailure() error
	origin(failure *Error) *Error
}

// Session holds tensors on a server. Ops only queue commands; they are sent in batches, and their failures surface at
// the next wait or read. Goroutines may share a session: commands are applied in the order of their calls. NoGrad and
// Tidy concern the whole session.
type Session struct {
	sink   sink
	writer *writer // nil in a program
	places *servers
	client pb.AutogradServiceClient
	opened *pb.OpenSessionResponse
	nextID atomic.Uint64
	mode   atomic.Int32

	mu      sync.Mutex
	hooks   map[uint64]*hookEntry
	recent  [][32]byte // programs, the most recently run last
	running sync.Mutex // held from the note of a run in recent until its command is queued
	scopes  []*scope
	closed  bool
	stopped chan struct{}
	unary   string
	counter atomic.Uint64
	live    atomic.Int64
	base    atomic.Int64
	patient time.Duration
}

// Connect opens a session on the server at address, "host:port" or "unix:/path". Of several addresses with commas between
// them, it uses the first server that answers.
func Connect(ctx context.Context, address string, opts ...Option) (*Session, error) {
	return begin(address, opts, func(s *Session, o *options) (*pb.OpenSessionResponse, error) { return s.open(ctx, o) })
}

// begin is a session that `open` opens.
func begin(
	address string, opts []Option, open func(*Session, *options) (*pb.OpenSessionResponse, error),
) (*Session, error) {
	o := options{
		patience: defaultPatience, client: "gradwire-go/" + Version, transport: newPlainText(),
		local: os.Getenv("GRADWIRE_LOCAL_STREAM") != "0",
	}
	for _, option := range opts {
		if err := option(&o); err != nil {
			return nil, err
		}
	}
	places, err := newServers(address, &o)
	if err != nil {
		return nil, err
	}
	random := make([]byte, 8)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	s := &Session{
		places: places, client: pb.NewAutogradServiceClient(places), hooks: map[uint64]*hookEntry{},
		stopped: make(chan struct{}), unary: hex.EncodeToString(random), patient: min(o.patience, openingPatience),
	}
	if s.opened, err = open(s, &o); err != nil {
		_ = places.close() // it has no session
		return nil, o.advised(err)
	}
	if s.opened.GetFirstId() == 0 {
		return nil, errors.Join(errors.New("gradwire: the server gives this client no ids; it is too old"), places.close())
	}
	s.patient = o.patience
	s.nextID.Store(s.opened.GetFirstId() - 1)
	s.writer = newWriter(newStreams(s, o.local).connect, s.opened, o.patience)
	s.writer.dropped = s.dropHooks
	s.sink = s.writer
	go s.keepAlive()
	return s, nil
}

// open opens a new session.
func (s *Session) open(ctx context.Context, o *options) (*pb.OpenSessionResponse, error) {
	return s.placed(func(follows bool) (*pb.OpenSessionResponse, error) {
		return retried(ctx, s, s.client.OpenSession, &pb.OpenSessionRequest{
			Client: o.client, LeaseMs: uint32(o.lease.Milliseconds()), FollowsEndpoint: follows,
			DeviceType: o.device,
		})
	})
}

// placed makes a call that opens a session: at a server, or again at the server of the cluster that its answer names.
func (s *Session) placed(call func(follows bool) (*pb.OpenSessionResponse, error)) (*pb.OpenSessionResponse, error) {
	answer, err := call(true)
	if err != nil || answer.GetEndpoint() == "" || answer.GetSessionId() != "" {
		return answer, err
	}
	_, address := s.places.current()
	s.places.move(address, answer.GetEndpoint())
	return call(false) // that server opens it, whatever the load is by then
}

// ID returns the session's id. Keep it secret: it gives access to the session.
func (s *Session) ID() string { return s.opened.GetSessionId() }

// Reconnects returns how often the stream was opened again after a broken connection.
func (s *Session) Reconnects() int {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return s.writer.reconnects
}

// Client returns the stub of the unary calls, for what this package does not cover. It shares the connection.
func (s *Session) Client() pb.AutogradServiceClient { return s.client }

// retried makes a unary call, and the same call again while the connection fails. The request should have a request id
// where it changes something.
func retried[Q, R any](
	ctx context.Context, s *Session, call func(context.Context, Q, ...grpc.CallOption) (R, error), request Q,
) (R, error) {
	begun, pause := time.Now(), firstPause
	for {
		var trailer metadata.MD
		_, address := s.places.current()
		answer, err := call(ctx, request, grpc.Trailer(&trailer))
		if err == nil {
			return answer, nil
		}
		told := fromStatus(err, trailer)
		s.places.failed(address, told)
		if ctx.Err() != nil {
			return answer, ctx.Err()
		}
		if !told.mayRetry() || told.distrusted() || time.Since(begun) > s.patient {
			return answer, told
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return answer, ctx.Err()
		}
		pause = min(2*pause, longestPause)
	}
}

func (s *Session) requestID() string {
	return fmt.Sprintf("%s-%d", s.unary, s.counter.Add(1))
}

// keepAlive renews the lease three times in its length.
func (s *Session) keepAlive() {
	period := max(time.Duration(s.opened.GetLeaseMs())*time.Millisecond/3, 10*time.Millisecond)
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case <-s.stopped:
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(context.Background(), max(period, time.Second))
		var trailer metadata.MD
		_, address := s.places.current()
		_, err := s.client.KeepAlive(ctx, &pb.KeepAliveRequest{SessionId: s.ID()}, grpc.Trailer(&trailer))
		cancel()
		if err == nil {
			continue
		}
		told := fromStatus(err, trailer)
		s.places.failed(address, told)
		if !told.mayRetry() && told.Reason != pb.Reason_REASON_UNSPECIFIED {
			s.writer.kill(told)
			return
		}
	}
}

// Wait sends all commands and returns when they are answered. It returns the first refusal since the last wait or read.
// The context ends the wait, not the commands: see Cancel.
func (s *Session) Wait(ctx context.Context) error {
	if err := s.sink.wait(ctx); err != nil {
		return err
	}
	return s.sink.takeFailure()
}

// ask sends a command and waits. An earlier refusal comes first.
func (s *Session) ask(ctx context.Context, command *pb.Command) (*pb.Result, error) {
	result, err := s.sink.ask(ctx, command)
	if err != nil {
		return nil, err
	}
	if earlier := s.sink.takeFailure(); earlier != nil {
		return nil, earlier
	}
	if told := result.GetError(); told != nil {
		return nil, s.sink.origin(fromProto(told))
	}
	return result, nil
}

// Cancel stops the session's running and waiting commands. They fail with REASON_CANCELLED.
func (s *Session) Cancel(ctx context.Context) error {
	_, err := retried(ctx, s, s.client.Cancel, &pb.CancelRequest{SessionId: s.ID()})
	return err
}

// Close waits for all commands and ends the session; the server frees what it holds. It returns the first refusal since
// the last wait or read.
func (s *Session) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	err := s.Wait(context.Background())
	close(s.stopped)
	s.writer.kill(ErrClosed)
	<-s.writer.done
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, ended := s.client.CloseSession(ctx, &pb.CloseSessionRequest{SessionId: s.ID()})
	if err == nil && ended != nil {
		err = fromStatus(ended, nil)
	}
	return errors.Join(err, s.places.close())
}

// Modes

func (s *Session) gradMode() pb.GradMode { return pb.GradMode(s.mode.Load()) }

// NoGrad runs f. Ops inside record no graph, and leaves may be changed in place.
func (s *Session) NoGrad(f func()) { s.inMode(pb.GradMode_GRAD_MODE_DISABLED, f) }

// InferenceMode runs f. Ops inside record no graph, and their results can never be part of one.
func (s *Session) InferenceMode(f func()) { s.inMode(pb.GradMode_GRAD_MODE_INFERENCE, f) }

func (s *Session) inMode(mode pb.GradMode, f func()) {
	before := s.mode.Swap(int32(mode))
	defer s.mode.Store(before)
	f()
}

// ManualSeed seeds the session's random generator, which draws PyTorch's numbers on the CPU (torch.manual_seed).
func (s *Session) ManualSeed(seed int64) {
	request := &pb.ManualSeedRequest{
		Set: &pb.ManualSeedRequest_Seed{Seed: seed}, Algorithm: pb.RandomAlgorithm_RANDOM_ALGORITHM_MT19937,
	}
	s.sink.send(&pb.Command{Command: &pb.Command_ManualSeed{ManualSeed: request}})
}

// Releasing tensors

// scope has the tensors that were made in a Tidy.
type scope struct{ made []*Tensor }

// Tidy runs f and then releases all tensors that were made in it, unless Keep was called on them. The garbage collector
// releases tensors, too, but it knows nothing of the server's memory: use Tidy around the steps of a loop.
func (s *Session) Tidy(f func() error) error {
	mine := &scope{}
	s.mu.Lock()
	s.scopes = append(s.scopes, mine)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		for i, each := range s.scopes {
			if each == mine {
				s.scopes = append(s.scopes[:i:i], s.scopes[i+1:]...)
				break
			}
		}
		made := mine.made
		s.mu.Unlock()
		for _, tensor := range made {
			if !tensor.kept.Load() {
				tensor.Release()
			}
		}
	}()
	return f()
}

// newTensor is a tensor with a fresh id.
func (s *Session) newTensor() *Tensor {
	return s.adopt(s.nextID.Add(1))
}

// adopt is a tensor of an id that this session releases.
func (s *Session) adopt(id uint64) *Tensor {
	tensor := &Tensor{session: s, id: id}
	if s.writer == nil {
		return tensor // a slot of a program
	}
	tensor.handle = &handle{session: s, id: id}
	tensor.cleanup = runtime.AddCleanup(tensor, (*handle).release, tensor.handle)
	if live := s.live.Add(1); live-s.base.Load() > collectEvery {
		s.base.Store(live)
		go func() {
			runtime.GC()
			time.Sleep(5 * time.Millisecond) // cleanups run after the collection
			s.base.Store(s.live.Load())
		}()
	}
	s.mu.Lock()
	if len(s.scopes) > 0 {
		top := s.scopes[len(s.scopes)-1]
		top.made = append(top.made, tensor)
	}
	s.mu.Unlock()
	return tensor
}

// handle releases an id once.
type handle struct {
	session  *Session
	id       uint64
	released atomic.Bool
}

func (h *handle) release() {
	if !h.released.Swap(true) {
		h.session.live.Add(-1)
		h.session.sink.release(h.id)
	}
}
