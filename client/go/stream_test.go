package gradwire

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// scripted is a server that does what a live one does not do on demand.
type scripted struct {
	pb.UnimplementedAutogradServiceServer
	stream   func(attempt uint32, stream pb.AutogradService_StreamServer) error
	upload   func(stream pb.AutogradService_UploadServer) error
	download func(request *pb.DownloadRequest, stream pb.AutogradService_DownloadServer) error
	mu       sync.Mutex
	alive    int
	fails    int // OpenSession calls that still fail
}

func (s *scripted) OpenSession(context.Context, *pb.OpenSessionRequest) (*pb.OpenSessionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails > 0 {
		s.fails--
		return nil, status.Error(codes.Unavailable, "not yet")
	}
	return &pb.OpenSessionResponse{
		SessionId: "s", Writer: 1, Epoch: 1, LeaseMs: 60, FirstId: 1, LastId: 1 << 40,
		Limits: &pb.Limits{MaxMessageBytes: 1 << 20, MaxInlineBytes: 1 << 16, MaxBatchCommands: 1024, MaxPrepared: 4},
	}, nil
}

func (s *scripted) KeepAlive(context.Context, *pb.KeepAliveRequest) (*pb.KeepAliveResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.alive++
	return &pb.KeepAliveResponse{LeaseMs: 60}, nil
}

func (s *scripted) CloseSession(context.Context, *pb.CloseSessionRequest) (*pb.CloseSessionResponse, error) {
	return &pb.CloseSessionResponse{}, nil
}

func (s *scripted) Stream(stream pb.AutogradService_StreamServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	return s.stream(first.GetAttach().GetAttempt(), stream)
}

func (s *scripted) Upload(stream pb.AutogradService_UploadServer) error { return s.upload(stream) }

func (s *scripted) Download(request *pb.DownloadRequest, stream pb.AutogradService_DownloadServer) error {
	return s.download(request, stream)
}

// open serves a script and opens a session on it.
func (s *scripted) open(t *testing.T, opts ...Option) *Session {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterAutogradServiceServer(server, s)
	go func() {
		if err := server.Serve(listener); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(server.Stop)
	session, err := Connect(t.Context(), listener.Addr().String(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func attached(stream pb.AutogradService_StreamServer, credit uint64) error {
	return stream.Send(&pb.StreamResponse{
		Response: &pb.StreamResponse_Attached{Attached: &pb.StreamAttached{Epoch: 1}}, CreditBytes: credit,
	})
}

func answer(stream pb.AutogradService_StreamServer, credit uint64, results ...*pb.Result) error {
	return stream.Send(&pb.StreamResponse{
		Response: &pb.StreamResponse_Batch{Batch: &pb.RunResponse{Results: results}}, CreditBytes: credit,
	})
}

// refuse ends a call as the server does.
func refuse(stream grpc.ServerStream, reason pb.Reason, code codes.Code) error {
	data, err := proto.Marshal(&pb.Error{Code: int32(code), Reason: reason, Message: "scripted"})
	if err != nil {
		return err
	}
	stream.SetTrailer(metadata.Pairs("gradwire-error-bin", string(data)))
	return status.Error(code, "scripted")
}

func addOnes(s *Session, count int) {
	one := FromSlice(s, []float32{1})
	for range count {
		one.AddInPlace(1.0)
	}
}

func TestCreditAndBatchesUnderWayAreBounded(t *testing.T) {
	const credit = 40_000 // suffices for the largest batch
	var most, batches int
	script := &scripted{stream: func(_ uint32, stream pb.AutogradService_StreamServer) error {
		if err := attached(stream, credit); err != nil {
			return err
		}
		received := make(chan int, 100)
		go func() {
			defer close(received)
			for {
				message, err := stream.Recv()
				if err != nil {
					return
				}
				if batch := message.GetBatch(); batch != nil {
					received <- proto.Size(batch)
				}
			}
		}()
		for size := range received {
			// Let more come, as much as the client dares to send.
			time.Sleep(2 * time.Millisecond)
			held := []int{size}
			for len(received) > 0 {
				held = append(held, <-received)
			}
			sum := 0
			for _, each := range held {
				sum += each
			}
			most, batches = max(most, sum), max(batches, len(held))
			for _, each := range held {
				if err := answer(stream, uint64(each)); err != nil {
					return err
				}
			}
		}
		return nil
	}}
	session := script.open(t)
	for range 100 {
		addOnes(session, 100)
	}
	if err := session.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if most > credit || most < credit/4 {
		t.Errorf("%d bytes under way with a credit of %d", most, credit)
	}
	if batches > mostSent {
		t.Errorf("%d batches under way", batches)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

func TestUnansweredBatchesAreSentAgainUnchanged(t *testing.T) {
	var first, second []byte
	var attempts []uint32
	script := &scripted{stream: func(attempt uint32, stream pb.AutogradService_StreamServer) error {
		attempts = append(attempts, attempt)
		if err := attached(stream, 1<<20); err != nil {
			return err
		}
		message, err := stream.Recv()
		if err != nil {
			return err
		}
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
		if err != nil {
			return err
		}
		switch len(attempts) {
		case 1:
			first = data
			return status.Error(codes.Unavailable, "cut")
		case 2:
			return refuse(stream, pb.Reason_REASON_STREAM_TAKEN, codes.Aborted)
		}
		second = data
		if err := answer(stream, 0); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	}}
	session := script.open(t)
	addOnes(session, 10)
	if err := session.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if string(first) != string(second) || len(first) == 0 {
		t.Error("another batch was sent")
	}
	if len(attempts) != 3 || attempts[0] >= attempts[1] || attempts[1] >= attempts[2] {
		t.Errorf("attempts are %v", attempts)
	}
	if session.Reconnects() != 2 {
		t.Errorf("%d reconnects", session.Reconnects())
	}
}

func TestForgottenResultsEndTheSession(t *testing.T) {
	script := &scripted{stream: func(_ uint32, stream pb.AutogradService_StreamServer) error {
		if err := attached(stream, 1<<20); err != nil {
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
		return refuse(stream, pb.Reason_REASON_RESULT_FORGOTTEN, codes.DataLoss)
	}}
	session := script.open(t)
	tensor := FromSlice(session, []float32{1})
	if _, err := tensor.Float32s(t.Context()); ReasonOf(err) != pb.Reason_REASON_RESULT_FORGOTTEN {
		t.Error(err)
	}
	if err := session.Wait(t.Context()); ReasonOf(err) != pb.Reason_REASON_RESULT_FORGOTTEN {
		t.Error(err)
	}
}

func TestPatienceEnds(t *testing.T) {
	script := &scripted{stream: func(uint32, pb.AutogradService_StreamServer) error {
		return status.Error(codes.Unavailable, "never")
	}}
	session := script.open(t, WithPatience(50*time.Millisecond))
	begun := time.Now()
	addOnes(session, 1)
	if err := session.Wait(t.Context()); ReasonOf(err) != ReasonUnavailable {
		t.Error(err)
	}
	if time.Since(begun) > 5*time.Second {
		t.Error("it took", time.Since(begun))
	}
}

// A batch that computes for long passes many breaks: a stream that lasted has carried it.
func TestALongComputationOutlastsBrokenStreams(t *testing.T) {
	const patience = 300 * time.Millisecond
	script := &scripted{stream: func(attempt uint32, stream pb.AutogradService_StreamServer) error {
		if attempt == 10 { // an outage
			return status.Error(codes.Unavailable, "scripted")
		}
		if err := attached(stream, 1<<20); err != nil {
			return err
		}
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if attempt > 10 {
			return answer(stream, 1<<20)
		}
		if attempt == 9 {
			time.Sleep(mostPatiences*patience + patience)
		}
		return status.Error(codes.Unavailable, "scripted")
	}}
	session := script.open(t, WithPatience(patience))
	addOnes(session, 1)
	if err := session.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestJoinedAnswersAnswerSeveralBatches(t *testing.T) {
	script := &scripted{stream: func(_ uint32, stream pb.AutogradService_StreamServer) error {
		if err := attached(stream, 1<<20); err != nil {
			return err
		}
		for range 3 {
			if _, err := stream.Recv(); err != nil {
				return err
			}
		}
		run := &pb.RunResponse{}
		if err := stream.Send(&pb.StreamResponse{Response: &pb.StreamResponse_Batch{Batch: run}, Batches: 3}); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	}}
	session := script.open(t)
	addOnes(session, 2*sendAt)
	if err := session.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTheLeaseIsRenewedAndOpeningIsTriedAgain(t *testing.T) {
	script := &scripted{fails: 2, stream: func(_ uint32, stream pb.AutogradService_StreamServer) error {
		<-stream.Context().Done()
		return nil
	}}
	script.open(t)
	time.Sleep(200 * time.Millisecond)
	script.mu.Lock()
	defer script.mu.Unlock()
	if script.alive < 3 || script.fails != 0 {
		t.Errorf("renewed %d times", script.alive)
	}
}

func TestAContextEndsAWait(t *testing.T) {
	script := &scripted{stream: func(_ uint32, stream pb.AutogradService_StreamServer) error {
		if err := attached(stream, 1<<20); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	}}
	session := script.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	tensor := FromSlice(session, []float32{1})
	if _, err := tensor.Read(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	if err := session.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// TestGoroutinesPrepareOps: while one waits for room after a Prepare, another calls another op. Each calls its own.
func TestGoroutinesPrepareOps(t *testing.T) {
	script := &scripted{stream: func(_ uint32, stream pb.AutogradService_StreamServer) error {
		if err := attached(stream, 1<<20); err != nil {
			return err
		}
		<-stream.Context().Done() // no answers: batches stay under way
		return nil
	}}
	session := script.open(t)
	const most = 100
	session.opened.Limits.MaxBatchCommands = most
	w, tensor := session.writer, FromSlice(session, []float32{1})
	until := func(state func() bool) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			w.mu.Lock()
			reached := state()
			w.mu.Unlock()
			if reached {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("the state was not reached")
			}
		}
	}
	addition := func() { NewCall(nil, "add_").Tensor("", tensor).Float("", 1).InPlace() }
	product := func() { NewCall(nil, "mul_").Tensor("", tensor).Float("", 1).InPlace() }
	product()
	addition()
	for len(w.queue) < mostSent || w.count < most-1 {
		addition() // only this goroutine adds so far
	}
	var group sync.WaitGroup
	group.Go(product)
	until(func() bool { return len(w.prepared) == 2 }) // it has the lock until it waits
	calls := w.calls
	group.Go(addition)
	until(func() bool { return w.calls == calls+1 })
	w.mu.Lock()
	w.queue, w.sent = nil, 0 // as if all were answered
	w.cond.Broadcast()
	w.mu.Unlock()
	group.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut()
	products := 0
	for _, each := range w.queue {
		for _, command := range each.run.GetCommands() {
			words := command.GetCalls().GetWords()
			for ; len(words) > 0; words = words[24:] { // the op's number, the tensor, the float
				if words[0] == 1 {
					products++
				}
			}
		}
	}
	if products != 1 {
		t.Errorf("%d calls of the product, not 1", products)
	}
}
