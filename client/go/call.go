package gradwire

import (
	"context"
	"encoding/binary"
	"math"
	"runtime"
	"strings"
	"unicode/utf8"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// Operand is a *Tensor or a number: an int, int64, float32, float64, bool, complex64, complex128, or a Number of a program.
type Operand = any

// Number is a placeholder for a floating-point number in a program; see Session.Trace.
type Number uint32

// IndexItem is one item of an index expression; see At, Range, From, Until, All, Ellipsis, NewAxis and Pick.
type IndexItem struct {
	item   *pb.IndexItem
	tensor *Tensor
}

// Ptr returns a pointer to a value, for optional fields of options.
func Ptr[T any](value T) *T { return &value }

type argKind byte

const (
	kindNone argKind = iota
	kindTensor
	kindTensors
	kindFloat
	kindInteger
	kindBoolean
	kindString
	kindDtype
	kindIntegers
	kindFloats
	kindComplex
	kindIndex
	kindNumber
)

// arg is an argument. Ids and floats are in bits, so that a prepared call is made without a message.
type arg struct {
	name  string
	kind  argKind
	bits  uint64
	text  string
	ids   []uint64
	ints  []int
	reals []float64
	items []IndexItem
	pair  complex128
	one   *Tensor
	held  []*Tensor // kept alive until the call is sent: a release must follow it
}

// Call collects the arguments of an op. The functions of this module use it; use it for an op that has none, or whose
// name is known only at run time.
type Call struct {
	op      string
	session *Session
	first   *Tensor
	args    []arg
	room    [6]arg
	err     error
}

// NewCall begins a call. The session may be nil if a tensor is among the arguments.
func NewCall(session *Session, op string) *Call {
	call := &Call{op: op, session: session}
	call.args = call.room[:0]
	call.checkText(op)
	return call
}

// checkText refuses what no message can hold: a batch that cannot be encoded would stop the session.
func (c *Call) checkText(text string) {
	if !utf8.ValidString(text) {
		c.fail(refusal(ReasonArgumentValue, "", "%q is not valid UTF-8", text))
	}
}

func (c *Call) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// id checks a tensor and returns its id.
func (c *Call) id(name string, tensor *Tensor) uint64 {
	if tensor.err != nil {
		c.fail(tensor.err)
		return 0
	}
	if c.session == nil {
		c.session = tensor.session
	} else if c.session != tensor.session {
		c.fail(refusal(ReasonArgumentValue, c.op, "%s: the tensor belongs to another session", name))
	}
	return tensor.id
}

// Tensor adds a tensor; nil is None. A name of "" means by place.
func (c *Call) Tensor(name string, tensor *Tensor) *Call {
	if tensor == nil {
		return c.None(name)
	}
	id := c.id(name, tensor)
	if c.first == nil {
		c.first = tensor
	}
	c.args = append(c.args, arg{name: name, kind: kindTensor, bits: id, one: tensor})
	return c
}

// Tensors adds a list of tensors.
func (c *Call) Tensors(name string, tensors []*Tensor) *Call {
	ids := make([]uint64, len(tensors))
	for i, tensor := range tensors {
		if tensor == nil {
			c.fail(refusal(ReasonArgumentType, c.op, "%s[%d] is nil", name, i))
			continue
		}
		ids[i] = c.id(name, tensor)
	}
	c.args = append(c.args, arg{name: name, kind: kindTensors, ids: ids, held: tensors})
	return c
}

// Operand adds a tensor or a number.
func (c *Call) Operand(name string, value Operand) *Call {
	if tensor, ok := value.(*Tensor); ok {
		return c.Tensor(name, tensor)
	}
	return c.Number(name, value)
}

// Number adds a number of any kind, or a string where the op takes one in its place.
func (c *Call) Number(name string, value any) *Call {
	switch x := value.(type) {
	case nil:
		return c.None(name)
	case float64:
		return c.Float(name, x)
	case float32:
		return c.Float(name, float64(x))
	case int:
		return c.Integer(name, x)
	case int64:
		return c.Integer(name, int(x))
	case int32:
		return c.Integer(name, int(x))
	case bool:
		return c.Boolean(name, x)
	case complex128:
		return c.Complex(name, x)
	case complex64:
		return c.Complex(name, complex128(x))
	case string:
		return c.String(name, x)
	case Number:
		c.args = append(c.args, arg{name: name, kind: kindNumber, bits: uint64(x)})
		return c
	}
	c.fail(refusal(ReasonArgumentType, c.op, "%s must be a tensor or a number, not %T", name, value))
	return c
}

// None adds None.
func (c *Call) None(name string) *Call {
	c.args = append(c.args, arg{name: name, kind: kindNone})
	return c
}

// Float adds a float.
func (c *Call) Float(name string, value float64) *Call {
	c.args = append(c.args, arg{name: name, kind: kindFloat, bits: math.Float64bits(value)})
	return c
}

// Integer adds an integer.
func (c *Call) Integer(name string, value int) *Call {
	c.args = append(c.args, arg{name: name, kind: kindInteger, bits: uint64(value)})
	return c
}

// Boolean adds a bool.
func (c *Call) Boolean(name string, value bool) *Call {
	a := arg{name: name, kind: kindBoolean}
	if value {
		a.bits = 1
	}
	c.args = append(c.args, a)
	return c
}

// Complex adds a complex number.
func (c *Call) Complex(name string, value complex128) *Call {
	c.args = append(c.args, arg{name: name, kind: kindComplex, pair: value})
	return c
}

// String adds a string.
func (c *Call) String(name, value string) *Call {
	c.checkText(value)
	c.args = append(c.args, arg{name: name, kind: kindString, text: value})
	return c
}

// DType adds an element type.
func (c *Call) DType(name string, value DType) *Call {
	c.args = append(c.args, arg{name: name, kind: kindDtype, bits: uint64(value)})
	return c
}

// Integers adds a list of integers.
func (c *Call) Integers(name string, values []int) *Call {
	c.args = append(c.args, arg{name: name, kind: kindIntegers, ints: values})
	return c
}

// Floats adds a list of floats.
func (c *Call) Floats(name string, values []float64) *Call {
	c.args = append(c.args, arg{name: name, kind: kindFloats, reals: values})
	return c
}

// Index adds an index expression.
func (c *Call) Index(name string, items []IndexItem) *Call {
	for _, each := range items {
		if each.tensor != nil {
			c.id(name, each.tensor)
		}
	}
	c.args = append(c.args, arg{name: name, kind: kindIndex, items: items})
	return c
}

// run sends the call with fresh ids for its results.
func (c *Call) run(results int) []*Tensor {
	made := make([]*Tensor, results)
	if c.err == nil && c.session == nil {
		c.err = refusal(ReasonArgumentType, c.op, "a call without a session needs a tensor")
	}
	if c.err != nil {
		if c.session != nil {
			c.session.sink.failed(c.err)
		}
		for i := range made {
			made[i] = &Tensor{session: c.session, err: c.err}
		}
		return made
	}
	for i := range made {
		made[i] = c.session.newTensor()
	}
	c.session.sink.op(c, c.session.gradMode(), made)
	runtime.KeepAlive(c)
	return made
}

// One applies an op with one result.
func (c *Call) One() *Tensor {
	if strings.HasSuffix(c.op, "_") {
		return c.InPlace()
	}
	return c.run(1)[0]
}

// Two applies an op with two results.
func (c *Call) Two() (*Tensor, *Tensor) {
	made := c.run(2)
	return made[0], made[1]
}

// Several applies an op with as many results as given.
func (c *Call) Several(count int) []*Tensor { return c.run(count) }

// InPlace applies an in-place form, and returns its first tensor.
func (c *Call) InPlace() *Tensor {
	c.run(0)
	if c.err != nil {
		return &Tensor{session: c.session, err: c.err}
	}
	return c.first
}

// List applies an op that returns a list. It waits, because only the answer has the list's length.
func (c *Call) List(ctx context.Context) ([]*Tensor, error) {
	if c.err == nil && c.session == nil {
		c.err = refusal(ReasonArgumentType, c.op, "a call without a session needs a tensor")
	}
	if c.err != nil {
		return nil, c.err
	}
	request := c.request(c.session.gradMode(), nil)
	result, err := c.session.ask(ctx, &pb.Command{Command: &pb.Command_Op{Op: request}})
	runtime.KeepAlive(c)
	if err != nil {
		return nil, err
	}
	made := make([]*Tensor, len(result.GetOp().GetOutputs()))
	for i, spec := range result.GetOp().GetOutputs() {
		made[i] = c.session.adopt(spec.GetId())
	}
	return made, nil
}

// request is the call as a message.
func (c *Call) request(mode pb.GradMode, outputs []uint64) *pb.OpRequest {
	request := &pb.OpRequest{Op: c.op, Args: make([]*pb.Argument, len(c.args)), Outputs: outputs, GradMode: mode}
	for i := range c.args {
		request.Args[i] = c.args[i].message()
	}
	return request
}

func (a *arg) message() *pb.Argument {
	made := &pb.Argument{Name: a.name}
	switch a.kind {
	case kindNone:
		made.Kind = &pb.Argument_None{None: &pb.NoneValue{}}
	case kindTensor:
		made.Kind = &pb.Argument_Tensor{Tensor: a.bits}
	case kindTensors:
		made.Kind = &pb.Argument_Tensors{Tensors: &pb.TensorList{Ids: a.ids}}
	case kindFloat:
		made.Kind = &pb.Argument_Float{Float: math.Float64frombits(a.bits)}
	case kindInteger:
		made.Kind = &pb.Argument_Integer{Integer: int64(a.bits)}
	case kindBoolean:
		made.Kind = &pb.Argument_Boolean{Boolean: a.bits != 0}
	case kindString:
		made.Kind = &pb.Argument_String_{String_: a.text}
	case kindDtype:
		made.Kind = &pb.Argument_Dtype{Dtype: pb.Dtype(a.bits)}
	case kindIntegers:
		made.Kind = &pb.Argument_Integers{Integers: &pb.IntList{Values: wide(a.ints)}}
	case kindFloats:
		made.Kind = &pb.Argument_Floats{Floats: &pb.DoubleList{Values: a.reals}}
	case kindComplex:
		made.Kind = &pb.Argument_Complex{Complex: &pb.Complex{Real: real(a.pair), Imag: imag(a.pair)}}
	case kindIndex:
		index := &pb.Index{}
		for _, each := range a.items {
			index.Items = append(index.Items, each.item)
		}
		made.Kind = &pb.Argument_Index{Index: index}
	case kindNumber:
		made.Kind = &pb.Argument_Number{Number: uint32(a.bits)}
	}
	return made
}

// key appends what two calls must have in common to be calls of one prepared op: all but ids and floats. It says
// whether the op can be prepared.
func (c *Call) key(key []byte, mode pb.GradMode, results int) ([]byte, bool) {
	key = binary.LittleEndian.AppendUint32(append(append(key, c.op...), 0, byte(mode)), uint32(results))
	for i := range c.args {
		a := &c.args[i]
		key = append(append(key, byte(a.kind)), a.name...)
		key = append(key, 0)
		switch a.kind {
		case kindTensor, kindFloat:
		case kindTensors:
			key = binary.LittleEndian.AppendUint32(key, uint32(len(a.ids)))
		case kindString:
			key = append(append(key, a.text...), 0)
		case kindIntegers:
			key = binary.LittleEndian.AppendUint32(key, uint32(len(a.ints)))
			for _, value := range a.ints {
				key = binary.LittleEndian.AppendUint64(key, uint64(value))
			}
		case kindFloats, kindComplex, kindIndex:
			return key, false // rare, and sent as they are
		default:
			key = binary.LittleEndian.AppendUint64(key, a.bits)
		}
	}
	return key, true
}

// words appends a prepared call: the op's number, then its places.
func (c *Call) words(words []byte, number uint32, made []*Tensor) []byte {
	words = binary.LittleEndian.AppendUint64(words, uint64(number))
	for i := range c.args {
		a := &c.args[i]
		switch a.kind {
		case kindTensor, kindFloat:
			words = binary.LittleEndian.AppendUint64(words, a.bits)
		case kindTensors:
			for _, id := range a.ids {
				words = binary.LittleEndian.AppendUint64(words, id)
			}
		}
	}
	for _, tensor := range made {
		words = binary.LittleEndian.AppendUint64(words, tensor.id)
	}
	return words
}

func wide(values []int) []int64 {
	made := make([]int64, len(values))
	for i, value := range values {
		made[i] = int64(value)
	}
	return made
}

func ids(tensors []*Tensor) []uint64 {
	made := make([]uint64, len(tensors))
	for i, tensor := range tensors {
		if tensor != nil {
			made[i] = tensor.id
		}
	}
	return made
}
