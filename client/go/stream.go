package gradwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

const (
	sendAt       = 64   // commands at which a batch is sent while few are under way
	growTo       = 1024 // commands up to which a batch grows while many are under way
	mostSent     = 8    // batches under way; the server stops reading at 16
	mostRoots    = 1024 // refusals that are remembered for commands that depend on them
	mostFailures = 64   // refusals of quiet commands kept until the next wait
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
	// Streams that break since the last answer to a batch, and times the patience; then no connection seems to carry it.
	mostPatiences = 10
	// A stream that lasts for this part of the patience has carried its batches: the server computes.
	patienceParts = 4
)

// batch is a message of commands, kept until its answer comes.
type batch struct {
	run     *pb.RunRequest
	last    uint64
	size    int64
	stamped bool // its acknowledgement is set: it is sent again unchanged
	waiting map[uint64]chan<- *pb.Result
}

// writer numbers a session's commands, sends them over one stream after another, and keeps what is not answered.
type writer struct {
	connect  func(context.Context) (wire, error)
	opened   *pb.OpenSessionResponse
	patience time.Duration
	context  context.Context
	stop     context.CancelFunc
	done     chan struct{}

	mu   sync.Mutex
	cond *sync.Cond // queue, credit, attached and dead

	// Commands that wait for the next batch.
	commands []*pb.Command
	words    []byte
	calls    uint32
	count    int
	bytes    int
	waiting  map[uint64]chan<- *pb.Result
	first    uint64 // seq of the first of them
	next     uint64 // seq of the next command
	released []uint64
	prepared map[string]uint32
	seen     map[string]struct{}
	scratch  []byte

	// Batches that are not answered, in order; those before sent were sent on the present stream.
	queue    []*batch
	sent     int
	window   int // batches that may be under way: few after a break
	credit   int64
	attached bool
	acked    uint64
	told     uint64 // acknowledged by a message
	attempt  uint32
	dead     error

	failures   []*Error
	roots      map[uint64]*Error
	rootOrder  []uint64
	dropped    func(hooks []uint64)
	reconnects int
}

// wire carries messages of one stream.
type wire interface {
	Send(*pb.StreamRequest) error
	Recv() (*pb.StreamResponse, error)
	// refusal is why Recv failed.
	refusal(error) *Error
	close()
}

func newWriter(connect func(context.Context) (wire, error), opened *pb.OpenSessionResponse, patience time.Duration) *writer {
	w := &writer{
		connect: connect, opened: opened, patience: patience, done: make(chan struct{}), first: 1, next: 1,
		waiting: map[uint64]chan<- *pb.Result{}, prepared: map[string]uint32{}, seen: map[string]struct{}{},
		roots: map[uint64]*Error{}, dropped: func([]uint64) {}, window: mostSent,
	}
	w.cond = sync.NewCond(&w.mu)
	w.context, w.stop = context.WithCancel(context.Background())
	go w.run()
	return w
}

// Commands that wait for the next batch

// send adds a command that is answered only if it fails.
func (w *writer) send(command *pb.Command) {
	command.Quiet = true
	w.mu.Lock()
	w.add(command, nil)
	w.mu.Unlock()
}

// add appends a command, under mu.
func (w *writer) add(command *pb.Command, answer chan<- *pb.Result) {
	size := proto.Size(command) + 8
	if most := int(w.opened.GetLimits().GetMaxMessageBytes()); w.count > 0 && most > 0 && w.bytes+size > most-1024 {
		w.cut()
	}
	w.endCalls()
	w.commands = append(w.commands, command)
	if answer != nil {
		w.waiting[w.next] = answer
	}
	w.bytes += size
	w.counted()
}

// counted follows every command, under mu: it sends a batch that is large enough, and waits while it can grow no more.
func (w *writer) counted() {
	w.next++
	w.count++
	if w.count < sendAt {
		return
	}
	most := growTo
	if limit := int(w.opened.GetLimits().GetMaxBatchCommands()); limit > 0 && limit < most {
		most = limit
	}
	for (w.count >= most || w.bytes >= w.growBytes()) && len(w.queue) >= mostSent && w.dead == nil {
		w.cond.Wait()
	}
	if len(w.queue) < mostSent || w.dead != nil {
		w.cut()
	}
}

// growBytes are the bytes to which a batch grows: a larger message hardly passes a connection that breaks all the time.
func (w *writer) growBytes() int {
	if w.window < mostSent {
		return 2 << 10
	}
	return 8 << 10
}

func (w *writer) endCalls() {
	if w.calls > 0 {
		calls := &pb.Calls{Count: w.calls, Words: w.words}
		w.commands = append(w.commands, &pb.Command{Command: &pb.Command_Calls{Calls: calls}})
		w.calls, w.words = 0, nil
	}
}

// op adds a call of an op: the second time and later as a call of a prepared op.
func (w *writer) op(call *Call, mode pb.GradMode, made []*Tensor) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, can := call.key(w.scratch[:0], mode, len(made))
	w.scratch = key
	number, known := w.prepared[string(key)]
	if !known {
		_, again := w.seen[string(key)]
		if can && again {
			number, known = w.prepare(call, mode, made)
		}
		// From here on another goroutine may have changed the scratch space.
		if !known {
			if can && len(w.seen) < 4*int(w.opened.GetLimits().GetMaxPrepared()) {
				w.seen[string(key)] = struct{}{}
			}
			w.add(&pb.Command{Quiet: true, Command: &pb.Command_Op{Op: call.request(mode, ids(made))}}, nil)
			return
		}
	}
	before := len(w.words)
	w.words = call.words(w.words, number, made)
	w.calls++
	w.bytes += len(w.words) - before
	w.counted()
}

// prepare adds a Prepare under the key in scratch, if the server allows one more, and returns its number. It may wait, and
// give up mu for that time.
func (w *writer) prepare(call *Call, mode pb.GradMode, made []*Tensor) (uint32, bool) {
	key := string(w.scratch)
	request := call.request(mode, ids(made))
	if uint64(len(w.prepared)) >= w.opened.GetLimits().GetMaxPrepared() || proto.Size(request) > 256 {
		return 0, false
	}
	number := uint32(len(w.prepared))
	w.prepared[key] = number
	delete(w.seen, key)
	w.add(&pb.Command{Quiet: true, Command: &pb.Command_Prepare{Prepare: &pb.Prepare{Number: number, Op: request}}}, nil)
	return number, true
}

func (w *writer) release(id uint64) {
	w.mu.Lock()
	w.released = append(w.released, id)
	w.mu.Unlock()
}

func (w *writer) failed(err error) {
	var told *Error
	if !errors.As(err, &told) {
		told = &Error{Message: err.Error()}
	}
	w.mu.Lock()
	w.note(told)
	w.mu.Unlock()
}

func (w *writer) note(failure *Error) {
	if len(w.failures) < mostFailures {
		w.failures = append(w.failures, failure)
	}
}

// cut makes a batch of the commands that wait, under mu. Releases are its end: the server answers before it frees.
func (w *writer) cut() {
	if len(w.released) > 0 {
		w.endCalls()
		request := &pb.ReleaseRequest{Tensors: w.released}
		w.commands = append(w.commands, &pb.Command{Quiet: true, Command: &pb.Command_Release{Release: request}})
		w.released = nil
		w.next++
	}
	w.endCalls()
	if len(w.commands) == 0 {
		return
	}
	run := &pb.RunRequest{FirstSeq: w.first, Commands: w.commands}
	made := &batch{run: run, last: w.next - 1, waiting: w.waiting}
	w.commands, w.waiting, w.first, w.count, w.bytes = nil, map[uint64]chan<- *pb.Result{}, w.next, 0, 0
	if w.dead != nil {
		made.abandon()
		return
	}
	w.queue = append(w.queue, made)
	w.cond.Broadcast()
}

func (b *batch) abandon() {
	for _, answer := range b.waiting {
		close(answer)
	}
}

// Waiting

// ask adds a command and waits for its answer. The result may be a refusal of this command; the error is one of the
// connection or the context.
func (w *writer) ask(ctx context.Context, command *pb.Command) (*pb.Result, error) {
	answer := make(chan *pb.Result, 1)
	w.mu.Lock()
	w.add(command, answer)
	w.cut()
	w.mu.Unlock()
	select {
	case result, ok := <-answer:
		if !ok {
			return nil, w.deadError()
		}
		return result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// wait sends what waits, and returns when all is answered.
func (w *writer) wait(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { w.mu.Lock(); w.cond.Broadcast(); w.mu.Unlock() })
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut()
	if len(w.queue) == 0 {
		return w.dead
	}
	last := w.queue[len(w.queue)-1].last
	for len(w.queue) > 0 && w.queue[0].last <= last && w.dead == nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		w.cond.Wait()
	}
	return w.dead
}

// takeFailure is the first refusal of a quiet command since the last wait. The others are dropped: most follow from it.
func (w *writer) takeFailure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) == 0 {
		return nil
	}
	first := w.failures[0]
	w.failures = nil
	return first
}

// origin replaces a refusal that follows from an earlier one by that one.
func (w *writer) origin(failure *Error) *Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if root := w.roots[failure.RootSeq]; root != nil && failure.RootSeq != 0 {
		return root
	}
	return failure
}

func (w *writer) deadError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// kill ends everything with an error.
func (w *writer) kill(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead != nil {
		return
	}
	w.dead = err
	w.stop()
	for _, each := range w.queue {
		each.abandon()
	}
	w.queue, w.sent = nil, 0
	w.cut()
	w.cond.Broadcast()
}

// The stream

// brokenStreams counts the streams that broke since the last answer to a batch.
type brokenStreams struct {
	count int
	since time.Time // when the first broke
	acked uint64
}

// uncarried counts a stream that broke after its start was answered. It returns a failure if so many broke for so long
// that no connection seems to carry the next batch. A server that answers a stream's start only would otherwise be tried
// for ever. One batch may compute for longer than the patience.
func (w *writer) uncarried(broken *brokenStreams, lasted time.Duration, failure *Error) *Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.queue) == 0 || lasted > w.patience/patienceParts:
		*broken = brokenStreams{}
		return nil
	case broken.count == 0 || broken.acked != w.acked:
		*broken = brokenStreams{since: time.Now(), acked: w.acked}
	}
	broken.count++
	if broken.count < mostPatiences || time.Since(broken.since) <= mostPatiences*w.patience {
		return nil
	}
	return &Error{Reason: ReasonUnavailable, Code: codes.Unavailable, Message: fmt.Sprintf(
		"%d connections broke in %s before a batch of %d bytes was answered: %s",
		broken.count, mostPatiences*w.patience, w.queue[0].size, failure.Message)}
}

// run keeps a stream open until the writer ends.
func (w *writer) run() {
	defer close(w.done)
	var since time.Time // of the first failure after the last answer
	var broken brokenStreams
	pause := firstPause
	for w.context.Err() == nil {
		began := time.Now()
		progress, err := w.stream()
		if w.context.Err() != nil {
			return
		}
		if progress {
			since, pause = time.Time{}, firstPause
		}
		if since.IsZero() {
			since = time.Now()
		}
		if !err.mayRetry() {
			w.kill(err)
			return
		}
		if progress {
			if failure := w.uncarried(&broken, time.Since(began), err); failure != nil {
				w.kill(failure)
				return
			}
		}
		if time.Since(since) > w.patience {
			w.kill(&Error{Reason: ReasonUnavailable, Code: codes.Unavailable,
				Message: fmt.Sprintf("no answer for %s: %s", w.patience, err.Message)})
			return
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
		case <-w.context.Done():
		}
		pause = min(2*pause, longestPause)
	}
}

// stream opens a stream, sends all that is not answered, and returns how it ended and whether it had an answer.
func (w *writer) stream() (progress bool, _ *Error) {
	ctx, cancel := context.WithCancel(w.context)
	defer cancel()
	link, err := w.connect(ctx)
	if err != nil {
		return false, fromStatus(err, nil)
	}
	defer link.close()
	w.mu.Lock()
	w.attempt++
	w.sent, w.credit, w.attached = 0, 0, false
	if w.attempt > 1 {
		w.reconnects++
		w.window = 1 // an answer comes before the next break
	}
	attach := &pb.StreamAttach{
		SessionId: w.opened.GetSessionId(), Writer: w.opened.GetWriter(), Epoch: w.opened.GetEpoch(),
		AcknowledgedSeq: w.acked, Attempt: w.attempt, JoinedAnswers: true,
	}
	w.told = w.acked
	w.mu.Unlock()
	if err := link.Send(&pb.StreamRequest{Request: &pb.StreamRequest_Attach{Attach: attach}}); err != nil {
		_, err = link.Recv()
		return false, link.refusal(err)
	}
	var sending sync.WaitGroup
	sending.Go(func() { w.sender(ctx, link) })
	defer func() {
		cancel()
		w.mu.Lock()
		w.cond.Broadcast()
		w.mu.Unlock()
		link.close()
		sending.Wait()
	}()
	for {
		message, err := link.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return progress, &Error{Code: codes.Unavailable, Message: "the server ended the stream"}
			}
			return progress, link.refusal(err)
		}
		progress = true
		w.received(message)
	}
}

func (w *writer) received(message *pb.StreamResponse) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.credit += int64(message.GetCreditBytes())
	if message.GetAttached() != nil {
		w.attached = true
	}
	if run := message.GetBatch(); run != nil {
		w.answered(int(max(1, message.GetBatches())), run)
	}
	w.cond.Broadcast()
}

// answered takes batches from the queue, of which the last one has the results.
func (w *writer) answered(count int, run *pb.RunResponse) {
	count = min(count, len(w.queue))
	if count == 0 {
		return
	}
	for _, each := range w.queue[:count-1] {
		each.abandon()
	}
	last := w.queue[count-1]
	clear(w.queue[:count])
	w.queue = w.queue[count:]
	w.sent = max(0, w.sent-count)
	w.window = min(2*w.window, mostSent)
	w.acked = last.last
	for _, result := range run.GetResults() {
		if told := result.GetError(); told != nil {
			w.refused(result.GetSeq(), told, last.waiting[result.GetSeq()] == nil)
		}
		if answer := last.waiting[result.GetSeq()]; answer != nil {
			answer <- result
			delete(last.waiting, result.GetSeq())
		}
	}
	last.abandon()
	if hooks := run.GetDroppedHooks(); len(hooks) > 0 {
		w.dropped(hooks)
	}
}

// refused remembers a refusal, as the origin of others and, of a quiet command, for the next wait.
func (w *writer) refused(seq uint64, told *pb.Error, quiet bool) {
	failure := fromProto(told)
	if failure.Reason != pb.Reason_REASON_DEPENDENCY_FAILED {
		if len(w.rootOrder) == mostRoots {
			delete(w.roots, w.rootOrder[0])
			w.rootOrder = w.rootOrder[1:]
		}
		w.roots[seq] = failure
		w.rootOrder = append(w.rootOrder, seq)
		if quiet {
			w.note(failure)
		}
		return
	}
	if quiet && w.roots[failure.RootSeq] == nil {
		w.note(failure)
	}
}

// sender sends batches while there is credit, and acknowledges answers before a pause.
func (w *writer) sender(ctx context.Context, link wire) {
	for {
		message := w.nextMessage(ctx)
		if message == nil || link.Send(message) != nil {
			return // Recv tells why
		}
	}
}

// nextMessage waits for a batch that may be sent; nil if the stream is over.
func (w *writer) nextMessage(ctx context.Context) *pb.StreamRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if ctx.Err() != nil || w.dead != nil {
			return nil
		}
		if w.attached && w.sent < len(w.queue) && w.sent < w.window {
			each := w.queue[w.sent]
			if !each.stamped {
				each.run.AcknowledgedSeq, each.stamped = w.acked, true
				each.size = int64(proto.Size(each.run))
			}
			if w.credit >= each.size {
				w.credit -= each.size
				w.sent++
				w.told = max(w.told, each.run.GetAcknowledgedSeq())
				return &pb.StreamRequest{Request: &pb.StreamRequest_Batch{Batch: each.run}}
			}
		}
		if w.attached && len(w.queue) == 0 && w.acked > w.told+sendAt {
			w.told = w.acked
			acknowledge := &pb.StreamAcknowledge{AcknowledgedSeq: w.acked}
			return &pb.StreamRequest{Request: &pb.StreamRequest_Acknowledge{Acknowledge: acknowledge}}
		}
		w.cond.Wait()
	}
}
