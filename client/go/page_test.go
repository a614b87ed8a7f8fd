package gradwire_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gradwire "github.com/gradwire/gradwire/client/go"
)

// The code of docs/languages/go.md, after the program with which the page begins.

func leaves(ctx context.Context, session *gradwire.Session, told func(...[]float32)) error {
	a := gradwire.FromSlice(session, []float32{1, 2, 3}).SetRequiresGrad(true)
	b := a.Mul(a).RetainGrad()
	if err := b.Sum().Backward(ctx); err != nil {
		return err
	}
	gradient, err := gradwire.Values[float32](ctx, a.Grad()) // 2, 4, 6
	if err != nil {
		return err
	}
	kept, err := gradwire.Values[float32](ctx, b.Grad()) // 1, 1, 1
	told(gradient, kept)
	return err
}

func mistake(ctx context.Context, m *gradwire.Tensor) error {
	_, err := m.Matmul(m).Float32s(ctx)
	var refusal *gradwire.Error
	if errors.As(err, &refusal) && refusal.Reason == gradwire.ReasonShape {
		fmt.Println(refusal.Op, refusal.Message) // matmul mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)
	}
	return err
}

func hooked(ctx context.Context, a *gradwire.Tensor) error {
	hook := a.RegisterHook(func(gradient *gradwire.Tensor) (*gradwire.Tensor, error) { return gradient.Mul(2), nil })
	err := a.Mul(a).Sum().Backward(ctx)
	hook.Remove()
	return err
}

func traced(ctx context.Context, session *gradwire.Session, a *gradwire.Tensor, told func(float64)) error {
	program, err := session.Trace(ctx, gradwire.Signature{Inputs: []gradwire.Input{{Shape: []int{3}}}},
		func(p *gradwire.Session, in []*gradwire.Tensor, _ []gradwire.Number) ([]*gradwire.Tensor, error) {
			return []*gradwire.Tensor{in[0].Mul(2).Sum()}, nil
		})
	if err != nil {
		return err
	}
	twice, err := program.Run([]*gradwire.Tensor{a.Detach()})[0].Item(ctx) // 12
	told(twice)
	return err
}

func tidied(ctx context.Context, session *gradwire.Session, a *gradwire.Tensor) (total *gradwire.Tensor, _ error) {
	err := session.Tidy(func() error {
		total = a.Exp().Sum().Keep()
		return session.Wait(ctx)
	})
	return total, err
}

func TestTheCodeOfThePageDoesWhatItSays(t *testing.T) {
	session, ctx := connect(t), t.Context()
	err := leaves(ctx, session, func(told ...[]float32) {
		if !slices.Equal(told[0], []float32{2, 4, 6}) || !slices.Equal(told[1], []float32{1, 1, 1}) {
			t.Error(told)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := mistake(ctx, session.Ones([]int{2, 3})); gradwire.ReasonOf(err) != gradwire.ReasonShape {
		t.Error(err)
	}
	a := gradwire.FromSlice(session, []float32{1, 2, 3}).SetRequiresGrad(true)
	if err := hooked(ctx, a); err != nil {
		t.Error(err)
	}
	check(t, a.Grad(), 4, 8, 12)
	if err := traced(ctx, session, a, func(twice float64) { check(t, gradwire.Scalar(session, float32(twice)), 12) }); err != nil {
		t.Error(err)
	}
	if total, err := tidied(ctx, session, a); err != nil || total.Err() != nil {
		t.Error(err)
	}
}

// TestTheProgramOfThePage builds and runs the page's program as it stands, but for the address.
func TestTheProgramOfThePage(t *testing.T) {
	address, blocks := serverAddress(t), pageBlocks(t)
	code := strings.ReplaceAll(blocks[0], "127.0.0.1:50051", address)
	written, overlay := filepath.Join(t.TempDir(), "main.go"), filepath.Join(t.TempDir(), "overlay.json")
	virtual, err := filepath.Abs("internal/page/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		written: code, overlay: fmt.Sprintf(`{"Replace": {%q: %q}}`, virtual, written),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	output, err := exec.CommandContext(t.Context(), "go", "run", "-overlay", overlay, "./internal/page").CombinedOutput()
	if err != nil || string(output) != "3.0000 <nil>\n" {
		t.Error(err, string(output))
	}
}

func TestTheCodeOfThePageIsTested(t *testing.T) {
	tested, err := os.ReadFile("page_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range pageBlocks(t)[1:] {
		if !strings.Contains(string(tested), strings.ReplaceAll("\t"+block, "\n", "\n\t")) {
			t.Error("page_test.go does not have this code:\n" + block)
		}
	}
}

func pageBlocks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/languages/go.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, part := range strings.Split(string(text), "```go\n")[1:] {
		block, _, _ := strings.Cut(part, "```")
		blocks = append(blocks, strings.TrimSpace(block))
	}
	if len(blocks) < 2 {
		t.Fatal("the page has no code")
	}
	return blocks
}
