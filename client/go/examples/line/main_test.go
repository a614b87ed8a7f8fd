package main

import (
	"math"
	"os"
	"testing"
)

func TestLineIsFitted(t *testing.T) {
	address := os.Getenv("GRADWIRE_ADDRESS")
	if address == "" {
		t.Skip("needs a server: set GRADWIRE_ADDRESS, or run make test-sdks")
	}
	slope, intercept, err := fit(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(slope-3) > 1e-3 || math.Abs(intercept+1) > 1e-3 {
		t.Errorf("y = %v x + %v", slope, intercept)
	}
}
