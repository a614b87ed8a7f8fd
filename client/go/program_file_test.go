package gradwire_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	gradwire "github.com/gradwire/gradwire/client/go"
	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

func TestAnExportedModelTrainsAsInPyTorch(t *testing.T) {
	session, ctx := connect(t), t.Context()
	folder := os.Getenv("GRADWIRE_CONFORMANCE")
	if folder == "" {
		folder = filepath.Join("..", "..", "tests", "conformance")
	}
	data, err := os.ReadFile(filepath.Join(folder, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	told, err := os.ReadFile(filepath.Join(folder, "model.json"))
	if err != nil {
		t.Fatal(err)
	}
	var fit struct {
		X      [][]float32
		Y      []int64
		Losses []float64
	}
	if err := json.Unmarshal(told, &fit); err != nil {
		t.Fatal(err)
	}
	var flat []float32
	for _, row := range fit.X {
		flat = append(flat, row...)
	}
	var pythons []float64
	if text := os.Getenv("GRADWIRE_LOSSES"); text != "" {
		if err := json.Unmarshal([]byte(text), &pythons); err != nil || len(pythons) != len(fit.Losses) {
			t.Fatal(text, err)
		}
	}
	inputs := map[string]*gradwire.Tensor{
		"x": gradwire.FromSlice(session, flat, len(fit.X), len(fit.X[0])), "y": gradwire.FromSlice(session, fit.Y),
	}
	// Half of the steps, and the others after the model was saved and loaded.
	for half := range 2 {
		model, err := session.LoadProgram(ctx, data)
		if err != nil {
			t.Fatal(err)
		}
		step, err := model.Program("")
		if err != nil {
			t.Fatal(err, model.Names())
		}
		for i := range len(fit.Losses) / 2 {
			wanted := fit.Losses[half*len(fit.Losses)/2+i]
			loss, err := step.Run(inputs)[0].Item(ctx)
			if err != nil || math.Abs(loss-wanted) > 1e-5*wanted {
				t.Fatalf("step %d: %v instead of %v, %v", i, loss, wanted, err)
			}
			if pythons != nil && loss != pythons[half*len(fit.Losses)/2+i] {
				t.Fatalf("step %d: %v is not Python's %v", i, loss, pythons[half*len(fit.Losses)/2+i])
			}
		}
		if data, err = model.Save(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := model.Program("nonsense"); err == nil {
			t.Error("there is no such program")
		}
	}
	if _, err := session.LoadProgram(ctx, []byte("no file")); err == nil {
		t.Error("a file of nonsense is loaded")
	}
}

func TestAFileWhoseProgramsTheServerForgetsIsLoadedAgain(t *testing.T) {
	session, ctx := connect(t), t.Context()
	data, err := os.ReadFile(filepath.Join("..", "..", "tests", "conformance", "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := session.Client().ServerInfo(ctx, &pb.ServerInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	model, err := session.LoadProgram(ctx, data)
	if err != nil {
		t.Fatal(err)
	}
	step, err := model.Program("")
	if err != nil {
		t.Fatal(err)
	}
	inputs := map[string]*gradwire.Tensor{
		"x": session.Ones([]int{6, 4}), "y": gradwire.FromSlice(session, make([]int64, 6)),
	}
	if _, err := step.Run(map[string]*gradwire.Tensor{"x": inputs["x"], "y": nil})[0].Item(ctx); err == nil {
		t.Error("an input is nil")
	}
	if session.Wait(ctx) == nil {
		t.Error("the wait tells nothing")
	}
	before, err := step.Run(inputs)[0].Item(ctx)
	if err != nil {
		t.Fatal(err)
	}
	signature := gradwire.Signature{Inputs: []gradwire.Input{{Shape: []int{1}}}}
	for i := range info.GetLimits().GetMaxPrograms() {
		add := func(_ *gradwire.Session, inputs []*gradwire.Tensor, _ []gradwire.Number) ([]*gradwire.Tensor, error) {
			return []*gradwire.Tensor{inputs[0].Add(float64(i))}, nil
		}
		if _, err := session.Trace(ctx, signature, add); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		after, err := step.Run(inputs)[0].Item(ctx)
		if err != nil || after >= before {
			t.Fatalf("the loss was %v, and is %v: %v", before, after, err)
		}
		before = after
	}
}
