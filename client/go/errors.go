package gradwire

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// Reason says why a command was refused. The set is closed; gradwirepb has all of them as Reason_REASON_….
type Reason = pb.Reason

// Reasons that programs ask for most often.
const (
	ReasonShape             = pb.Reason_REASON_SHAPE
	ReasonDtype             = pb.Reason_REASON_DTYPE
	ReasonArgumentType      = pb.Reason_REASON_ARGUMENT_TYPE
	ReasonArgumentValue     = pb.Reason_REASON_ARGUMENT_VALUE
	ReasonGraphFreed        = pb.Reason_REASON_GRAPH_FREED
	ReasonLeafInPlace       = pb.Reason_REASON_LEAF_IN_PLACE
	ReasonVersionConflict   = pb.Reason_REASON_VERSION_CONFLICT
	ReasonDeviceUnavailable = pb.Reason_REASON_DEVICE_UNAVAILABLE
	ReasonMemoryLimit       = pb.Reason_REASON_MEMORY_LIMIT
	ReasonSessionExpired    = pb.Reason_REASON_SESSION_EXPIRED
	ReasonUnavailable       = pb.Reason_REASON_UNAVAILABLE
)

// ErrClosed is the error of every use of a closed session.
var ErrClosed = errors.New("gradwire: the session is closed")

// Error is a refusal by the server, or a mistake that this package found before it sent anything. Use errors.As:
//
//	var refusal *gradwire.Error
//	if errors.As(err, &refusal) && refusal.Reason == gradwire.ReasonShape { … }
type Error struct {
	// Reason says what is wrong, for programs.
	Reason Reason
	// Code is the gRPC status code that belongs to the reason.
	Code codes.Code
	// Message says what is wrong, for people, in PyTorch's words where PyTorch has some.
	Message string
	// Op is the name of the refused op; empty if there is none.
	Op string
	// Argument is the parameter or field at fault; empty if it is not one alone.
	Argument string
	// Shape is the shape of the op's first tensor; nil if not told.
	Shape []int
	// Metadata has all details. Its keys depend on the reason.
	Metadata map[string]string
	// RootSeq is the command that failed first, if this one only depends on it.
	RootSeq uint64
}

// Error returns the message and the reason.
func (e *Error) Error() string {
	name := strings.TrimPrefix(e.Reason.String(), "REASON_")
	if e.Op != "" {
		return fmt.Sprintf("gradwire: %s: %s (%s)", e.Op, e.Message, name)
	}
	return fmt.Sprintf("gradwire: %s (%s)", e.Message, name)
}

// ReasonOf returns the reason of a refusal, or REASON_UNSPECIFIED for other errors and nil.
func ReasonOf(err error) Reason {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal.Reason
	}
	return pb.Reason_REASON_UNSPECIFIED
}

func refusal(reason Reason, op, format string, args ...any) *Error {
	return &Error{Reason: reason, Code: codes.InvalidArgument, Message: fmt.Sprintf(format, args...), Op: op}
}

func fromProto(e *pb.Error) *Error {
	meta := e.GetMetadata()
	return &Error{
		Reason: e.GetReason(), Code: codes.Code(e.GetCode()), Message: e.GetMessage(), Metadata: meta,
		Op: meta["op"], Argument: meta["argument"], Shape: parseShape(meta["shape"]), RootSeq: e.GetRootSeq(),
	}
}

// parseShape reads "[2, 3]".
func parseShape(text string) []int {
	inside, found := strings.CutPrefix(text, "[")
	inside, closed := strings.CutSuffix(inside, "]")
	if !found || !closed {
		return nil
	}
	shape := []int{}
	for _, part := range strings.FieldsFunc(inside, func(r rune) bool { return r == ',' || r == ' ' }) {
		size, err := strconv.Atoi(part)
		if err != nil {
			return nil
		}
		shape = append(shape, size)
	}
	return shape
}

// fromStatus is the refusal in a call's trailer, or the status without a reason, if the connection failed.
func fromStatus(err error, trailer metadata.MD) *Error {
	if values := trailer.Get("gradwire-error-bin"); len(values) > 0 {
		told := &pb.Error{}
		if proto.Unmarshal([]byte(values[0]), told) == nil {
			return fromProto(told)
		}
	}
	state := status.Convert(err)
	return &Error{Code: state.Code(), Message: state.Message()}
}

// mayRetry says whether the same call may succeed later.
func (e *Error) mayRetry() bool {
	switch e.Reason {
	case pb.Reason_REASON_UNAVAILABLE, pb.Reason_REASON_STREAM_TAKEN, pb.Reason_REASON_SESSION_MOVED:
		return true
	case pb.Reason_REASON_UNSPECIFIED:
		return e.Code != codes.Unimplemented && e.Code != codes.InvalidArgument
	}
	return false
}

// fromContext is a context's error, also if gRPC reported it as a status.
func fromContext(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
