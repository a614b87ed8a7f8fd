package gradwire_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gradwire "github.com/gradwire/gradwire/client/go"
	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// The scenarios of tests/conformance, whose README.md describes the steps.

type step map[string]any

type scenario struct {
	Name    string
	Steps   []step
	Cuts    []int
	LeaseMs int `json:"lease_ms"`
	Needs   string
}

var errHook = errors.New("the hook's own error")

// serverAddress is that of a live server; without one, a test is skipped.
func serverAddress(t testing.TB) string {
	t.Helper()
	address := os.Getenv("GRADWIRE_ADDRESS")
	if address == "" {
		t.Skip("needs a server: set GRADWIRE_ADDRESS, or run make test-sdks")
	}
	return address
}

// restartingServer asks for a server of the test's own, and returns a function that restarts it.
func restartingServer(t *testing.T) (string, func()) {
	t.Helper()
	control := os.Getenv("GRADWIRE_RESTARTING")
	if control == "" {
		t.Skip("needs a server that restarts: run make test-sdks")
	}
	conn, err := net.Dial("tcp", control)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	lines := bufio.NewReader(conn)
	read := func() string {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(line)
	}
	return read(), func() {
		fmt.Fprintln(conn, "restart")
		read()
	}
}

// cuttingProxy asks for a proxy that cuts connections, and returns a function that tells how often it did.
func cuttingProxy(t *testing.T, least, most int) (string, func() int) {
	t.Helper()
	control := os.Getenv("GRADWIRE_CUTTING")
	if control == "" {
		t.Skip("needs a proxy that cuts connections: run make test-sdks")
	}
	conn, err := net.Dial("tcp", control)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "%d %d\n", least, most)
	lines := bufio.NewReader(conn)
	address, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(address), func() int {
		cuts := -1
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		if _, err := fmt.Fscan(lines, &cuts); err != nil {
			t.Error(err)
		}
		return cuts
	}
}

func TestConformance(t *testing.T) {
	serverAddress(t)
	folder := os.Getenv("GRADWIRE_CONFORMANCE")
	if folder == "" {
		folder = filepath.Join("..", "..", "tests", "conformance")
	}
	paths, err := filepath.Glob(filepath.Join(folder, "scenarios", "*.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios in %s: %v", folder, err)
	}
	var mu sync.Mutex
	report := map[string]string{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var scenarios []scenario
		if err := json.Unmarshal(data, &scenarios); err != nil {
			t.Fatal(path, err)
		}
		subject := strings.TrimSuffix(filepath.Base(path), ".json")
		for _, each := range scenarios {
			name := subject + ": " + each.Name
			t.Run(name, func(t *testing.T) {
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					switch {
					case t.Failed():
						report[name] = "failed"
					case t.Skipped():
						report[name] = "lacks " + each.Needs
					default:
						report[name] = "ok"
					}
				}()
				each.run(t)
			})
		}
	}
	if path := os.Getenv("GRADWIRE_CONFORMANCE_REPORT"); path != "" {
		data, err := json.Marshal(report)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (c scenario) run(t *testing.T) {
	if c.Needs != "" {
		t.Skip("this language lacks " + c.Needs)
	}
	address := serverAddress(t)
	var cuts func() int
	if len(c.Cuts) > 0 {
		address, cuts = cuttingProxy(t, c.Cuts[0], c.Cuts[1])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	options := []gradwire.Option{gradwire.WithLease(time.Duration(c.LeaseMs) * time.Millisecond)}
	if cuts != nil {
		options = append(options, gradwire.WithLocalStream(false)) // it would pass by the proxy
	}
	session, err := gradwire.Connect(ctx, address, options...)
	if err != nil {
		t.Fatal(err)
	}
	r := &runner{ctx: ctx, session: session, tensors: map[string]*gradwire.Tensor{}, programs: map[string]*program{},
		hooks: map[string]*gradwire.Hook{}}
	for i, each := range c.Steps {
		if err := r.checked(each); err != nil {
			t.Fatalf("step %d, %v: %v", i, each["do"], err)
		}
	}
	if err := session.Wait(ctx); err != nil {
		t.Error("at the end:", err)
	}
	if cuts != nil {
		if broken := cuts(); broken < 2 {
			t.Errorf("%d cuts, %d reconnects", broken, session.Reconnects())
		}
		return // the proxy is gone; the session's lease runs out
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
}

type program struct {
	*gradwire.Program
}

// runner runs steps in a session, or records them in that of a program.
type runner struct {
	ctx      context.Context
	session  *gradwire.Session
	tensors  map[string]*gradwire.Tensor
	programs map[string]*program
	hooks    map[string]*gradwire.Hook
	called   []string
	round    int
}

// checked runs a step, and compares its refusal with the expected one.
func (r *runner) checked(s step) error {
	err := r.step(s)
	expected, refused := s["refused"].(string)
	if !refused {
		return err
	}
	if err == nil {
		err = r.session.Wait(r.ctx)
	}
	if expected == "HOOK" {
		if !errors.Is(err, errHook) {
			return fmt.Errorf("not the hook's own error: %v", err)
		}
		return nil
	}
	if expected == "DEPENDENCY_FAILED" {
		if s["do"] == "read" && err == nil {
			return errors.New("a failed tensor was read")
		}
		return nil // its cause was reported before
	}
	var told *gradwire.Error
	if !errors.As(err, &told) || told.Reason.String() != "REASON_"+expected {
		return fmt.Errorf("%v instead of %s", err, expected)
	}
	if told.Message == "" {
		return fmt.Errorf("no message: %+v", told)
	}
	return nil
}

func (r *runner) step(s step) error {
	switch s["do"] {
	case "tensor":
		return r.leaf(s)
	case "op":
		return r.op(s)
	case "backward":
		return gradwire.Backward(r.ctx, r.several(s["tensors"]), gradwire.BackwardOptions{
			Gradients: r.several(s["gradients"]), Inputs: r.several(s["inputs"]),
			RetainGraph: flag(s, "retain_graph"), CreateGraph: flag(s, "create_graph"),
		})
	case "gradients":
		found, err := gradwire.Gradients(r.ctx, r.several(s["outputs"]), r.several(s["inputs"]), gradwire.BackwardOptions{
			Gradients: r.several(s["grad_outputs"]), RetainGraph: flag(s, "retain_graph"),
			CreateGraph: flag(s, "create_graph"), AllowUnused: flag(s, "allow_unused"),
		})
		if err != nil {
			return err
		}
		for i, name := range s["out"].([]any) {
			if (name == nil) != (found[i] == nil) {
				return fmt.Errorf("gradient %d is %v", i, found[i])
			}
			if name != nil {
				r.tensors[name.(string)] = found[i]
			}
		}
	case "grad":
		r.tensors[text(s, "out")] = r.of(s).Grad()
	case "no_grad_of":
		has, err := r.of(s).HasGrad(r.ctx)
		if has {
			return errors.New("there is a gradient")
		}
		return err
	case "set_grad":
		r.of(s).SetGrad(r.tensors[text(s, "to")])
	case "set_data":
		r.of(s).SetData(r.tensors[text(s, "to")])
	case "requires_grad":
		r.of(s).SetRequiresGrad(flag(s, "to"))
	case "retain_grad":
		r.of(s).RetainGrad()
	case "forget":
		r.of(s).Release()
	case "hook":
		r.hook(s)
	case "remove_hook":
		r.hooks[text(s, "hook")].Remove()
	case "hooks_run":
		if expected := fmt.Sprint(s["expect"]); fmt.Sprint(r.called) != expected {
			return fmt.Errorf("%v instead of %s", r.called, expected)
		}
		r.called = nil
	case "read":
		return r.read(s)
	case "describe":
		return r.describe(s)
	case "program":
		return r.program(s)
	case "run":
		options := gradwire.RunOptions{Numbers: floats(s["numbers"]), Sliced: integers(s["sliced"]), Stacked: flag(s, "stacked")}
		if repeat, ok := s["repeat"].(float64); ok {
			options.Repeat = int(repeat)
		}
		for i, made := range r.programs[text(s, "program")].Run(r.several(s["inputs"]), options) {
			r.tensors[s["out"].([]any)[i].(string)] = made
		}
	case "repeat":
		for round := range int(s["times"].(float64)) {
			r.round = round
			for _, each := range s["steps"].([]any) {
				if err := r.step(each.(map[string]any)); err != nil {
					return err
				}
			}
		}
	case "seed":
		r.session.ManualSeed(int64(s["seed"].(float64)))
	case "wait":
		return r.session.Wait(r.ctx)
	case "sleep":
		time.Sleep(time.Duration(s["seconds"].(float64) * float64(time.Second)))
	default:
		return fmt.Errorf("unknown step %v", s["do"])
	}
	return nil
}

func (r *runner) of(s step) *gradwire.Tensor { return r.tensors[text(s, "of")] }

func (r *runner) several(names any) []*gradwire.Tensor {
	list, _ := names.([]any)
	var made []*gradwire.Tensor
	for _, name := range list {
		made = append(made, r.tensors[name.(string)])
	}
	return made
}

func (r *runner) leaf(s step) error {
	dtype, shape := dtypeOf(text(s, "dtype")), integers(s["shape"])
	var made *gradwire.Tensor
	switch ramp, isRamp := s["ramp"].(float64); {
	case isRamp:
		values := make([]float32, shape[0]*shape[1])
		for i := range values {
			values[i] = float32(i % int(ramp))
		}
		made = gradwire.FromSlice(r.session, values, shape...)
	case s["hex"] != nil:
		data, err := hex.DecodeString(text(s, "hex"))
		if err != nil {
			return err
		}
		made = r.session.FromBytes(dtype, data, shape...)
	default:
		values := floats(s["values"])
		switch dtype {
		case gradwire.Float32:
			made = of[float32](r.session, values, shape)
		case gradwire.Int64:
			made = of[int64](r.session, values, shape)
		default:
			return fmt.Errorf("values of %v", dtype)
		}
	}
	if flag(s, "requires_grad") {
		made.SetRequiresGrad(true)
	}
	r.tensors[text(s, "out")] = made
	return nil
}

func of[T float32 | int64](session *gradwire.Session, values []float64, shape []int) *gradwire.Tensor {
	made := make([]T, len(values))
	for i, value := range values {
		made[i] = T(value)
	}
	if len(shape) == 0 {
		return gradwire.Scalar(session, made[0])
	}
	return gradwire.FromSlice(session, made, shape...)
}

func (r *runner) op(s step) error {
	name := text(s, "op")
	var err error
	apply := func() {
		call := gradwire.NewCall(r.session, name)
		given, _ := s["args"].([]any)
		for _, each := range given {
			r.argument(call, "", each.(map[string]any))
		}
		named, _ := s["named"].(map[string]any)
		for key, each := range named {
			r.argument(call, key, each.(map[string]any))
		}
		switch out := s["out"].(type) {
		case nil:
			call.InPlace()
		case string:
			r.tensors[out] = call.One()
		case []any:
			made := call.Several
			if name == "split" { // ListOps says that only the answer tells how many
				made = func(int) []*gradwire.Tensor {
					var list []*gradwire.Tensor
					list, err = call.List(r.ctx)
					return list
				}
			}
			for i, tensor := range made(len(out)) {
				r.tensors[out[i].(string)] = tensor
			}
		}
	}
	switch s["mode"] {
	case "no_grad":
		r.session.NoGrad(apply)
	case "inference":
		r.session.InferenceMode(apply)
	default:
		apply()
	}
	return err
}

func (r *runner) argument(call *gradwire.Call, name string, given map[string]any) {
	for kind, value := range given {
		switch kind {
		case "tensor":
			call.Tensor(name, r.tensors[value.(string)])
		case "tensors":
			call.Tensors(name, r.several(value))
		case "float":
			call.Float(name, value.(float64))
		case "integer":
			call.Integer(name, int(value.(float64)))
		case "boolean":
			call.Boolean(name, value.(bool))
		case "string":
			call.String(name, value.(string))
		case "dtype":
			call.DType(name, dtypeOf(value.(string)))
		case "integers":
			call.Integers(name, integers(value))
		case "floats":
			call.Floats(name, floats(value))
		case "complex":
			pair := floats(value)
			call.Complex(name, complex(pair[0], pair[1]))
		case "none":
			call.None(name)
		case "round":
			call.Float(name, value.(float64)*float64(r.round))
		case "number":
			call.Number(name, gradwire.Number(value.(float64)))
		case "index":
			var items []gradwire.IndexItem
			for _, each := range value.([]any) {
				items = append(items, r.item(each.(map[string]any)))
			}
			call.Index(name, items)
		}
	}
}

func (r *runner) item(given map[string]any) gradwire.IndexItem {
	for kind, value := range given {
		switch kind {
		case "integer":
			return gradwire.At(int(value.(float64)))
		case "slice":
			var bounds [3]*int
			for i, each := range value.([]any) {
				if each != nil {
					bounds[i] = gradwire.Ptr(int(each.(float64)))
				}
			}
			return gradwire.Slice(bounds[0], bounds[1], bounds[2])
		case "new_axis":
			return gradwire.NewAxis()
		case "tensor":
			return gradwire.Pick(r.tensors[value.(string)])
		}
	}
	return gradwire.Ellipsis()
}

func (r *runner) hook(s step) {
	name := text(s, "name")
	ran := func() error {
		r.called = append(r.called, name)
		if flag(s, "fails") {
			return errHook
		}
		return nil
	}
	if text(s, "kind") == "accumulated" {
		r.hooks[name] = r.of(s).RegisterPostAccumulateGradHook(func(*gradwire.Tensor) error { return ran() })
		return
	}
	r.hooks[name] = r.of(s).RegisterHook(func(gradient *gradwire.Tensor) (*gradwire.Tensor, error) {
		if factor, ok := s["factor"].(float64); ok {
			return gradient.Mul(factor), ran()
		}
		return nil, ran()
	})
}

func (r *runner) program(s step) error {
	var signature gradwire.Signature
	var names []string
	for _, each := range s["inputs"].([]any) {
		given := step(each.(map[string]any))
		names = append(names, text(given, "name"))
		signature.Inputs = append(signature.Inputs, gradwire.Input{
			DType: dtypeOf(text(given, "dtype")), Shape: integers(given["shape"]), RequiresGrad: flag(given, "requires_grad"),
		})
	}
	signature.Numbers = int(s["numbers"].(float64))
	body := func(p *gradwire.Session, inputs []*gradwire.Tensor, _ []gradwire.Number) ([]*gradwire.Tensor, error) {
		inner := &runner{ctx: r.ctx, session: p, tensors: map[string]*gradwire.Tensor{}}
		for i, name := range names {
			inner.tensors[name] = inputs[i]
		}
		for _, each := range s["steps"].([]any) {
			if err := inner.step(each.(map[string]any)); err != nil {
				return nil, err
			}
		}
		var outputs []*gradwire.Tensor
		for _, tensor := range inner.several(s["outputs"]) {
			outputs = append(outputs, tensor.Detach())
		}
		return outputs, nil
	}
	made, err := r.session.Trace(r.ctx, signature, body)
	r.programs[text(s, "name")] = &program{made}
	return err
}

func (r *runner) read(s step) error {
	payload, err := r.of(s).Read(r.ctx)
	if err != nil {
		return err
	}
	expected := step(s["expect"].(map[string]any))
	if payload.DType != dtypeOf(text(expected, "dtype")) || fmt.Sprint(payload.Shape) != fmt.Sprint(integers(expected["shape"])) {
		return fmt.Errorf("%v %v instead of %v", payload.DType, payload.Shape, expected)
	}
	if sum, ok := expected["sha256"].(string); ok {
		if found := sha256.Sum256(payload.Data); hex.EncodeToString(found[:]) != sum {
			return errors.New("other bytes")
		}
		return nil
	}
	if data, ok := expected["hex"].(string); ok {
		if found := hex.EncodeToString(payload.Data); found != data {
			return fmt.Errorf("%s instead of %s", found, data)
		}
		return nil
	}
	values, err := r.of(s).Float64s(r.ctx)
	if err != nil {
		return err
	}
	tolerance := map[string]float64{"float32": 1e-5, "float64": 1e-10}[text(expected, "dtype")]
	for i, wanted := range floats(expected["values"]) {
		same := values[i] == wanted || (math.IsNaN(values[i]) && math.IsNaN(wanted))
		if !same && !(math.Abs(values[i]-wanted) <= tolerance*math.Max(1, math.Abs(wanted))) {
			return fmt.Errorf("[%d] is %v instead of %v", i, values[i], wanted)
		}
	}
	return nil
}

func (r *runner) describe(s step) error {
	d, err := r.of(s).Describe(r.ctx)
	if err != nil {
		return err
	}
	found := map[string]any{
		"dtype": strings.ToLower(strings.TrimPrefix(d.DType.String(), "DTYPE_")), "shape": d.Shape,
		"requires_grad": d.RequiresGrad, "is_leaf": d.IsLeaf, "grad_fn": d.GradFn, "retains_grad": d.RetainsGrad,
		"is_view": d.IsView, "version": d.Version,
	}
	for key, wanted := range s["expect"].(map[string]any) {
		if fmt.Sprint(found[key]) != fmt.Sprint(wanted) {
			return fmt.Errorf("%s is %v instead of %v", key, found[key], wanted)
		}
	}
	return nil
}

func text(s step, key string) string { value, _ := s[key].(string); return value }
func flag(s step, key string) bool   { value, _ := s[key].(bool); return value }

func floats(values any) []float64 {
	list, _ := values.([]any)
	made := make([]float64, len(list))
	for i, value := range list {
		switch x := value.(type) {
		case float64:
			made[i] = x
		case bool:
			if x {
				made[i] = 1
			}
		case string:
			made[i] = map[string]float64{"nan": math.NaN(), "inf": math.Inf(1), "-inf": math.Inf(-1)}[x]
		}
	}
	return made
}

func integers(values any) []int {
	list, _ := values.([]any)
	made := make([]int, len(list))
	for i, value := range list {
		made[i] = int(value.(float64))
	}
	return made
}

func dtypeOf(name string) gradwire.DType {
	return pb.Dtype(pb.Dtype_value["DTYPE_"+strings.ToUpper(name)])
}
