package gradwire_test

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// The code of docs/other-languages.md, which uses the stubs alone.
func byStubs(ctx context.Context, address string) (float32, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	client := pb.NewAutogradServiceClient(conn)
	opened, err := client.OpenSession(ctx, &pb.OpenSessionRequest{Client: "go"})
	session := opened.GetSessionId()

	data := binary.LittleEndian.AppendUint32(nil, math.Float32bits(3))
	payload := &pb.Payload{Dtype: pb.Dtype_DTYPE_FLOAT32, Data: data}
	created, err := client.Create(ctx, &pb.CreateRequest{
		SessionId: session, RequiresGrad: true, Source: &pb.CreateRequest_Payload{Payload: payload},
	})
	a := created.GetTensor().GetId()
	argument := &pb.Argument{Kind: &pb.Argument_Tensor{Tensor: a}}
	made, err := client.Op(ctx, &pb.OpRequest{SessionId: session, Op: "mul", Args: []*pb.Argument{argument, argument}})
	b := made.GetOutputs()[0].GetId()
	_, err = client.Backward(ctx, &pb.BackwardRequest{SessionId: session, Tensors: []uint64{b}})
	gradient, err := client.Grad(ctx, &pb.GradRequest{SessionId: session, Tensor: a})
	read, err := client.Read(ctx, &pb.ReadRequest{SessionId: session, Tensor: gradient.GetGrad().GetId()})
	value := math.Float32frombits(binary.LittleEndian.Uint32(read.GetPayload().GetData())) // 6
	_, err = client.CloseSession(ctx, &pb.CloseSessionRequest{SessionId: session})
	return value, err
}

func TestStubsGiveAGradient(t *testing.T) {
	value, err := byStubs(t.Context(), fromEnvironment(t, "GRADWIRE_ADDRESS"))
	if err != nil || value != 6 {
		t.Fatal(value, err)
	}
}

func TestThePageOfStubsIsTested(t *testing.T) {
	text, err := os.ReadFile("../../docs/other-languages.md")
	if err != nil {
		t.Fatal(err)
	}
	tested, err := os.ReadFile("stubs_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```go\n")
	block, _, _ = strings.Cut(block, "```")
	block = strings.ReplaceAll(strings.TrimSpace(block), `"127.0.0.1:50051"`, "address")
	if !found || !strings.Contains(strings.ReplaceAll(string(tested), "\n\t", "\n"), block) {
		t.Error("stubs_test.go does not have this code:\n" + block)
	}
}
