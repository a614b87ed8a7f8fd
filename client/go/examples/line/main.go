// Command line fits y = w x + b to points, with every tensor on a server.
//
//	go run ./examples/line -address 127.0.0.1:50051
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	gradwire "github.com/gradwire/gradwire/client/go"
	"github.com/gradwire/gradwire/client/go/functional"
)

func main() {
	address := flag.String("address", "127.0.0.1:50051", "the server")
	flag.Parse()
	w, b, err := fit(context.Background(), *address)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("y = %.3f x + %.3f\n", w, b)
}

func fit(ctx context.Context, address string) (slope, intercept float64, _ error) {
	session, err := gradwire.Connect(ctx, address)
	if err != nil {
		return 0, 0, err
	}
	defer session.Close()
	x := gradwire.FromSlice(session, []float32{0, 1, 2, 3})
	y := gradwire.FromSlice(session, []float32{-1, 2, 5, 8})
	w := gradwire.FromSlice(session, []float32{0}).SetRequiresGrad(true)
	b := gradwire.FromSlice(session, []float32{0}).SetRequiresGrad(true)
	for range 300 {
		err := session.Tidy(func() error {
			loss := functional.MseLoss(x.Mul(w).Add(b), y)
			if err := loss.Backward(ctx); err != nil {
				return err
			}
			session.NoGrad(func() {
				for _, parameter := range []*gradwire.Tensor{w, b} {
					parameter.SubInPlace(parameter.Grad(), gradwire.SubInPlaceOptions{Alpha: 0.1})
					parameter.ZeroGrad()
				}
			})
			return nil
		})
		if err != nil {
			return 0, 0, err
		}
	}
	if slope, err = w.Item(ctx); err != nil {
		return 0, 0, err
	}
	intercept, err = b.Item(ctx)
	return slope, intercept, err
}
