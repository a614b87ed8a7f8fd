package gradwire

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"
	"slices"

	"google.golang.org/protobuf/proto"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// Input says what a tensor must be like to be bound to a program's input.
type Input struct {
	DType        DType // Float32 if not set
	Shape        []int // of one slice, for a sliced input
	RequiresGrad bool
	Device       string
}

// Signature says what a program takes.
type Signature struct {
	Inputs []Input
	// Numbers is how many floating-point numbers each run gives, for example a learning rate.
	Numbers int
}

// Program is a list of commands that the server runs by one small command.
type Program struct {
	session *Session
	bytes   []byte
	hash    [32]byte
	inputs  int
	numbers int
	outputs int
}

// RunOptions are what Program.Run can do without.
type RunOptions struct {
	// Numbers are the program's numbers: one set for all repetitions, or one set for each.
	Numbers []float64
	// Repeat is the number of repetitions; 0 means 1.
	Repeat int
	// Sliced are the inputs, counted from 0, of which each repetition takes the next slice along the first dimension.
	Sliced []int
	// First is the number of slices to skip at the beginning.
	First int
	// Stacked returns the outputs of all repetitions along a new first dimension, instead of those of the last one.
	Stacked bool
}

// InputLike describes an input like a tensor. It waits.
func InputLike(ctx context.Context, t *Tensor) (Input, error) {
	d, err := t.Describe(ctx)
	return Input{DType: d.DType, Shape: d.Shape, RequiresGrad: d.RequiresGrad, Device: d.Device}, err
}

// Trace makes a program of what f does, and registers it. f gets a session that records, stand-ins for the inputs, and
// placeholders for the numbers. It may use only tensors of that session, reads none, and returns the outputs. Commands in
// f are not applied until the program runs. Trace waits.
func (s *Session) Trace(
	ctx context.Context, signature Signature, f func(p *Session, inputs []*Tensor, numbers []Number) ([]*Tensor, error),
) (*Program, error) {
	record := &recorder{}
	inner := &Session{sink: record, hooks: map[uint64]*hookEntry{}, opened: s.opened}
	inner.mode.Store(s.mode.Load())
	program := &pb.Program{Numbers: uint32(signature.Numbers)}
	var inputs []*Tensor
	for _, each := range signature.Inputs {
		if each.DType == pb.Dtype_DTYPE_UNSPECIFIED {
			each.DType = Float32
		}
		program.Inputs = append(program.Inputs, &pb.ProgramInput{
			Dtype: each.DType, Shape: wide(each.Shape), RequiresGrad: each.RequiresGrad, Device: each.Device,
		})
		inputs = append(inputs, inner.newTensor())
	}
	numbers := make([]Number, signature.Numbers)
	for i := range numbers {
		numbers[i] = Number(i)
	}
	outputs, err := f(inner, inputs, numbers)
	if err == nil && len(outputs) > 0 {
		var from *Session
		if from, err = sessionOf("program", outputs); err == nil && from != inner {
			err = refusal(ReasonArgumentValue, "", "an output of the program is not of its session")
		}
	}
	if err == nil {
		err = record.err
	}
	if err != nil {
		return nil, err
	}
	program.Steps, program.Outputs = record.steps, ids(outputs)
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(program)
	if err != nil {
		return nil, err
	}
	made := &Program{
		session: s, bytes: bytes, hash: sha256.Sum256(bytes), inputs: len(inputs), numbers: signature.Numbers,
		outputs: len(outputs),
	}
	if _, err := s.ask(ctx, made.registration()); err != nil {
		return nil, err
	}
	s.ran(made.hash)
	return made, nil
}

func (p *Program) registration() *pb.Command {
	request := &pb.RegisterProgramRequest{Hash: p.hash[:], Program: p.bytes}
	return &pb.Command{Command: &pb.Command_RegisterProgram{RegisterProgram: request}}
}

// ran notes that a program is the most recently run one. It says whether the server may have forgotten it.
func (s *Session) ran(hash [32]byte) (forgotten bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.recent, hash)
	if at >= 0 {
		s.recent = slices.Delete(s.recent, at, at+1)
	}
	s.recent = append(s.recent, hash)
	if most := int(s.opened.GetLimits().GetMaxPrograms()); most > 0 && len(s.recent) > most {
		s.recent = s.recent[1:]
	}
	return at < 0
}

// has says whether the server still has a program.
func (s *Session) has(hash [32]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.recent, hash)
}

// loaded notes the programs of a file as the most recently run ones, in the server's order: first those that it had.
func (s *Session) loaded(hashes [][32]byte) {
	var fresh [][32]byte
	for _, hash := range hashes {
		if s.has(hash) {
			s.ran(hash)
		} else {
			fresh = append(fresh, hash)
		}
	}
	for _, hash := range fresh {
		s.ran(hash)
	}
}

// Run binds tensors to the inputs and runs the program. It does not wait: a failure surfaces at the next wait or read.
func (p *Program) Run(inputs []*Tensor, opts ...RunOptions) []*Tensor {
	s := p.session
	from, err := sessionOf("program", inputs)
	switch {
	case len(inputs) != p.inputs:
		err = refusal(ReasonArgumentType, "", "the program takes %d inputs, not %d", p.inputs, len(inputs))
	case len(inputs) > 0 && err == nil && from != s:
		err = refusal(ReasonArgumentValue, "", "the inputs belong to another session")
	case len(inputs) == 0:
		err = nil
	}
	s.running.Lock() // no other run may come before the registration
	defer s.running.Unlock()
	if err == nil && s.ran(p.hash) {
		s.sink.send(p.registration())
	}
	request := &pb.RunProgramRequest{Hash: p.hash[:], Inputs: ids(inputs)}
	return s.runProgram(request, p.outputs, inputs, opts, err)
}

// runProgram completes a request and sends it; with an error, the outputs have it.
func (s *Session) runProgram(
	request *pb.RunProgramRequest, count int, inputs []*Tensor, opts []RunOptions, err error,
) []*Tensor {
	outputs := make([]*Tensor, count)
	if err != nil {
		s.sink.failed(err)
		for i := range outputs {
			outputs[i] = &Tensor{session: s, err: err}
		}
		return outputs
	}
	for i := range outputs {
		outputs[i] = s.newTensor()
	}
	request.Outputs = ids(outputs)
	if len(opts) > 0 {
		o := opts[0]
		request.Numbers, request.Repeat, request.First = o.Numbers, uint32(o.Repeat), uint32(o.First)
		request.Stacked = o.Stacked
		for _, place := range o.Sliced {
			request.Sliced = append(request.Sliced, uint32(place))
		}
	}
	s.sink.send(&pb.Command{Command: &pb.Command_RunProgram{RunProgram: request}})
	runtime.KeepAlive(inputs)
	return outputs
}

// recorder makes steps of a program of a session's commands.
type recorder struct {
	steps []*pb.ProgramStep
	err   error
}

func (r *recorder) send(command *pb.Command) {
	step := &pb.ProgramStep{}
	switch request := command.GetCommand().(type) {
	case *pb.Command_Create:
		step.Step = &pb.ProgramStep_Create{Create: request.Create}
	case *pb.Command_Backward:
		step.Step = &pb.ProgramStep_Backward{Backward: request.Backward}
	case *pb.Command_RetainGrad:
		step.Step = &pb.ProgramStep_RetainGrad{RetainGrad: request.RetainGrad}
	case *pb.Command_Grad:
		step.Step = &pb.ProgramStep_Grad{Grad: request.Grad}
	case *pb.Command_Gradients:
		step.Step = &pb.ProgramStep_Gradients{Gradients: request.Gradients}
	case *pb.Command_SetGrad:
		step.Step = &pb.ProgramStep_SetGrad{SetGrad: request.SetGrad}
	case *pb.Command_SetRequiresGrad:
		step.Step = &pb.ProgramStep_SetRequiresGrad{SetRequiresGrad: request.SetRequiresGrad}
	case *pb.Command_SetData:
		step.Step = &pb.ProgramStep_SetData{SetData: request.SetData}
	case *pb.Command_ManualSeed:
		step.Step = &pb.ProgramStep_ManualSeed{ManualSeed: request.ManualSeed}
	default:
		r.failed(refusal(pb.Reason_REASON_NOT_SUPPORTED, "", "a program cannot have %T", request))
		return
	}
	r.steps = append(r.steps, step)
}

func (r *recorder) op(call *Call, mode pb.GradMode, made []*Tensor) {
	request := call.request(mode, ids(made))
	r.steps = append(r.steps, &pb.ProgramStep{Step: &pb.ProgramStep_Op{Op: request}})
}

func (r *recorder) failed(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *recorder) ask(context.Context, *pb.Command) (*pb.Result, error) {
	err := fmt.Errorf("gradwire: a program cannot wait for values while it is recorded")
	r.failed(err)
	return nil, err
}

func (r *recorder) wait(context.Context) error   { return nil }
func (r *recorder) release(uint64)               {}
func (r *recorder) takeFailure() error           { return nil }
func (r *recorder) origin(failure *Error) *Error { return failure }
