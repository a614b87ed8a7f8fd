package gradwire

import (
	"context"
	"runtime"
	"time"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// Save stores the session as a snapshot of that name: values, gradients, the graph and the random generator. It waits
// for all commands. Restore opens the snapshot, and returns the given tensors by their names. A time to live of 0 takes
// the server's limit. The server needs --state-dir.
func (s *Session) Save(ctx context.Context, name string, tensors map[string]*Tensor, live time.Duration) error {
	request := &pb.SaveSessionRequest{SessionId: s.ID(), Name: name, TtlMs: uint64(live.Milliseconds())}
	for key, tensor := range tensors {
		if tensor.err != nil {
			return tensor.err
		}
		if tensor.session != s {
			return refusal(ReasonArgumentValue, "", "%q is a tensor of another session", key)
		}
		request.Tensors = append(request.Tensors, &pb.NamedTensor{Name: key, Id: tensor.id})
	}
	if err := s.Wait(ctx); err != nil {
		return err
	}
	_, err := retried(ctx, s, s.client.SaveSession, request)
	runtime.KeepAlive(tensors)
	return err
}

// Restore opens a new session from a snapshot, and returns the tensors that were saved under names. Its arguments are
// those of Connect.
func Restore(ctx context.Context, address, name string, opts ...Option) (*Session, map[string]*Tensor, error) {
	var restored *pb.RestoreSessionResponse
	open := func(s *Session, o *options) (*pb.OpenSessionResponse, error) {
		return s.placed(func(follows bool) (_ *pb.OpenSessionResponse, err error) {
			restored, err = retried(ctx, s, s.client.RestoreSession, &pb.RestoreSessionRequest{
				Name: name, Client: o.client, LeaseMs: uint32(o.lease.Milliseconds()), NamedOnly: true,
				FollowsEndpoint: follows, DeviceType: o.device,
			})
			return restored.GetSession(), err
		})
	}
	s, err := begin(address, opts, open)
	if err != nil {
		return nil, nil, err
	}
	tensors := map[string]*Tensor{}
	known := map[uint64]*Tensor{} // a tensor may have several names
	for _, each := range restored.GetTensors() {
		id := each.GetSpec().GetId()
		if known[id] == nil {
			known[id] = s.adopt(id)
		}
		tensors[each.GetName()] = known[id]
	}
	return s, tensors, nil
}

// DeleteSnapshot deletes a snapshot of the caller's on the session's server.
func (s *Session) DeleteSnapshot(ctx context.Context, name string) error {
	_, err := retried(ctx, s, s.client.DeleteSnapshot, &pb.DeleteSnapshotRequest{Name: name})
	return err
}
