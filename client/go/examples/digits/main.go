// Command digits trains a classifier of handwritten digits. A training step is a program: the server runs an epoch by one
// command.
//
//	go run ./examples/digits -address 127.0.0.1:50051
package main

import (
	"compress/gzip"
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"strconv"

	gradwire "github.com/gradwire/gradwire/client/go"
	"github.com/gradwire/gradwire/client/go/functional"
)

const (
	pixels = 64
	hidden = 256
	rows   = 128 // of a batch
	held   = 360 // images for the test
)

func main() {
	address := flag.String("address", "127.0.0.1:50051", "the server")
	data := flag.String("data", "../../examples/data/digits.csv.gz", "the images")
	epochs := flag.Int("epochs", 40, "passes over the images")
	flag.Parse()
	accuracy, err := train(context.Background(), *address, *data, *epochs)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("accuracy on %d images that it has not seen: %.1f %%\n", held, 100*accuracy)
}

func train(ctx context.Context, address, path string, epochs int) (accuracy float64, _ error) {
	images, digits, err := load(path)
	if err != nil {
		return 0, err
	}
	session, err := gradwire.Connect(ctx, address)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	session.ManualSeed(0)
	count := len(digits) - held
	x := gradwire.FromSlice(session, images[:count*pixels], count, pixels)
	y := gradwire.FromSlice(session, digits[:count])
	parameters := []*gradwire.Tensor{
		layer(session, pixels, hidden), session.Zeros([]int{hidden}).SetRequiresGrad(true),
		layer(session, hidden, 10), session.Zeros([]int{10}).SetRequiresGrad(true),
	}
	step, err := trace(ctx, session, parameters)
	if err != nil {
		return 0, err
	}
	for epoch := range epochs {
		err := session.Tidy(func() error {
			losses := step.Run(append(parameters[:len(parameters):len(parameters)], x, y), gradwire.RunOptions{
				Numbers: []float64{0.2}, Repeat: count / rows, Sliced: []int{4, 5}, Stacked: true,
			})
			if epoch%10 != 9 {
				return nil
			}
			loss, err := losses[0].Mean().Item(ctx)
			fmt.Printf("epoch %d: loss %.4f\n", epoch+1, loss)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	session.NoGrad(func() {
		seen := gradwire.FromSlice(session, images[count*pixels:], held, pixels)
		best := forward(parameters, seen).Argmax(gradwire.ArgmaxOptions{Dim: gradwire.Ptr(1)})
		accuracy, err = best.Eq(gradwire.FromSlice(session, digits[count:])).
			To(gradwire.ToOptions{Dtype: gradwire.Float32}).Mean().Item(ctx)
	})
	return accuracy, err
}

// layer is a matrix of weights, uniform within 1/√inputs as PyTorch's Linear makes them.
func layer(session *gradwire.Session, inputs, outputs int) *gradwire.Tensor {
	bound := 1 / float64(inputs)
	made := session.Rand([]int{inputs, outputs}).Sub(0.5).Mul(2 * math.Sqrt(bound)).Detach()
	return made.SetRequiresGrad(true)
}

func forward(parameters []*gradwire.Tensor, x *gradwire.Tensor) *gradwire.Tensor {
	inner := x.Matmul(parameters[0]).Add(parameters[1]).Relu()
	return inner.Matmul(parameters[2]).Add(parameters[3])
}

// trace makes the program of a step of gradient descent; its number is the learning rate.
func trace(ctx context.Context, session *gradwire.Session, parameters []*gradwire.Tensor) (*gradwire.Program, error) {
	signature := gradwire.Signature{Numbers: 1}
	for _, parameter := range parameters {
		input, err := gradwire.InputLike(ctx, parameter)
		if err != nil {
			return nil, err
		}
		signature.Inputs = append(signature.Inputs, input)
	}
	signature.Inputs = append(signature.Inputs,
		gradwire.Input{Shape: []int{rows, pixels}}, gradwire.Input{DType: gradwire.Int64, Shape: []int{rows}})
	step := func(p *gradwire.Session, inputs []*gradwire.Tensor, numbers []gradwire.Number) ([]*gradwire.Tensor, error) {
		parameters, x, y := inputs[:4], inputs[4], inputs[5]
		loss := functional.CrossEntropy(forward(parameters, x), y)
		if err := loss.Backward(ctx); err != nil {
			return nil, err
		}
		p.NoGrad(func() {
			for _, parameter := range parameters {
				parameter.SubInPlace(parameter.Grad(), gradwire.SubInPlaceOptions{Alpha: numbers[0]})
				parameter.ZeroGrad()
			}
		})
		return []*gradwire.Tensor{loss.Detach()}, nil
	}
	return session.Trace(ctx, signature, step)
}

// load reads the images, with values in [0, 1], and their digits, in a random order.
func load(path string) (images []float32, digits []int64, _ error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		return nil, nil, err
	}
	lines, err := csv.NewReader(unpacked).ReadAll()
	if err != nil {
		return nil, nil, err
	}
	rand.New(rand.NewPCG(0, 0)).Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	for _, line := range lines {
		for i, field := range line {
			value, err := strconv.ParseFloat(field, 32)
			if err != nil {
				return nil, nil, err
			}
			if i < pixels {
				images = append(images, float32(value/16))
			} else {
				digits = append(digits, int64(value))
			}
		}
	}
	return images, digits, nil
}
