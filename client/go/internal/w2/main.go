// Command w2 measures steps and large values for `python -m benchmarks.languages`, which documents the lines that it
// reads and answers.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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

var (
	sizes = []int{64, 256, 10}
	tiny  = []int{8, 8, 4}
)

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
		var count int
		if _, err := fmt.Sscan(lines.Text(), &mode, &count); err != nil {
			log.Fatal(err)
		}
		seconds, err := b.measure(ctx, mode, count)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(seconds)
	}
	if err := session.Close(); err != nil {
		log.Fatal(err)
	}
}

type bench struct {
	session *gradwire.Session
	net     network
	small   network
	program *gradwire.Program
	unary   *unary
}

// network is what a step needs: a network and a batch for it.
type network struct {
	parameters []*gradwire.Tensor
	inputs     *gradwire.Tensor
	labels     *gradwire.Tensor
}

func newNetwork(session *gradwire.Session, sizes []int, batch int) network {
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
	n := network{
		inputs: gradwire.FromSlice(session, normal(batch*sizes[0], 1), batch, sizes[0]),
		labels: gradwire.FromSlice(session, labels),
	}
	for i, columns := range sizes[1:] {
		rows := sizes[i]
		weight := gradwire.FromSlice(session, normal(rows*columns, 1/math.Sqrt(float64(rows))), rows, columns)
		n.parameters = append(n.parameters, weight.SetRequiresGrad(true),
			session.Zeros([]int{columns}).SetRequiresGrad(true))
	}
	return n
}

func prepare(ctx context.Context, session *gradwire.Session) (*bench, error) {
	b := &bench{session: session, net: newNetwork(session, sizes, batch), small: newNetwork(session, tiny, 4)}
	var signature gradwire.Signature
	for _, each := range b.net.bound() {
		input, err := gradwire.InputLike(ctx, each)
		if err != nil {
			return nil, err
		}
		signature.Inputs = append(signature.Inputs, input)
	}
	var err error
	b.program, err = session.Trace(ctx, signature,
		func(p *gradwire.Session, in []*gradwire.Tensor, _ []gradwire.Number) ([]*gradwire.Tensor, error) {
			loss, err := step(ctx, p, network{in[:4], in[4], in[5]})
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

func (n network) bound() []*gradwire.Tensor { return append(n.parameters[:4:4], n.inputs, n.labels) }

// step is a step of gradient descent.
func step(ctx context.Context, session *gradwire.Session, n network) (*gradwire.Tensor, error) {
	hidden := n.inputs.Matmul(n.parameters[0]).Add(n.parameters[1]).Relu()
	loss := functional.CrossEntropy(hidden.Matmul(n.parameters[2]).Add(n.parameters[3]), n.labels)
	if err := loss.Backward(ctx); err != nil {
		return nil, err
	}
	session.NoGrad(func() {
		for _, each := range n.parameters {
			each.SubInPlace(each.Grad().Mul(rate))
			each.ZeroGrad()
		}
	})
	return loss, nil
}

// measure returns the seconds of a line's work.
func (b *bench) measure(ctx context.Context, mode string, count int) (seconds float64, err error) {
	switch mode {
	case "upload":
		return upload(ctx, b.session, count)
	case "download":
		return download(ctx, b.session, count)
	case "bare-upload":
		return b.unary.upload(ctx, count)
	case "bare-download":
		return b.unary.download(ctx, count)
	}
	begun := time.Now()
	err = b.take(ctx, mode, count)
	return time.Since(begun).Seconds(), err
}

// take takes steps and reads the last loss.
func (b *bench) take(ctx context.Context, mode string, steps int) error {
	return b.session.Tidy(func() error {
		var loss *gradwire.Tensor
		one := func() (err error) {
			switch mode {
			case "program":
				loss = b.program.Run(b.net.bound())[0]
			case "memory":
				loss, err = step(ctx, b.session, b.small)
			case "stream":
				loss, err = step(ctx, b.session, b.net)
			default:
				return fmt.Errorf("unknown mode %q", mode)
			}
			return err
		}
		switch mode {
		case "unary":
			return b.unary.take(ctx, steps)
		case "repeated":
			loss = b.program.Run(b.net.bound(), gradwire.RunOptions{Repeat: steps})[0]
		default:
			for i := range steps {
				err := b.session.Tidy(func() error {
					err := one()
					if err == nil && i == steps-1 {
						loss.Keep()
					}
					return err
				})
				if err != nil {
					return err
				}
			}
		}
		defer loss.Release()
		value, err := loss.Item(ctx)
		if err == nil && !(value > 0) {
			err = fmt.Errorf("the loss is %v", value)
		}
		return err
	})
}

func upload(ctx context.Context, session *gradwire.Session, mib int) (float64, error) {
	values := make([]float32, mib<<18)
	begun := time.Now()
	made := gradwire.FromSlice(session, values)
	err := session.Wait(ctx)
	seconds := time.Since(begun).Seconds()
	made.Release()
	return seconds, err
}

func download(ctx context.Context, session *gradwire.Session, mib int) (float64, error) {
	held := session.Ones([]int{mib << 18})
	defer held.Release()
	if err := session.Wait(ctx); err != nil {
		return 0, err
	}
	begun := time.Now()
	values, err := gradwire.Values[float32](ctx, held)
	seconds := time.Since(begun).Seconds()
	if err == nil && values[len(values)-1] != 1 {
		err = errors.New("the values are wrong")
	}
	return seconds, err
}

// unary takes the steps by single calls of the generated stub, each of which waits.
type unary struct {
	client     pb.AutogradServiceClient
	session    string
	chunk      int
	inputs     uint64
	labels     uint64
	parameters []uint64
	made       []uint64
}

func newUnary(ctx context.Context, session *gradwire.Session) (*unary, error) {
	client := session.Client()
	opened, err := client.OpenSession(ctx, &pb.OpenSessionRequest{Client: "w2-unary", LeaseMs: 3_600_000})
	if err != nil {
		return nil, err
	}
	u := &unary{
		client: client, session: opened.GetSessionId(), chunk: int(opened.GetLimits().GetChunkBytes()),
	}
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

func (u *unary) release(ctx context.Context, tensor uint64) error {
	_, err := u.client.Release(ctx, &pb.ReleaseRequest{SessionId: u.session, Tensors: []uint64{tensor}})
	return err
}

func (u *unary) upload(ctx context.Context, mib int) (float64, error) {
	data := make([]byte, mib<<20)
	total := uint64(len(data))
	begun := time.Now()
	stream, err := u.client.Upload(ctx)
	if err != nil {
		return 0, err
	}
	start := &pb.UploadStart{SessionId: u.session, TotalBytes: total}
	err = stream.Send(&pb.UploadRequest{Part: &pb.UploadRequest_Start{Start: start}})
	for at := 0; at < len(data) && err == nil; at += u.chunk {
		part := &pb.UploadRequest_Data{Data: data[at:min(at+u.chunk, len(data))]}
		err = stream.Send(&pb.UploadRequest{Part: part})
	}
	told, err := stream.CloseAndRecv()
	if err != nil {
		return 0, err
	}
	seconds := time.Since(begun).Seconds()
	transfer := &pb.Transfer{
		TransferId: told.GetTransferId(), Dtype: pb.Dtype_DTYPE_UINT8, Shape: []int64{int64(total)}, TotalBytes: total,
	}
	request := &pb.CreateRequest{SessionId: u.session, Source: &pb.CreateRequest_Transfer{Transfer: transfer}}
	made, err := u.client.Create(ctx, request)
	if err != nil {
		return 0, err
	}
	return seconds, u.release(ctx, made.GetTensor().GetId())
}

func (u *unary) download(ctx context.Context, mib int) (float64, error) {
	size := &pb.Argument{Kind: &pb.Argument_Integers{Integers: &pb.IntList{Values: []int64{int64(mib) << 18}}}}
	made, err := u.op(ctx, "ones", pb.GradMode_GRAD_MODE_DISABLED, size)
	if err != nil {
		return 0, err
	}
	read, err := u.client.Read(ctx, &pb.ReadRequest{SessionId: u.session, Tensor: made})
	if err != nil {
		return 0, err
	}
	request := &pb.DownloadRequest{SessionId: u.session, TransferId: read.GetTransfer().GetTransferId()}
	begun, received := time.Now(), 0
	stream, err := u.client.Download(ctx, request)
	for err == nil {
		var part *pb.DownloadResponse
		part, err = stream.Recv()
		received += len(part.GetData())
	}
	seconds := time.Since(begun).Seconds()
	if !errors.Is(err, io.EOF) {
		return 0, err
	}
	if received != mib<<20 {
		return 0, fmt.Errorf("%d bytes came, not %d", received, mib<<20)
	}
	return seconds, u.release(ctx, made)
}
