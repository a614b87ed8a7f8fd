package main

import (
	"os"
	"testing"
)

func TestDigitsAreLearned(t *testing.T) {
	address := os.Getenv("GRADWIRE_ADDRESS")
	if address == "" {
		t.Skip("needs a server: set GRADWIRE_ADDRESS, or run make test-sdks")
	}
	accuracy, err := train(t.Context(), address, "../../../../examples/data/digits.csv.gz", 30)
	if err != nil {
		t.Fatal(err)
	}
	if accuracy < 0.93 {
		t.Errorf("accuracy is %v", accuracy)
	}
}
