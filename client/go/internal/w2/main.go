// Command w2 takes training steps of a small network for `python -m benchmarks.languages`: it reads lines "mode steps"
// and answers each with the seconds that they took.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"time"

	gradwire "github.com/gradwire/gradwire/client/go"
	"github.com/gradwire/gradwire/client/go/functional"
	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

const (
	batch = 128
	rate  = 0.01
)

var sizes = []int{64, 256, 10}

func main() {
	ctx := context.Background()
	session, err := gradwire.Connect(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	b, err := prepare(ctx, session)
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var mode string
		var steps int
		if _, err := fmt.Sscan(lines.Text(), &mode, &steps); err != nil {
			log.Fatal(err)
		}
		begun := time.Now()
		if err := b.take(ctx, mode, steps); err != nil {
			log.Fatal(err)
		}
		fmt.Println(time.Since(begun).Seconds())
	}
	if err := session.Close(); err != nil {
		log.Fatal(err)
	}
}

type bench struct {
	session    *gradwire.Session
	inputs     *gradwire.Tensor
	labels     *gradwire.Tensor
	parameters []*gradwire.Tensor
	program    *gradwire.Program
	unary      *unary
}

func prepare(ctx context.Context, session *gradwire.Session) (*bench, error) {
	random := rand.New(rand.NewPCG(0, 0))
	normal := func(count int, scale float64) []float32 {
		made := make([]float32, count)
		for i := range made {
			made[i] = float32(random.NormFloat64() * scale)
		}
		return made
	}
	labels := make([]int64, batch)
	for i := range labels {
		labels[i] = random.Int64N(int64(sizes[2]))
	}
	b := &bench{
		session: session, inputs: gradwire.FromSlice(session, normal(batch*sizes[0], 1), batch, sizes[0]),
		labels: gradwire.FromSlice(session, labels),
	}
	for i, columns := range sizes[1:] {
		rows := sizes[i]
		weight := gradwire.FromSlice(session, normal(rows*columns, 1/math.Sqrt(float64(rows))), rows, columns)
		b.parameters = append(b.parameters, weight.SetRequiresGrad(true),
			session.Zeros([]int{columns}).SetRequiresGrad(true))
	}
	var signature gradwire.Signature
	for _, each := range append(b.parameters[:4:4], b.inputs, b.labels) {
		input, err := gradwire.InputLike(ctx, each)
		if err != nil {
			return nil, err
		}
		signature.Inputs = append(signature.Inputs, input)
	}
	var err error
	b.program, err = session.Trace(ctx, signature,
		func(p *gradwire.Session, in []*gradwire.Tensor, _ []gradwire.Number) ([]*gradwire.Tensor, error) {
			loss, err := step(ctx, p, in[:4], in[4], in[5])
			if err != nil {
				return nil, err
			}
			return []*gradwire.Tensor{loss.Detach()}, nil
		})
	if err != nil {
		return nil, err
	}
	b.unary, err = newUnary(ctx, session)
	return b, err
}

// step is a step of gradient descent.
func step(
	ctx context.Context, session *gradwire.Session, parameters []*gradwire.Tensor, inputs, labels *gradwire.Tensor,
) (*gradwire.Tensor, error) {
	hidden := inputs.Matmul(parameters[0]).Add(parameters[1]).Relu()
	loss := functional.CrossEntropy(hidden.Matmul(parameters[2]).Add(parameters[3]), labels)
	if err := loss.Backward(ctx); err != nil {
		return nil, err
	}
	session.NoGrad(func() {
		for _, each := range parameters {
			each.SubInPlace(each.Grad().Mul(rate))
			each.ZeroGrad()
		}
	})
	return loss, nil
}

// take takes steps and reads the last loss.
func (b *bench) take(ctx context.Context, mode string, steps int) error {
	bound := append(b.parameters[:4:4], b.inputs, b.labels)
	return b.session.Tidy(func() error {
		var loss *gradwire.Tensor
		switch mode {
		case "unary":
			return b.unary.take(ctx, steps)
		case "repeated":
			loss = b.program.Run(bound, gradwire.RunOptions{Repeat: steps})[0]
		default:
			for range steps {
				err := b.session.Tidy(func() (err error) {
					if mode == "program" {
						loss = b.program.Run(bound)[0]
					} else {
						loss, err = step(ctx, b.session, b.parameters, b.inputs, b.labels)
					}
					loss.Keep()
					return err
				})
				if err != nil {
					return err
				}
			}
		}
		value, err := loss.Item(ctx)
		if err == nil && !(value > 0) {
			err = fmt.Errorf("the loss is %v", value)
		}
		return err
	})
}

// unary takes the steps by single calls of the generated stub, each of which waits.
type unary struct {
	client     pb.AutogradServiceClient
	session    string
	inputs     uint64
	labels     uint64
	parameters []uint64
	made       []uint64
}

func newUnary(ctx context.Context, session *gradwire.Session) (*unary, error) {
	client := session.Client()
	opened, err := client.OpenSession(ctx, &pb.OpenSessionRequest{Client: "w2-unary"})
	if err != nil {
		return nil, err
	}
	u := &unary{client: client, session: opened.GetSessionId()}
	random := func(name string, args ...*pb.Argument) uint64 {
		made, opErr := u.op(ctx, name, pb.GradMode_GRAD_MODE_UNSPECIFIED, args...)
		if opErr != nil {
			err = opErr
		}
		return made
	}
	list := func(values ...int64) *pb.Argument {
		return &pb.Argument{Kind: &pb.Argument_Integers{Integers: &pb.IntList{Values: values}}}
	}
	u.inputs = random("randn", list(batch, int64(sizes[0])))
	u.labels = random("zeros", list(batch), &pb.Argument{
		Name: "dtype", Kind: &pb.Argument_Dtype{Dtype: pb.Dtype_DTYPE_INT64},
	})
	for i, columns := range sizes[1:] {
		for _, leaf := range []uint64{random("randn", list(int64(sizes[i]), int64(columns))), random("zeros", list(int64(columns)))} {
			request := &pb.SetRequiresGradRequest{SessionId: u.session, Tensor: leaf, RequiresGrad: true}
			if _, err := client.SetRequiresGrad(ctx, request); err != nil {
				return nil, err
			}
			u.parameters = append(u.parameters, leaf)
		}
	}
	return u, err
}

func tensor(id uint64) *pb.Argument { return &pb.Argument{Kind: &pb.Argument_Tensor{Tensor: id}} }

func (u *unary) op(ctx context.Context, name string, mode pb.GradMode, args ...*pb.Argument) (uint64, error) {
	answer, err := u.client.Op(ctx, &pb.OpRequest{SessionId: u.session, Op: name, Args: args, GradMode: mode})
	if err != nil {
		return 0, err
	}
	u.made = append(u.made, answer.GetOutputs()[0].GetId())
	return answer.GetOutputs()[0].GetId(), nil
}

func (u *unary) take(ctx context.Context, steps int) error {
	for range steps {
		u.made = nil
		if err := u.step(ctx); err != nil {
			return err
		}
		if _, err := u.client.Release(ctx, &pb.ReleaseRequest{SessionId: u.session, Tensors: u.made}); err != nil {
			return err
		}
	}
	return nil
}

func (u *unary) step(ctx context.Context) error {
	hidden := u.inputs
	var err error
	apply := func(mode pb.GradMode, name string, args ...*pb.Argument) (made uint64) {
		if err == nil {
			made, err = u.op(ctx, name, mode, args...)
		}
		return made
	}
	const on, off = pb.GradMode_GRAD_MODE_ENABLED, pb.GradMode_GRAD_MODE_DISABLED
	for i := 0; i < len(u.parameters); i += 2 {
		hidden = apply(on, "matmul", tensor(hidden), tensor(u.parameters[i]))
		hidden = apply(on, "add", tensor(hidden), tensor(u.parameters[i+1]))
		if i == 0 {
			hidden = apply(on, "relu", tensor(hidden))
		}
	}
	loss := apply(on, "cross_entropy", tensor(hidden), tensor(u.labels))
	if err != nil {
		return err
	}
	if _, err := u.client.Backward(ctx, &pb.BackwardRequest{SessionId: u.session, Tensors: []uint64{loss}}); err != nil {
		return err
	}
	for _, each := range u.parameters {
		found, err := u.client.Grad(ctx, &pb.GradRequest{SessionId: u.session, Tensor: each})
		if err != nil {
			return err
		}
		gradient := found.GetGrad().GetId()
		u.made = append(u.made, gradient)
		scaled := apply(off, "mul", tensor(gradient), &pb.Argument{Kind: &pb.Argument_Float{Float: rate}})
		apply(off, "sub_", tensor(each), tensor(scaled))
		u.made = u.made[:len(u.made)-1] // the parameter itself
		if _, err := u.client.SetGrad(ctx, &pb.SetGradRequest{SessionId: u.session, Tensor: each}); err != nil {
			return err
		}
	}
	return err
}
