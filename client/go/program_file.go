package gradwire

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// ProgramFile is a model with its programs, as Python's gradwire.export writes it: weights, the optimizer's state, and
// steps such as training and inference.
type ProgramFile struct {
	// Tensors are the file's tensors by name, with their present values.
	Tensors  map[string]*Tensor
	session  *Session
	file     *Tensor
	count    int // of the file's tensors
	programs map[string]*FileProgram
	hashes   [][32]byte // of the programs, in the order of the file
}

// FileProgram is a program of a file. Its tensors and counters are bound; a run gives the other inputs by name.
type FileProgram struct {
	// Name is that in the file.
	Name string
	// Inputs are the names that each run gives.
	Inputs []string
	// Outputs are the names of the results, in order; empty where the file has none.
	Outputs []string
	file    *ProgramFile
	loaded  *pb.LoadedProgram
	places  map[string]int
}

// LoadProgram loads a program file, given its bytes. It waits.
func (s *Session) LoadProgram(ctx context.Context, data []byte) (*ProgramFile, error) {
	f := &ProgramFile{
		Tensors: map[string]*Tensor{}, session: s, file: s.FromBytes(Uint8, data, len(data)).Keep(),
		programs: map[string]*FileProgram{},
	}
	request := &pb.LoadProgramRequest{File: f.file.id}
	result, err := f.file.ask(ctx, &pb.Command{Command: &pb.Command_LoadProgram{LoadProgram: request}})
	if err != nil {
		f.file.Release()
		return nil, err
	}
	for _, each := range result.GetLoadProgram().GetTensors() {
		f.Tensors[each.GetName()] = s.adopt(each.GetSpec().GetId()).Keep()
	}
	for _, each := range result.GetLoadProgram().GetPrograms() {
		program := &FileProgram{Name: each.GetName(), file: f, loaded: each, places: map[string]int{}}
		for place, input := range each.GetSignature() {
			if place >= len(each.GetInputs()) || each.GetInputs()[place] == 0 {
				program.Inputs = append(program.Inputs, input.GetName())
				program.places[input.GetName()] = place
			}
		}
		for _, output := range each.GetOutputs() {
			program.Outputs = append(program.Outputs, output.GetName())
		}
		f.programs[program.Name] = program
		f.hashes = append(f.hashes, [32]byte(each.GetHash()))
	}
	f.count = len(result.GetLoadProgram().GetTensors())
	s.loaded(f.hashes)
	return f, nil
}

// loadAgain registers programs that the server may have forgotten. The tensors that this makes are released.
func (f *ProgramFile) loadAgain() {
	made := make([]*Tensor, f.count)
	for i := range made {
		made[i] = f.session.newTensor()
	}
	request := &pb.LoadProgramRequest{File: f.file.id, Ids: ids(made)}
	f.session.sink.send(&pb.Command{Command: &pb.Command_LoadProgram{LoadProgram: request}})
	for _, tensor := range made {
		tensor.Release()
	}
	f.session.loaded(f.hashes)
}

// Program returns a program of the file by its name; "" is the only one of a file that has one.
func (f *ProgramFile) Program(name string) (*FileProgram, error) {
	if program := f.programs[name]; program != nil {
		return program, nil
	}
	names := f.Names()
	if name == "" && len(names) == 1 {
		return f.programs[names[0]], nil
	}
	return nil, fmt.Errorf("gradwire: the file has no program %q; it has %s", name, strings.Join(names, ", "))
}

// Names returns the names of the file's programs, sorted.
func (f *ProgramFile) Names() []string {
	var names []string
	for name := range f.programs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Save returns the bytes of a file with the present values. It waits.
func (f *ProgramFile) Save(ctx context.Context) ([]byte, error) {
	request := &pb.SaveProgramRequest{File: f.file.id}
	for name, tensor := range f.Tensors {
		if tensor.err != nil {
			return nil, tensor.err
		}
		request.Tensors = append(request.Tensors, &pb.NamedTensor{Name: name, Id: tensor.id})
	}
	made := f.session.newTensor()
	defer made.Release()
	request.Id = made.id
	f.session.sink.send(&pb.Command{Command: &pb.Command_SaveProgram{SaveProgram: request}})
	payload, err := made.Read(ctx)
	return payload.Data, err
}

// Run runs the program with the tensors of this call. Sliced options name inputs by Place. It does not wait: a failure
// surfaces at the next wait or read.
func (p *FileProgram) Run(named map[string]*Tensor, opts ...RunOptions) []*Tensor {
	s := p.file.session
	inputs := make([]*Tensor, 0, len(named))
	request := &pb.RunProgramRequest{Hash: p.loaded.GetHash(), Inputs: p.loaded.GetInputs()}
	var err error
	for name, tensor := range named {
		if tensor == nil {
			err = refusal(ReasonArgumentType, "", "the input %q is nil", name)
			continue
		}
		inputs = append(inputs, tensor)
		request.Named = append(request.Named, &pb.NamedTensor{Name: name, Id: tensor.id})
	}
	slices.SortFunc(request.Named, func(a, b *pb.NamedTensor) int { return strings.Compare(a.GetName(), b.GetName()) })
	if err == nil && len(inputs) > 0 {
		var from *Session
		if from, err = sessionOf("program", inputs); err == nil && from != s {
			err = refusal(ReasonArgumentValue, "", "the inputs belong to another session")
		}
	}
	for name := range named {
		if !utf8.ValidString(name) {
			err = refusal(ReasonArgumentValue, "", "%q is not valid UTF-8", name)
		}
	}
	s.running.Lock()
	defer s.running.Unlock()
	if hash := [32]byte(p.loaded.GetHash()); err == nil {
		if !s.has(hash) {
			p.file.loadAgain()
		}
		s.ran(hash)
	}
	return s.runProgram(request, len(p.loaded.GetOutputs()), inputs, opts, err)
}

// Place returns the place of a named input, for RunOptions.Sliced; -1 if there is none.
func (p *FileProgram) Place(name string) int {
	if place, ok := p.places[name]; ok {
		return place
	}
	return -1
}
