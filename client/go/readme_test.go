package gradwire_test

import (
	"context"
	"fmt"
	"log"
	"math"
	"os"
	"strings"
	"testing"

	gradwire "github.com/gradwire/gradwire/client/go"
	"github.com/gradwire/gradwire/client/go/functional"
)

// TestReadme has the code of README.md, but for the address.
func TestReadme(t *testing.T) {
	address := serverAddress(t)
	ctx := context.Background()
	session, err := gradwire.Connect(ctx, address)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	x := gradwire.FromSlice(session, []float32{0, 1, 2, 3})
	y := gradwire.FromSlice(session, []float32{-1, 2, 5, 8})
	w := gradwire.FromSlice(session, []float32{0}).SetRequiresGrad(true)
	for range 300 {
		loss := functional.MseLoss(x.Mul(w).Sub(1), y)
		loss.Backward(ctx)
		session.NoGrad(func() { w.SubInPlace(w.Grad().Mul(0.1)) })
		w.ZeroGrad()
	}
	slope, err := w.Item(ctx)
	fmt.Println(slope, err) // 3 <nil>
	if err != nil || math.Abs(slope-3) > 1e-4 {
		t.Error(slope, err)
	}
}

func TestReadmeIsTested(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	tested, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	block = strings.ReplaceAll("\t"+strings.TrimSpace(block), "\n", "\n\t")
	if !strings.Contains(string(tested), strings.ReplaceAll(block, `"127.0.0.1:50051"`, "address")) {
		t.Error("the code of README.md is not that of TestReadme")
	}
}
