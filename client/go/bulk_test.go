package gradwire

import (
	"bytes"
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

func idle(_ uint32, stream pb.AutogradService_StreamServer) error {
	if err := attached(stream, 1<<20); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func numbered(size int) []byte {
	made := make([]byte, size)
	for i := range made {
		made[i] = byte(i % 251)
	}
	return made
}

func TestAnUploadThatBreaksSendsTheOtherBytes(t *testing.T) {
	var received []byte
	breaks := 3
	upload := func(stream pb.AutogradService_UploadServer) error {
		first, err := stream.Recv()
		if err != nil {
			return err
		}
		if first.GetStart().GetTransferId() != "" && first.GetStart().GetOffset() != uint64(len(received)) {
			return status.Error(codes.InvalidArgument, "a wrong offset")
		}
		for message, err := stream.Recv(); err == nil; message, err = stream.Recv() {
			received = append(received, message.GetData()...)
			if breaks > 0 {
				breaks--
				return status.Error(codes.Unavailable, "the connection broke")
			}
		}
		return stream.SendAndClose(&pb.UploadResponse{TransferId: "t", ReceivedBytes: uint64(len(received))})
	}
	session := (&scripted{stream: idle, upload: upload}).open(t)
	defer session.Close()
	data := numbered(5*defaultChunk + 7)
	made, err := session.upload(t.Context(), data)
	if err != nil || made.GetTransferId() != "t" || made.GetTotalBytes() != uint64(len(data)) || !bytes.Equal(received, data) {
		t.Fatal(made, len(received), err)
	}
}

func TestAnUploadWhoseChunksDoNotArriveSendsSmallerOnes(t *testing.T) {
	var received []byte
	upload := func(stream pb.AutogradService_UploadServer) error {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		for message, err := stream.Recv(); err == nil; message, err = stream.Recv() {
			if len(message.GetData()) > 10_000 {
				return status.Error(codes.Unavailable, "the connection broke")
			}
			received = append(received, message.GetData()...)
		}
		return stream.SendAndClose(&pb.UploadResponse{TransferId: "t", ReceivedBytes: uint64(len(received))})
	}
	session := (&scripted{stream: idle, upload: upload}).open(t)
	defer session.Close()
	data := numbered(300_000)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := session.upload(ctx, data); err != nil || !bytes.Equal(received, data) {
		t.Fatal(len(received), err)
	}
}

func TestADownloadThatEndsEarlyIsResumed(t *testing.T) {
	data := numbered(300_000)
	download := func(request *pb.DownloadRequest, stream pb.AutogradService_DownloadServer) error {
		at := request.GetOffset()
		end := min(at+100_000, uint64(len(data))) // the call then ends well
		return stream.Send(&pb.DownloadResponse{Offset: at, Data: data[at:end]})
	}
	session := (&scripted{stream: idle, download: download}).open(t)
	defer session.Close()
	transfer := &pb.Transfer{TransferId: "t", TotalBytes: uint64(len(data))}
	if found, err := session.download(t.Context(), transfer); err != nil || !bytes.Equal(found, data) {
		t.Fatal(len(found), err)
	}
}

func TestADownloadOfOtherBytesFails(t *testing.T) {
	download := func(_ *pb.DownloadRequest, stream pb.AutogradService_DownloadServer) error {
		return stream.Send(&pb.DownloadResponse{Offset: 7, Data: []byte("other")})
	}
	session := (&scripted{stream: idle, download: download}).open(t)
	defer session.Close()
	if _, err := session.download(t.Context(), &pb.Transfer{TransferId: "t", TotalBytes: 10}); err == nil {
		t.Fatal("it did not fail")
	}
}
