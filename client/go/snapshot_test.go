package gradwire_test

import (
	"testing"
	"time"

	gradwire "github.com/gradwire/gradwire/client/go"
	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

func TestASnapshotGoesOnWhereItWasSaved(t *testing.T) {
	session, ctx, name := connect(t), t.Context(), "go-snapshot"
	w := gradwire.FromSlice(session, []float32{1, 2, 3}).SetRequiresGrad(true)
	loss := w.Mul(w).Sum()
	err := session.Save(ctx, name, map[string]*gradwire.Tensor{"w": w, "loss": loss, "again": w}, time.Minute)
	if gradwire.ReasonOf(err) == pb.Reason_REASON_NOT_SUPPORTED {
		t.Skip("the server has no folder for snapshots")
	}
	if err != nil {
		t.Fatal(err)
	}
	session.NoGrad(func() { w.MulInPlace(100) }) // after the snapshot
	again, tensors, err := gradwire.Restore(ctx, serverAddress(t), name)
	if err != nil {
		t.Fatal(err)
	}
	if err := tensors["loss"].Backward(ctx); err != nil { // the graph was saved, too
		t.Fatal(err)
	}
	check(t, tensors["w"].Grad(), 2, 4, 6)
	check(t, tensors["again"], 1, 2, 3)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := session.DeleteSnapshot(ctx, name); err != nil {
		t.Fatal(err)
	}
	if _, _, err := gradwire.Restore(ctx, serverAddress(t), name); gradwire.ReasonOf(err) != pb.Reason_REASON_SNAPSHOT_NOT_FOUND {
		t.Error(err)
	}
	other := connect(t)
	if err := session.Save(ctx, name, map[string]*gradwire.Tensor{"x": other.Ones([]int{1})}, 0); err == nil {
		t.Error("a tensor of another session was saved")
	}
}

func TestASnapshotIsRestoredAtTheServerThatTheFirstOneNames(t *testing.T) {
	moving, session, ctx, name := fromEnvironment(t, "GRADWIRE_MOVING"), connect(t), t.Context(), "go-placed"
	w := session.Ones([]int{2})
	if err := session.Save(ctx, name, map[string]*gradwire.Tensor{"w": w}, time.Minute); err != nil {
		t.Fatal(err)
	}
	again, tensors, err := gradwire.Restore(ctx, moving, name)
	if err != nil {
		t.Fatal(err)
	}
	check(t, tensors["w"], 1, 1)
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if err := session.DeleteSnapshot(ctx, name); err != nil {
		t.Fatal(err)
	}
}
