package gradwire

import (
	"context"
	"fmt"
	"runtime"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// BackwardOptions are what Backward and Gradients can do without.
type BackwardOptions struct {
	// Gradients of the tensors, in order. One of a tensor with one element may be nil or missing: then it is 1.
	Gradients []*Tensor
	// RetainGraph keeps the graph's saved values for another backward.
	RetainGraph bool
	// CreateGraph makes the gradients themselves differentiable, and keeps the graph.
	CreateGraph bool
	// Inputs are the only tensors that receive gradients, if it is not empty. Only for Backward.
	Inputs []*Tensor
	// CheckNaN refuses a backward in which a node yields nan.
	CheckNaN bool
	// AllowUnused lets Gradients return nil for an input that the outputs do not depend on.
	AllowUnused bool
}

// Hook is a registered hook.
type Hook struct {
	session *Session
	number  uint64
}

type hookEntry struct {
	gradient    func(*Tensor) (*Tensor, error)
	accumulated func(*Tensor) error
}

// Backward adds gradients to the leaves that the tensor depends on. It waits only if the session has hooks, which it
// runs in this goroutine.
func (t *Tensor) Backward(ctx context.Context, opts ...BackwardOptions) error {
	return Backward(ctx, []*Tensor{t}, opts...)
}

// Backward differentiates several tensors at once (torch.autograd.backward).
func Backward(ctx context.Context, tensors []*Tensor, opts ...BackwardOptions) error {
	o := first(opts)
	s, err := sessionOf("backward", tensors, o.Gradients, o.Inputs)
	if err != nil {
		return s.fails(err)
	}
	request := &pb.BackwardRequest{
		Tensors: ids(tensors), Gradients: ids(o.Gradients), CreateGraph: o.CreateGraph, Inputs: ids(o.Inputs),
		CheckNan: o.CheckNaN, RetainGraph: retain(o),
	}
	defer runtime.KeepAlive([][]*Tensor{tensors, o.Gradients, o.Inputs})
	command := &pb.Command{Command: &pb.Command_Backward{Backward: request}}
	if !s.hasHooks() {
		s.sink.send(command)
		return nil
	}
	request.AnswersHooks = true
	_, err = s.runHooks(ctx, command)
	return err
}

// Gradients returns the gradients of outputs by inputs, and changes no leaf's (torch.autograd.grad). It waits if the
// session has hooks, or with AllowUnused.
func Gradients(ctx context.Context, outputs, inputs []*Tensor, opts ...BackwardOptions) ([]*Tensor, error) {
	o := first(opts)
	s, err := sessionOf("gradients", outputs, inputs, o.Gradients)
	if err != nil {
		return nil, s.fails(err)
	}
	made := make([]*Tensor, len(inputs))
	for i := range made {
		made[i] = s.newTensor()
	}
	request := &pb.GradientsRequest{
		Outputs: ids(outputs), Inputs: ids(inputs), GradOutputs: ids(o.Gradients), CreateGraph: o.CreateGraph,
		AllowUnused: o.AllowUnused, CheckNan: o.CheckNaN, RetainGraph: retain(o), Results: ids(made),
	}
	defer runtime.KeepAlive([][]*Tensor{outputs, inputs, o.Gradients})
	command := &pb.Command{Command: &pb.Command_Gradients{Gradients: request}}
	if !s.hasHooks() && !o.AllowUnused {
		s.sink.send(command)
		return made, nil
	}
	request.AnswersHooks = s.hasHooks()
	specs, err := s.runHooks(ctx, command)
	if err != nil {
		return nil, err
	}
	for i, spec := range specs {
		if spec.GetId() == 0 {
			made[i].Release()
			made[i] = nil
		}
	}
	return made, nil
}

func first(opts []BackwardOptions) BackwardOptions {
	if len(opts) == 0 {
		return BackwardOptions{}
	}
	return opts[0]
}

func retain(o BackwardOptions) *bool {
	if o.RetainGraph {
		return &o.RetainGraph
	}
	return nil
}

// sessionOf checks that tensors are of one session; nil ones are none.
func sessionOf(op string, lists ...[]*Tensor) (*Session, error) {
	call := NewCall(nil, op)
	for _, list := range lists {
		for _, tensor := range list {
			if tensor != nil {
				call.id("tensors", tensor)
			}
		}
	}
	if call.session == nil && call.err == nil {
		call.err = refusal(ReasonArgumentValue, op, "there is no tensor")
	}
	return call.session, call.err
}

// fails notes a mistake that was found here, so that a later wait returns it, too.
func (s *Session) fails(err error) error {
	if s != nil && s.writer == nil {
		s.sink.failed(err)
	}
	return err
}

// Hooks

func (s *Session) hasHooks() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.hooks) > 0
}

// RegisterHook calls f with the tensor's gradient in every backward that computes it. f returns another gradient, or nil
// to leave it. An error of f ends the backward, which returns it.
func (t *Tensor) RegisterHook(f func(gradient *Tensor) (*Tensor, error)) *Hook {
	return t.register(&hookEntry{gradient: f}, pb.HookKind_HOOK_KIND_TENSOR)
}

// RegisterPostAccumulateGradHook calls f with the leaf after a backward has added to its gradient.
func (t *Tensor) RegisterPostAccumulateGradHook(f func(leaf *Tensor) error) *Hook {
	return t.register(&hookEntry{accumulated: f}, pb.HookKind_HOOK_KIND_ACCUMULATED)
}

func (t *Tensor) register(entry *hookEntry, kind pb.HookKind) *Hook {
	hook := &Hook{session: t.session}
	if t.err != nil {
		t.send(nil) // notes the error
		return hook
	}
	if t.session.writer == nil {
		t.session.sink.failed(refusal(pb.Reason_REASON_NOT_SUPPORTED, "", "a program has no hooks"))
		return hook
	}
	s := t.session
	hook.number = s.nextID.Add(1)
	s.mu.Lock()
	s.hooks[hook.number] = entry
	s.mu.Unlock()
	request := &pb.RegisterHookRequest{Hook: hook.number, Tensor: t.id, Kind: kind}
	t.send(&pb.Command{Command: &pb.Command_RegisterHook{RegisterHook: request}})
	return hook
}

// Remove removes the hook.
func (h *Hook) Remove() {
	if h.number == 0 {
		return
	}
	h.session.dropHooks([]uint64{h.number})
	request := &pb.RemoveHookRequest{Hook: h.number}
	h.session.sink.send(&pb.Command{Command: &pb.Command_RemoveHook{RemoveHook: request}})
}

func (s *Session) dropHooks(numbers []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, number := range numbers {
		delete(s.hooks, number)
	}
}

// runHooks sends a backward and runs the hooks at which it stops. It returns the gradients of Gradients.
func (s *Session) runHooks(ctx context.Context, command *pb.Command) ([]*pb.TensorSpec, error) {
	var own error // of a hook
	for {
		result, err := s.sink.ask(ctx, command)
		if err != nil {
			return nil, err
		}
		if told := result.GetError(); told != nil {
			if earlier := s.sink.takeFailure(); earlier != nil {
				return nil, earlier
			}
			return nil, s.sink.origin(fromProto(told))
		}
		var due *pb.HookCall
		var gradients []*pb.TensorSpec
		switch answer := result.GetResult().(type) {
		case *pb.Result_Backward:
			due = answer.Backward.GetDue()
		case *pb.Result_Gradients:
			due, gradients = answer.Gradients.GetDue(), answer.Gradients.GetGradients()
		case *pb.Result_ResumeBackward:
			due, gradients = answer.ResumeBackward.GetDue(), answer.ResumeBackward.GetGradients()
		}
		if own != nil {
			return nil, own
		}
		if due == nil {
			return gradients, s.sink.takeFailure()
		}
		resume := &pb.ResumeBackwardRequest{Backward: due.GetBackward()}
		replacement, err := s.runHook(due)
		if err != nil {
			resume.Abandon, own = true, err
		} else if replacement != nil {
			resume.Replaces, resume.Gradients = true, []uint64{replacement.id}
		}
		command = &pb.Command{Command: &pb.Command_ResumeBackward{ResumeBackward: resume}}
		defer runtime.KeepAlive(replacement)
	}
}

// runHook calls the function of a hook.
func (s *Session) runHook(due *pb.HookCall) (*Tensor, error) {
	s.mu.Lock()
	entry := s.hooks[due.GetHook()]
	s.mu.Unlock()
	if entry == nil {
		return nil, fmt.Errorf("gradwire: the backward stopped at hook %d of another client", due.GetHook())
	}
	for _, spec := range due.GetOthers() {
		if spec.GetId() != 0 {
			s.adopt(spec.GetId()).Release()
		}
	}
	if entry.accumulated != nil {
		return nil, entry.accumulated(&Tensor{session: s, id: due.GetLeaf().GetId()})
	}
	if len(due.GetGradients()) == 0 || due.GetGradients()[0].GetId() == 0 {
		return nil, nil
	}
	gradient := s.adopt(due.GetGradients()[0].GetId())
	replacement, err := entry.gradient(gradient)
	if replacement != nil && err == nil {
		err = gradient.mistakeOf("a hook's gradient", replacement)
	}
	return replacement, err
}
