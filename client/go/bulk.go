package gradwire

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

const defaultChunk = 256 << 10

// upload sends values in chunks. After a broken call it asks how many bytes have arrived, and sends the others.
func (s *Session) upload(ctx context.Context, data []byte) (*pb.Transfer, error) {
	start := &pb.UploadStart{SessionId: s.ID(), TotalBytes: uint64(len(data)), RequestId: s.requestID()}
	err := s.resumed(ctx, func() (bool, *Error) {
		state, failure := s.uploadFrom(ctx, start, nil)
		if failure == nil {
			at := state.GetReceivedBytes()
			start.TransferId, start.Offset = state.GetTransferId(), at
			state, failure = s.uploadFrom(ctx, start, data[at:])
			start.TransferId, start.Offset = "", 0
			return failure == nil && state.GetReceivedBytes() > at, failure
		}
		return false, failure
	})
	if err != nil {
		return nil, err
	}
	state, failure := s.uploadFrom(ctx, start, nil)
	if failure != nil {
		return nil, failure
	}
	return &pb.Transfer{TransferId: state.GetTransferId(), TotalBytes: uint64(len(data))}, nil
}

// uploadFrom makes one call of Upload.
func (s *Session) uploadFrom(ctx context.Context, start *pb.UploadStart, data []byte) (*pb.UploadResponse, *Error) {
	_, address := s.places.current()
	stream, err := s.client.Upload(ctx)
	if err != nil {
		return nil, s.noted(address, fromStatus(err, nil))
	}
	err = stream.Send(&pb.UploadRequest{Part: &pb.UploadRequest_Start{Start: start}})
	chunk := int(s.opened.GetLimits().GetChunkBytes())
	if chunk <= 0 {
		chunk = defaultChunk
	}
	for err == nil && len(data) > 0 {
		part := data[:min(chunk, len(data))]
		data = data[len(part):]
		err = stream.Send(&pb.UploadRequest{Part: &pb.UploadRequest_Data{Data: part}})
	}
	state, err := stream.CloseAndRecv()
	if err != nil {
		return nil, s.noted(address, fromStatus(err, stream.Trailer()))
	}
	return state, nil
}

// noted is a failure after which later calls may go to another server.
func (s *Session) noted(address string, failure *Error) *Error {
	s.places.failed(address, failure)
	return failure
}

// download fetches a transfer's bytes, and goes on after a broken call where it broke.
func (s *Session) download(ctx context.Context, transfer *pb.Transfer) ([]byte, error) {
	data := make([]byte, transfer.GetTotalBytes())
	at := uint64(0)
	err := s.resumed(ctx, func() (bool, *Error) {
		before := at
		_, address := s.places.current()
		var trailer metadata.MD
		request := &pb.DownloadRequest{SessionId: s.ID(), TransferId: transfer.GetTransferId(), Offset: at}
		stream, err := s.client.Download(ctx, request, grpc.Trailer(&trailer))
		for err == nil {
			var part *pb.DownloadResponse
			if part, err = stream.Recv(); err == nil {
				at = part.GetOffset() + uint64(copy(data[part.GetOffset():], part.GetData()))
			}
		}
		if errors.Is(err, io.EOF) || at == transfer.GetTotalBytes() {
			return true, nil
		}
		return at > before, s.noted(address, fromStatus(err, trailer))
	})
	return data, err
}

// resumed repeats a part of a transfer until it succeeds. It gives up after the session's patience without progress.
func (s *Session) resumed(ctx context.Context, part func() (progress bool, _ *Error)) error {
	since, pause := time.Now(), firstPause
	for {
		progress, failure := part()
		switch {
		case failure == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !failure.mayRetry() || (!progress && time.Since(since) > s.patient):
			return failure
		case progress:
			since, pause = time.Now(), firstPause
		}
		time.Sleep(pause)
		pause = min(2*pause, longestPause)
	}
}
