package gradwire

import (
	"context"
	"runtime"
	"sync/atomic"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// Tensor names a tensor of a session. Its values are on the server, and may not be computed yet. A tensor that could not
// be made has an error, which every read of it returns, and every tensor made from it has the error, too.
type Tensor struct {
	session *Session
	id      uint64
	err     error
	kept    atomic.Bool
	handle  *handle
	cleanup runtime.Cleanup
}

// Description is what the server tells of a tensor without its values.
type Description struct {
	DType        DType
	Shape        []int
	Device       string
	RequiresGrad bool
	IsLeaf       bool
	GradFn       string // name of the node that made it, as in PyTorch; empty for a leaf
	RetainsGrad  bool
	IsView       bool
	Version      uint64 // number of in-place changes of its bytes
}

// Session returns the tensor's session.
func (t *Tensor) Session() *Session { return t.session }

// Err returns why the tensor could not be made, as far as it is known without waiting.
func (t *Tensor) Err() error { return t.err }

// Keep lets the tensor live on after the Tidy in which it was made. It returns the tensor.
func (t *Tensor) Keep() *Tensor {
	t.kept.Store(true)
	return t
}

// Release frees the tensor on the server, unless a graph or another tensor needs its values. Use it no more.
func (t *Tensor) Release() {
	if t.handle != nil {
		t.cleanup.Stop()
		t.handle.release()
	}
}

func (t *Tensor) send(command *pb.Command) {
	if t.err == nil {
		t.session.sink.send(command)
	} else {
		t.fails(t.err)
	}
	runtime.KeepAlive(t)
}

func (t *Tensor) ask(ctx context.Context, command *pb.Command) (*pb.Result, error) {
	if t.err != nil {
		return nil, t.err
	}
	result, err := t.session.ask(ctx, command)
	runtime.KeepAlive(t)
	return result, err
}

// Describe asks for shape, dtype and flags. It waits.
func (t *Tensor) Describe(ctx context.Context) (Description, error) {
	request := &pb.DescribeRequest{Tensors: []uint64{t.id}}
	result, err := t.ask(ctx, &pb.Command{Command: &pb.Command_Describe{Describe: request}})
	if err != nil {
		return Description{}, err
	}
	spec := result.GetDescribe().GetTensors()[0]
	return Description{
		DType: spec.GetDtype(), Shape: narrow(spec.GetShape()), Device: spec.GetDevice(),
		RequiresGrad: spec.GetRequiresGrad(), IsLeaf: spec.GetIsLeaf(), GradFn: spec.GetGradFn(),
		RetainsGrad: spec.GetRetainsGrad(), IsView: spec.GetIsView(), Version: spec.GetVersion(),
	}, nil
}

// Shape asks for the sizes of the dimensions. It waits.
func (t *Tensor) Shape(ctx context.Context) ([]int, error) {
	description, err := t.Describe(ctx)
	return description.Shape, err
}

// SetRequiresGrad sets a leaf's flag (requires_grad_). It returns the tensor.
func (t *Tensor) SetRequiresGrad(requires bool) *Tensor {
	request := &pb.SetRequiresGradRequest{Tensor: t.id, RequiresGrad: requires}
	t.send(&pb.Command{Command: &pb.Command_SetRequiresGrad{SetRequiresGrad: request}})
	return t
}

// RetainGrad makes a non-leaf keep its gradient in the next backward. It returns the tensor.
func (t *Tensor) RetainGrad() *Tensor {
	request := &pb.RetainGradRequest{Tensor: t.id}
	t.send(&pb.Command{Command: &pb.Command_RetainGrad{RetainGrad: request}})
	return t
}

// Grad is the tensor's gradient. Reading it fails where there is none: see HasGrad.
func (t *Tensor) Grad() *Tensor {
	if t.err != nil {
		return &Tensor{session: t.session, err: t.err}
	}
	made := t.session.newTensor()
	t.send(&pb.Command{Command: &pb.Command_Grad{Grad: &pb.GradRequest{Tensor: t.id, Id: made.id}}})
	return made
}

// HasGrad asks whether the tensor has a gradient. It waits.
func (t *Tensor) HasGrad(ctx context.Context) (bool, error) {
	if t.err != nil {
		return false, t.err
	}
	made := t.session.newTensor()
	defer made.Release()
	request := &pb.GradRequest{Tensor: t.id, Id: made.id}
	result, err := t.ask(ctx, &pb.Command{Command: &pb.Command_Grad{Grad: request}})
	return result.GetGrad().GetGrad() != nil, err
}

// mistakeOf says why another tensor cannot be used with this one: an id means another tensor in another session.
func (t *Tensor) mistakeOf(name string, other *Tensor) error {
	if other.err == nil && other.session != t.session {
		return refusal(ReasonArgumentValue, "", "%s: the tensor belongs to another session", name)
	}
	return other.err
}

// fails notes a mistake for the next wait. A tensor that could not be made may have no session.
func (t *Tensor) fails(err error) {
	if t.session != nil {
		t.session.sink.failed(err)
	}
}

// SetGrad sets the gradient; nil clears it.
func (t *Tensor) SetGrad(grad *Tensor) {
	request := &pb.SetGradRequest{Tensor: t.id}
	if grad != nil {
		if err := t.mistakeOf("SetGrad", grad); err != nil {
			t.fails(err)
			return
		}
		request.Grad = grad.id
	}
	t.send(&pb.Command{Command: &pb.Command_SetGrad{SetGrad: request}})
	runtime.KeepAlive(grad)
}

// ZeroGrad clears the gradient.
func (t *Tensor) ZeroGrad() { t.SetGrad(nil) }

// SetData makes the tensor share another's values; no graph records it (t.data = data).
func (t *Tensor) SetData(data *Tensor) {
	if err := t.mistakeOf("SetData", data); err != nil {
		t.fails(err)
		return
	}
	request := &pb.SetDataRequest{Tensor: t.id, Data: data.id}
	t.send(&pb.Command{Command: &pb.Command_SetData{SetData: request}})
	runtime.KeepAlive(data)
}

// Index takes a part: t.Index(gradwire.At(0), gradwire.Range(1, 3)) is t[0, 1:3].
func (t *Tensor) Index(items ...IndexItem) *Tensor {
	return NewCall(nil, "getitem").Tensor("", t).Index("", items).One()
}

// SetIndex assigns to a part: t[items] = value. It returns the tensor.
func (t *Tensor) SetIndex(value Operand, items ...IndexItem) *Tensor {
	return NewCall(nil, "setitem_").Tensor("", t).Index("", items).Operand("", value).InPlace()
}

// At selects one position of a dimension; negative ones count from the end.
func At(position int) IndexItem {
	return IndexItem{item: &pb.IndexItem{Item: &pb.IndexItem_Integer{Integer: int64(position)}}}
}

// Range takes positions from start up to, but not including, stop.
func Range(start, stop int) IndexItem { return Slice(&start, &stop, nil) }

// From takes positions from start on.
func From(start int) IndexItem { return Slice(&start, nil, nil) }

// Until takes positions before stop.
func Until(stop int) IndexItem { return Slice(nil, &stop, nil) }

// All takes a whole dimension.
func All() IndexItem { return Slice(nil, nil, nil) }

// Slice is start:stop:step; nil stands for a missing bound.
func Slice(start, stop, step *int) IndexItem {
	return IndexItem{item: &pb.IndexItem{Item: &pb.IndexItem_Slice{
		Slice: &pb.Slice{Start: wider(start), Stop: wider(stop), Step: wider(step)},
	}}}
}

// Ellipsis stands for all dimensions that the other items do not name.
func Ellipsis() IndexItem {
	return IndexItem{item: &pb.IndexItem{Item: &pb.IndexItem_Ellipsis{Ellipsis: true}}}
}

// NewAxis is a new dimension of size 1.
func NewAxis() IndexItem {
	return IndexItem{item: &pb.IndexItem{Item: &pb.IndexItem_NewAxis{NewAxis: true}}}
}

// Pick takes the positions that a tensor of integers lists, or where a tensor of bools is true.
func Pick(tensor *Tensor) IndexItem {
	return IndexItem{item: &pb.IndexItem{Item: &pb.IndexItem_Tensor{Tensor: tensor.id}}, tensor: tensor}
}

func wider(value *int) *int64 {
	if value == nil {
		return nil
	}
	made := int64(*value)
	return &made
}

func narrow(shape []int64) []int {
	made := make([]int, len(shape))
	for i, size := range shape {
		made[i] = int(size)
	}
	return made
}
