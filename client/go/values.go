package gradwire

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unsafe"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// DType is an element type.
type DType = pb.Dtype

// The element types, by PyTorch's names.
const (
	Float32    = pb.Dtype_DTYPE_FLOAT32
	Float64    = pb.Dtype_DTYPE_FLOAT64
	Float16    = pb.Dtype_DTYPE_FLOAT16
	BFloat16   = pb.Dtype_DTYPE_BFLOAT16
	Int8       = pb.Dtype_DTYPE_INT8
	Int16      = pb.Dtype_DTYPE_INT16
	Int32      = pb.Dtype_DTYPE_INT32
	Int64      = pb.Dtype_DTYPE_INT64
	Uint8      = pb.Dtype_DTYPE_UINT8
	Bool       = pb.Dtype_DTYPE_BOOL
	Complex64  = pb.Dtype_DTYPE_COMPLEX64
	Complex128 = pb.Dtype_DTYPE_COMPLEX128
	Uint16     = pb.Dtype_DTYPE_UINT16
	Uint32     = pb.Dtype_DTYPE_UINT32
	Uint64     = pb.Dtype_DTYPE_UINT64
)

// Element is a Go type that is an element type of tensors.
type Element interface {
	float32 | float64 | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | bool | complex64 | complex128
}

var elementSizes = map[DType]int{
	Float32: 4, Float64: 8, Float16: 2, BFloat16: 2, Int8: 1, Int16: 2, Int32: 4, Int64: 8, Uint8: 1, Bool: 1,
	Complex64: 8, Complex128: 16, Uint16: 2, Uint32: 4, Uint64: 8,
}

func dtypeOf[T Element]() DType {
	switch any(*new(T)).(type) {
	case float32:
		return Float32
	case float64:
		return Float64
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case bool:
		return Bool
	case complex64:
		return Complex64
	}
	return Complex128
}

func dtypeName(dtype DType) string {
	return strings.ToLower(strings.TrimPrefix(dtype.String(), "DTYPE_"))
}

// FromSlice makes a leaf of values in row-major order. Without a shape it has one dimension.
func FromSlice[T Element](s *Session, values []T, shape ...int) *Tensor {
	if len(shape) == 0 {
		shape = []int{len(values)}
	}
	return s.FromBytes(dtypeOf[T](), bytesOf(values), shape...)
}

// Scalar makes a leaf of zero dimensions.
func Scalar[T Element](s *Session, value T) *Tensor {
	return s.FromBytes(dtypeOf[T](), bytesOf([]T{value}))
}

// FromBytes makes a leaf of little-endian bytes in row-major order. Large values travel in chunks, and FromBytes returns
// when the server has them.
func (s *Session) FromBytes(dtype DType, data []byte, shape ...int) *Tensor {
	elements := 1
	for _, size := range shape {
		elements *= size
	}
	if expected := elements * elementSizes[dtype]; expected != len(data) {
		err := refusal(pb.Reason_REASON_PAYLOAD_SIZE, "", "shape %v of %s has %d bytes, not %d", shape, dtypeName(dtype),
			expected, len(data))
		s.sink.failed(err)
		return &Tensor{session: s, err: err}
	}
	request := &pb.CreateRequest{GradMode: s.gradMode()}
	if s.writer != nil && uint64(len(data)) > s.opened.GetLimits().GetMaxInlineBytes() {
		transfer, err := s.upload(context.Background(), data)
		if err != nil {
			s.sink.failed(err)
			return &Tensor{session: s, err: err}
		}
		transfer.Dtype, transfer.Shape = dtype, wide(shape)
		request.Source = &pb.CreateRequest_Transfer{Transfer: transfer}
	} else {
		// The command waits for its batch, while the caller may change the bytes.
		payload := &pb.Payload{Dtype: dtype, Shape: wide(shape), Data: bytes.Clone(data)}
		request.Source = &pb.CreateRequest_Payload{Payload: payload}
	}
	made := s.newTensor()
	request.Id = made.id
	s.sink.send(&pb.Command{Command: &pb.Command_Create{Create: request}})
	return made
}

// Payload is a tensor's values: little-endian, row-major, without gaps.
type Payload struct {
	DType DType
	Shape []int
	Data  []byte
}

// Read fetches the values. It waits, and returns the first refusal since the last wait or read.
func (t *Tensor) Read(ctx context.Context) (Payload, error) {
	request := &pb.ReadRequest{Tensor: t.id}
	result, err := t.ask(ctx, &pb.Command{Command: &pb.Command_Read{Read: request}})
	if err != nil {
		return Payload{}, err
	}
	if transfer := result.GetRead().GetTransfer(); transfer != nil {
		data, err := t.session.download(ctx, transfer)
		return Payload{transfer.GetDtype(), narrow(transfer.GetShape()), data}, err
	}
	payload := result.GetRead().GetPayload()
	return Payload{payload.GetDtype(), narrow(payload.GetShape()), payload.GetData()}, nil
}

// Values reads a tensor whose element type is T. It waits.
func Values[T Element](ctx context.Context, t *Tensor) ([]T, error) {
	payload, err := t.Read(ctx)
	if err != nil {
		return nil, err
	}
	if wanted := dtypeOf[T](); payload.DType != wanted {
		return nil, refusal(ReasonDtype, "", "the tensor has %s, not %s", dtypeName(payload.DType), dtypeName(wanted))
	}
	return viewOf[T](payload.Data), nil
}

// Float64s reads a tensor of any real element type and converts it. It waits.
func (t *Tensor) Float64s(ctx context.Context) ([]float64, error) {
	payload, err := t.Read(ctx)
	if err != nil {
		return nil, err
	}
	return payload.float64s()
}

// Float32s reads a tensor of any real element type and converts it. It waits.
func (t *Tensor) Float32s(ctx context.Context) ([]float32, error) {
	payload, err := t.Read(ctx)
	if err != nil || payload.DType == Float32 {
		return viewOf[float32](payload.Data), err
	}
	values, err := payload.float64s()
	return converted[float32](values), err
}

// Item reads a tensor of one element. It waits.
func (t *Tensor) Item(ctx context.Context) (float64, error) {
	values, err := t.Float64s(ctx)
	if err != nil {
		return 0, err
	}
	if len(values) != 1 {
		return 0, refusal(pb.Reason_REASON_RUNTIME, "", "a Tensor with %d elements cannot be converted to Scalar", len(values))
	}
	return values[0], nil
}

func (p Payload) float64s() ([]float64, error) {
	switch p.DType {
	case Float64:
		return sliceOf[float64](p.Data), nil
	case Float32:
		return converted[float64](sliceOf[float32](p.Data)), nil
	case Int8:
		return converted[float64](sliceOf[int8](p.Data)), nil
	case Int16:
		return converted[float64](sliceOf[int16](p.Data)), nil
	case Int32:
		return converted[float64](sliceOf[int32](p.Data)), nil
	case Int64:
		return converted[float64](sliceOf[int64](p.Data)), nil
	case Uint8, Bool:
		return converted[float64](p.Data), nil
	case Uint16:
		return converted[float64](sliceOf[uint16](p.Data)), nil
	case Uint32:
		return converted[float64](sliceOf[uint32](p.Data)), nil
	case Uint64:
		return converted[float64](sliceOf[uint64](p.Data)), nil
	case BFloat16, Float16:
		made := make([]float64, len(p.Data)/2)
		for i, half := range sliceOf[uint16](p.Data) {
			if p.DType == BFloat16 {
				made[i] = float64(math.Float32frombits(uint32(half) << 16))
			} else {
				made[i] = fromHalf(half)
			}
		}
		return made, nil
	}
	return nil, refusal(ReasonDtype, "", "values of %s cannot be converted to real numbers", dtypeName(p.DType))
}

// fromHalf converts an IEEE 754 binary16.
func fromHalf(half uint16) float64 {
	sign, exponent, fraction := 1.0, int(half>>10)&31, float64(half&1023)
	if half>>15 != 0 {
		sign = -1
	}
	switch {
	case exponent == 31 && fraction != 0:
		return math.NaN()
	case exponent == 31:
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

type realNumber interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

func converted[T, F realNumber](values []F) []T {
	made := make([]T, len(values))
	for i, value := range values {
		made[i] = T(value)
	}
	return made
}

// littleEndian says whether values in memory have the protocol's order of bytes.
var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// bytesOf gives values as little-endian bytes, without a copy where memory has that order.
func bytesOf[T Element](values []T) []byte {
	if littleEndian && len(values) > 0 {
		size := int(unsafe.Sizeof(values[0]))
		return unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), size*len(values))
	}
	made, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		panic(fmt.Sprintf("gradwire: %T has no fixed size: %v", values, err)) // no Element is such
	}
	return made
}

// viewOf makes values of little-endian bytes that nothing else holds, without a copy where they lie as values do.
func viewOf[T Element](data []byte) []T {
	size := unsafe.Sizeof(*new(T))
	if !littleEndian || len(data) == 0 || uintptr(unsafe.Pointer(&data[0]))%size != 0 {
		return sliceOf[T](data)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&data[0])), len(data)/int(size))
}

// sliceOf copies little-endian bytes to values.
func sliceOf[T Element](data []byte) []T {
	size := int(unsafe.Sizeof(*new(T)))
	made := make([]T, len(data)/size)
	if littleEndian && len(made) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&made[0])), size*len(made)), data)
		return made
	}
	if _, err := binary.Decode(data, binary.LittleEndian, made); err != nil {
		panic(fmt.Sprintf("gradwire: %d bytes are no %T: %v", len(data), made, err)) // made has the size of data
	}
	return made
}
