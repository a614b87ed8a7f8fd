package gradwire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

const (
	defaultChunk = 256 << 10
	leastChunk   = 4 << 10 // to which chunks shrink while calls break before one has arrived
)

// endedEarly is the failure of a transfer whose call ended well, but without all bytes: it is tried again.
func endedEarly() *Error { return &Error{Code: codes.Unavailable, Message: "the transfer ended early"} }

// upload sends values in chunks. After a broken call it asks how many bytes have arrived, and sends the others.
func (s *Session) upload(ctx context.Context, data []byte) (*pb.Transfer, error) {
	made := &pb.Transfer{TotalBytes: uint64(len(data))}
	request, arrived, broke := s.requestID(), uint64(0), false
	most := int(s.opened.GetLimits().GetChunkBytes())
	if most <= 0 {
		most = defaultChunk
	}
	chunk := most
	err := s.resumed(ctx, func() (bool, *Error) {
		start := &pb.UploadStart{SessionId: s.ID(), TotalBytes: made.TotalBytes, RequestId: request}
		before := arrived
		if broke {
			state, failure := s.uploadFrom(ctx, start, nil, chunk)
			if failure != nil {
				return false, failure
			}
			arrived = min(state.GetReceivedBytes(), made.TotalBytes)
			if arrived > before {
				chunk = min(2*chunk, most)
			} else { // a chunk arrives as a whole or not at all
				chunk = max(chunk/2, min(leastChunk, most))
			}
			start.TransferId, start.Offset = state.GetTransferId(), arrived
		}
		broke = true
		state, failure := s.uploadFrom(ctx, start, data[arrived:], chunk)
		if failure == nil && state.GetReceivedBytes() != made.TotalBytes {
			failure = endedEarly()
		}
		made.TransferId = state.GetTransferId()
		return arrived > before, failure
	})
	return made, err
}

// uploadFrom makes one call of Upload.
func (s *Session) uploadFrom(
	ctx context.Context, start *pb.UploadStart, data []byte, chunk int,
) (*pb.UploadResponse, *Error) {
	_, address := s.places.current()
	stream, err := s.client.Upload(ctx)
	if err != nil {
		return nil, s.noted(address, fromStatus(err, nil))
	}
	err = stream.Send(&pb.UploadRequest{Part: &pb.UploadRequest_Start{Start: start}})
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
	preferHugePages(data)
	at := uint64(0)
	err := s.resumed(ctx, func() (bool, *Error) {
		before := at
		_, address := s.places.current()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var trailer metadata.MD
		request := &pb.DownloadRequest{SessionId: s.ID(), TransferId: transfer.GetTransferId(), Offset: at}
		stream, err := s.client.Download(ctx, request, grpc.Trailer(&trailer))
		for err == nil {
			var part *pb.DownloadResponse
			if part, err = stream.Recv(); err == nil {
				if part.GetOffset() != at || len(part.GetData()) > len(data)-int(at) {
					return false, refusal(pb.Reason_REASON_INTERNAL, "", "the server sent other bytes than those of the transfer")
				}
				at += uint64(copy(data[at:], part.GetData()))
			}
		}
		switch {
		case at == transfer.GetTotalBytes():
			return true, nil
		case errors.Is(err, io.EOF):
			return at > before, endedEarly()
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
		case !failure.mayRetry():
			return failure
		case !progress && time.Since(since) > s.patient:
			return &Error{Reason: ReasonUnavailable, Code: codes.Unavailable,
				Message: fmt.Sprintf("no byte of a large value arrived for %s: %s", s.patient, failure.Message)}
		case progress:
			since, pause = time.Now(), firstPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, longestPause)
	}
}
