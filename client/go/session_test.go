package gradwire_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	gradwire "github.com/gradwire/gradwire/client/go"
	"github.com/gradwire/gradwire/client/go/fft"
	"github.com/gradwire/gradwire/client/go/functional"
	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
	"github.com/gradwire/gradwire/client/go/linalg"
)

func connect(t testing.TB, opts ...gradwire.Option) *gradwire.Session {
	t.Helper()
	session, err := gradwire.Connect(context.Background(), serverAddress(t), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	})
	return session
}

func TestGeneratedOpsAreTheServers(t *testing.T) {
	session := connect(t)
	listed, err := session.Client().ListOps(t.Context(), &pb.ListOpsRequest{KnownHash: gradwire.OpsHash})
	if err != nil {
		t.Fatal(err)
	}
	if listed.GetHash() != gradwire.OpsHash || len(listed.GetOps()) != 0 {
		t.Error("the server has other ops: run `python -m tools.sdk_ops`")
	}
}

func TestValuesAreThoseOfTheCall(t *testing.T) {
	session := connect(t)
	values, data := []float32{1, 2}, []byte{3, 4}
	a := gradwire.FromSlice(session, values)
	b := session.FromBytes(gradwire.Uint8, data, 2)
	values[0], data[0] = 9, 9 // the commands have not been sent
	check(t, a, 1, 2)
	check(t, b, 3, 4)
}

func TestTypedOps(t *testing.T) {
	session, ctx := connect(t), t.Context()
	a := gradwire.FromSlice(session, []float32{3, 1, 2, 6, 5, 4}, 2, 3)
	values, indices := a.Sort(gradwire.SortOptions{Descending: true})
	check(t, values, 3, 2, 1, 6, 5, 4)
	check(t, indices, 0, 2, 1, 0, 1, 2)
	best, at := a.MaxDim(1)
	check(t, best, 3, 6)
	check(t, at, 0, 0)
	check(t, a.Max(), 6)
	check(t, a.Sum(gradwire.SumOptions{Dim: []int{0}}), 9, 6, 6)
	check(t, a.Clamp(gradwire.ClampOptions{Min: 2, Max: 4.5}), 3, 2, 2, 4.5, 4.5, 4)
	check(t, gradwire.Cat([]*gradwire.Tensor{a, a}).Sum(), 42)
	check(t, session.Arange(4), 0, 1, 2, 3)
	check(t, a.Index(gradwire.At(1), gradwire.Range(0, 2)), 6, 5)
	check(t, a.Add(1).SetIndex(0.0, gradwire.All(), gradwire.At(0)), 0, 2, 3, 0, 6, 5)
	check(t, a.Softmax(1).Sum(), 2)
	check(t, functional.LeakyRelu(a.Neg()), -0.03, -0.01, -0.02, -0.06, -0.05, -0.04)
	check(t, linalg.Norm(a), math.Sqrt(91))
	check(t, fft.Fft(a).Abs().Sum(gradwire.SumOptions{Dim: []int{1}}), 6+2*math.Sqrt(3), 15+2*math.Sqrt(3))
	parts, err := a.SplitInt(ctx, 2, gradwire.SplitIntOptions{Dim: 1})
	if err != nil || len(parts) != 2 {
		t.Fatal(parts, err)
	}
	check(t, parts[1], 2, 4)
}

func check(t *testing.T, tensor *gradwire.Tensor, wanted ...float64) {
	t.Helper()
	found, err := tensor.Float64s(t.Context())
	if err != nil {
		t.Error(err)
		return
	}
	if len(found) != len(wanted) {
		t.Errorf("%v instead of %v", found, wanted)
		return
	}
	for i := range wanted {
		if math.Abs(found[i]-wanted[i]) > 1e-4 {
			t.Errorf("%v instead of %v", found, wanted)
			return
		}
	}
}

func TestMistakesHavePyTorchsSentences(t *testing.T) {
	session, ctx := connect(t), t.Context()
	a := gradwire.FromSlice(session, []float32{1, 2, 3, 4, 5, 6}, 2, 3)
	failed := a.Matmul(a)
	_, err := failed.Exp().Float32s(ctx)
	var told *gradwire.Error
	if !errors.As(err, &told) || told.Reason != gradwire.ReasonShape || told.Op != "matmul" {
		t.Fatalf("%+v", err)
	}
	if !strings.Contains(err.Error(), "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)") {
		t.Error(err)
	}
	if len(told.Shape) != 2 || told.Shape[0] != 2 || told.Shape[1] != 3 {
		t.Error(told.Shape)
	}
	err = errors.Join(a.SetRequiresGrad(true).Exp().Backward(ctx), session.Wait(ctx))
	if err == nil || !strings.Contains(err.Error(), "grad can be implicitly created only for scalar outputs") {
		t.Error(err)
	}
	leaf := gradwire.FromSlice(session, []float32{1}).SetRequiresGrad(true)
	leaf.AddInPlace(1)
	err = session.Wait(ctx)
	if gradwire.ReasonOf(err) != gradwire.ReasonLeafInPlace ||
		!strings.Contains(err.Error(), "a leaf Variable that requires grad is being used in an in-place operation") {
		t.Error(err)
	}
	if err := session.Wait(ctx); err != nil {
		t.Error("a failure is told once:", err)
	}
	check(t, a.Sum(), 21)
	if _, err := failed.Read(ctx); gradwire.ReasonOf(err) != gradwire.ReasonShape {
		t.Error("a failed tensor fails with the first reason:", err)
	}
}

func TestMistakesFoundHere(t *testing.T) {
	session, other, ctx := connect(t), connect(t), t.Context()
	a, b := gradwire.FromSlice(session, []float32{1}), gradwire.FromSlice(other, []float32{1})
	for name, mistake := range map[string]func() *gradwire.Tensor{
		"another session": func() *gradwire.Tensor { return a.Add(b) },
		"no number":       func() *gradwire.Tensor { return a.Mul(struct{}{}) },
		"shape":           func() *gradwire.Tensor { return gradwire.FromSlice(session, []float32{1, 2}, 3) },
	} {
		if _, err := mistake().Exp().Float32s(ctx); gradwire.ReasonOf(err) == pb.Reason_REASON_UNSPECIFIED {
			t.Errorf("%s: %v", name, err)
		}
		if err := session.Wait(ctx); gradwire.ReasonOf(err) == pb.Reason_REASON_UNSPECIFIED {
			t.Errorf("%s: a wait does not tell: %v", name, err)
		}
	}
	if _, err := gradwire.Values[int64](ctx, a); gradwire.ReasonOf(err) != gradwire.ReasonDtype {
		t.Error(err)
	}
	_, err := gradwire.FromSlice(session, []float32{1, 2}).Item(ctx)
	if err == nil || !strings.Contains(err.Error(), "a Tensor with 2 elements cannot be converted to Scalar") {
		t.Error(err)
	}
}

func TestAClosedSession(t *testing.T) {
	session, err := gradwire.Connect(t.Context(), serverAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	a := gradwire.FromSlice(session, []float32{1})
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Add(1).Float32s(t.Context()); !errors.Is(err, gradwire.ErrClosed) {
		t.Error(err)
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

func TestNoServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := gradwire.Connect(ctx, "127.0.0.1:1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	_, err := gradwire.Connect(t.Context(), "127.0.0.1:1", gradwire.WithPatience(50*time.Millisecond))
	if err == nil || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
	// A mistake is told before the session's patience ends.
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = gradwire.Connect(ctx, "127.0.0.1:1")
	if err == nil || !strings.Contains(err.Error(), "No server listens there: start `gradwire serve`") {
		t.Error(err)
	}
}

func TestADeviceIsAskedFor(t *testing.T) {
	t.Parallel()
	connect(t, gradwire.WithDeviceType("cpu"))
	_, err := gradwire.Connect(t.Context(), serverAddress(t), gradwire.WithDeviceType("abacus"))
	var told *gradwire.Error
	if !errors.As(err, &told) || told.Reason != gradwire.ReasonDeviceUnavailable {
		t.Error(err)
	}
}

func count(t *testing.T, session *gradwire.Session) uint64 {
	t.Helper()
	if err := session.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	told, err := session.Client().Describe(t.Context(), &pb.DescribeRequest{SessionId: session.ID()})
	if err != nil {
		t.Fatal(err)
	}
	return told.GetTensorCount()
}

func TestTidyReleasesWhatIsNotKept(t *testing.T) {
	session := connect(t)
	a := gradwire.FromSlice(session, []float32{1, 2, 3})
	var kept *gradwire.Tensor
	for range 200 {
		err := session.Tidy(func() error {
			kept = a.Mul(2).Add(1).Exp().Sum().Keep()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if most := count(t, session); most > 201 {
		t.Errorf("%d tensors", most)
	}
	check(t, kept, math.Exp(3)+math.Exp(5)+math.Exp(7))
}

func TestTheCollectorReleasesTensors(t *testing.T) {
	session := connect(t)
	a := gradwire.FromSlice(session, []float32{1, 2, 3})
	for range 20_000 {
		a = a.Add(0.0)
	}
	time.Sleep(50 * time.Millisecond)
	if most := count(t, session); most > 8000 {
		t.Errorf("%d tensors", most)
	}
	check(t, a, 1, 2, 3)
}

func TestGoroutinesShareASession(t *testing.T) {
	session := connect(t)
	sum := gradwire.FromSlice(session, []float32{0})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				sum.AddInPlace(1.0)
				if _, err := sum.Add(1.0).Float32s(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	check(t, sum, 800)
}

func TestBulkUpAndDown(t *testing.T) {
	session := connect(t)
	data := bytes.Repeat([]byte{1, 2, 3, 4}, 2<<20)
	made := session.FromBytes(gradwire.Uint8, data, len(data))
	found, err := made.Read(t.Context())
	if err != nil || !bytes.Equal(found.Data, data) {
		t.Errorf("%d bytes, %v", len(found.Data), err)
	}
}

// Messages of the server's chunk, 1 MiB, pass few of these connections.
func TestLargeValuesPassConnectionsThatCarryLessThanAChunk(t *testing.T) {
	address, _ := cuttingProxy(t, 100_000, 1_000_000)
	session, err := gradwire.Connect(t.Context(), address, gradwire.WithPatience(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	data := bytes.Repeat([]byte{1, 2, 3, 4, 5}, 1<<20)
	found, err := session.FromBytes(gradwire.Uint8, data, len(data)).Read(t.Context())
	if err != nil || !bytes.Equal(found.Data, data) {
		t.Error(err)
	}
}

// Each connection attaches, so the server answers; but it breaks before the batch has arrived.
func TestABatchThatNoConnectionCarriesEndsWithAnError(t *testing.T) {
	address, _ := cuttingProxy(t, 100_000, 100_000)
	session, err := gradwire.Connect(t.Context(), address, gradwire.WithPatience(800*time.Millisecond), gradwire.WithLocalStream(false))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	_, err = session.FromBytes(gradwire.Uint8, make([]byte, 800_000), 800_000).Read(ctx) // within the limit of one message
	wanted := regexp.MustCompile(`\d+ connections broke in 8s before a batch of 800\d{3} bytes`)
	if err == nil || !wanted.MatchString(err.Error()) {
		t.Error(err)
	}
}

func TestASessionContinuesAfterTheServerRestarts(t *testing.T) {
	address, restart := restartingServer(t)
	session, err := gradwire.Connect(t.Context(), address, gradwire.WithLocalStream(false))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	sum := gradwire.FromSlice(session, []float32{0})
	for round := range 2 {
		for range 200 {
			sum.AddInPlace(1.0)
		}
		if round == 0 {
			restart()
		}
	}
	check(t, sum, 400)
	if session.Reconnects() == 0 {
		t.Error("the server did not restart")
	}
}

func TestValuesOfEveryType(t *testing.T) {
	session := connect(t)
	round(t, session, []float32{1.5, -2})
	round(t, session, []float64{1.5, -2})
	round(t, session, []int8{1, -2})
	round(t, session, []int16{1, -2})
	round(t, session, []int32{1, -2})
	round(t, session, []int64{1, math.MinInt64})
	round(t, session, []uint8{1, 255})
	round(t, session, []uint16{1, 65535})
	round(t, session, []uint32{1, math.MaxUint32})
	round(t, session, []uint64{1, math.MaxUint64})
	round(t, session, []bool{true, false})
	round(t, session, []complex64{1i, 2})
	round(t, session, []complex128{1i, 2})
	half := session.FromBytes(gradwire.Float16, []byte{0x00, 0x3c, 0x01, 0x00, 0x00, 0xfc, 0x55, 0xb5}, 4)
	check(t, half.Index(gradwire.At(0)), 1)
	check(t, half.Index(gradwire.At(3)), -0.333251953125)
	values, err := half.Float64s(t.Context())
	if err != nil || values[1] != math.Ldexp(1, -24) || !math.IsInf(values[2], -1) {
		t.Error(values, err)
	}
}

func round[T gradwire.Element](t *testing.T, session *gradwire.Session, values []T) {
	t.Helper()
	found, err := gradwire.Values[T](t.Context(), gradwire.FromSlice(session, values))
	if err != nil || len(found) != len(values) {
		t.Fatal(found, err)
	}
	for i := range values {
		if found[i] != values[i] {
			t.Errorf("%v instead of %v", found, values)
		}
	}
}

func TestAProgramsMistakes(t *testing.T) {
	session, ctx := connect(t), t.Context()
	outer := gradwire.FromSlice(session, []float32{1, 2, 3})
	signature := gradwire.Signature{Inputs: []gradwire.Input{{Shape: []int{3}}}}
	for name, body := range map[string]func(*gradwire.Tensor) (*gradwire.Tensor, error){
		"outer tensor": func(x *gradwire.Tensor) (*gradwire.Tensor, error) { return x.Add(outer), nil },
		"read":         func(x *gradwire.Tensor) (*gradwire.Tensor, error) { _, err := x.Item(ctx); return x, err },
		"unknown op": func(x *gradwire.Tensor) (*gradwire.Tensor, error) {
			return gradwire.NewCall(nil, "nonsense").Tensor("", x).One(), nil
		},
		"hook": func(x *gradwire.Tensor) (*gradwire.Tensor, error) {
			x.RegisterHook(func(*gradwire.Tensor) (*gradwire.Tensor, error) { return nil, nil })
			return x, nil
		},
	} {
		_, err := session.Trace(ctx, signature,
			func(_ *gradwire.Session, in []*gradwire.Tensor, _ []gradwire.Number) ([]*gradwire.Tensor, error) {
				made, err := body(in[0])
				return []*gradwire.Tensor{made}, err
			})
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	double, err := session.Trace(ctx, signature,
		func(_ *gradwire.Session, in []*gradwire.Tensor, _ []gradwire.Number) ([]*gradwire.Tensor, error) {
			return []*gradwire.Tensor{in[0].Mul(2.0)}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	check(t, double.Run([]*gradwire.Tensor{outer})[0], 2, 4, 6)
	wrong := double.Run([]*gradwire.Tensor{gradwire.FromSlice(session, []float32{1})})
	if _, err := wrong[0].Read(ctx); err == nil {
		t.Error("an input of another shape is bound")
	}
	if _, err := double.Run(nil)[0].Read(ctx); gradwire.ReasonOf(err) != gradwire.ReasonArgumentType {
		t.Error(err)
	}
	_ = session.Wait(ctx) // tells the same once more
}

func TestProgramsThatTheServerForgetsAreRegisteredAgain(t *testing.T) {
	session, ctx := connect(t), t.Context()
	info, err := session.Client().ServerInfo(ctx, &pb.ServerInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	most := int(info.GetLimits().GetMaxPrograms())
	if most > 300 {
		t.Skip("the server keeps too many programs for a test:", most)
	}
	x := gradwire.FromSlice(session, []float32{1})
	var programs []*gradwire.Program
	for i := range most + 2 {
		made, err := session.Trace(ctx, gradwire.Signature{Inputs: []gradwire.Input{{Shape: []int{1}}}},
			func(_ *gradwire.Session, in []*gradwire.Tensor, _ []gradwire.Number) ([]*gradwire.Tensor, error) {
				return []*gradwire.Tensor{in[0].Add(float64(i))}, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		programs = append(programs, made)
	}
	for i, each := range programs {
		check(t, each.Run([]*gradwire.Tensor{x})[0], 1+float64(i))
	}
}

// TestATensorOfAnotherSession is refused where its id would mean another tensor.
func TestATensorOfAnotherSession(t *testing.T) {
	session, other, ctx := connect(t), connect(t), t.Context()
	a := gradwire.FromSlice(session, []float32{1, 2}).SetRequiresGrad(true)
	foreign := gradwire.FromSlice(other, []float32{5, 5})
	refused := func(name string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "belongs to another session") {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.SetGrad(foreign)
	refused("SetGrad", session.Wait(ctx))
	a.SetData(foreign)
	refused("SetData", session.Wait(ctx))
	hook := a.RegisterHook(func(*gradwire.Tensor) (*gradwire.Tensor, error) { return foreign, nil })
	refused("a hook", a.Mul(2).Sum().Backward(ctx))
	hook.Remove()
	if has, err := a.HasGrad(ctx); has || err != nil {
		t.Error(has, err)
	}
	check(t, a, 1, 2)
}

// TestAFailedTensorFails in all of its methods with its own error.
func TestAFailedTensorFails(t *testing.T) {
	session, ctx := connect(t), t.Context()
	a := gradwire.FromSlice(session, []float32{1, 2})
	failed := gradwire.FromSlice(session, []float32{1, 2}, 3).Exp()
	failed.RegisterHook(func(gradient *gradwire.Tensor) (*gradwire.Tensor, error) { return nil, nil }).Remove()
	failed.SetGrad(a)
	a.SetGrad(failed)
	failed.SetData(failed)
	failed.RetainGrad().SetRequiresGrad(true).ZeroGrad()
	for name, err := range map[string]error{"Backward": failed.Backward(ctx), "Err": failed.Err(), "Wait": session.Wait(ctx)} {
		if err == nil || !strings.Contains(err.Error(), "has 12 bytes, not 8") {
			t.Errorf("%s: %v", name, err)
		}
	}
	check(t, a, 1, 2)
}

// TestManyResults: calls whose numbers of results differ by a multiple of 256 are not the same prepared op.
func TestManyResults(t *testing.T) {
	session := connect(t)
	long, short := session.Arange(257, gradwire.ArangeOptions{}), session.Arange(1, gradwire.ArangeOptions{})
	unbound := func(a *gradwire.Tensor, count int) *gradwire.Tensor {
		return gradwire.NewCall(nil, "unbind").Tensor("", a).Several(count)[count-1]
	}
	for range 4 {
		check(t, unbound(short, 1), 0)
		check(t, unbound(long, 257), 256)
	}
}

// TestTextThatNoMessageCanHold is refused, and the session survives.
func TestTextThatNoMessageCanHold(t *testing.T) {
	session, ctx := connect(t, gradwire.WithPatience(20*time.Second)), t.Context()
	a := gradwire.FromSlice(session, []float32{1, 2})
	for name, made := range map[string]*gradwire.Tensor{
		"op":       gradwire.NewCall(session, "a\xffb").Tensor("", a).One(),
		"argument": functional.MseLoss(a, a, functional.MseLossOptions{Reduction: "\xff"}),
	} {
		if _, err := made.Read(ctx); err == nil || !strings.Contains(err.Error(), "is not valid UTF-8") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := session.Wait(ctx); err == nil {
		t.Error("a wait does not tell")
	}
	check(t, a, 1, 2)
}
