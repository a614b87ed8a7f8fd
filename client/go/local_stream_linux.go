package gradwire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// lastMessage is set in the length of a stream's last message, its status.
const lastMessage = 1 << 31

// localWire is a stream over a Unix socket in the abstract namespace: each message follows its length.
type localWire struct {
	conn   net.Conn
	reader *bufio.Reader
	once   sync.Once
}

// openLocal opens a stream. It fails if the socket is not on this machine, or is another user's.
func openLocal(name string) (wire, error) {
	conn, err := net.Dial("unix", "@"+name)
	if err != nil {
		return nil, err
	}
	if err := sameUser(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &localWire{conn: conn, reader: bufio.NewReaderSize(conn, 64<<10)}, nil
}

func sameUser(conn net.Conn) error {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return err
	}
	var peer *syscall.Ucred
	var failed error
	err = raw.Control(func(descriptor uintptr) {
		peer, failed = syscall.GetsockoptUcred(int(descriptor), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if int(peer.Uid) != os.Geteuid() {
		return fmt.Errorf("the socket is user %d's", peer.Uid)
	}
	return nil
}

func (w *localWire) Send(message *pb.StreamRequest) error {
	framed, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4, 4+proto.Size(message)), message)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(framed, uint32(len(framed)-4))
	_, err = w.conn.Write(framed)
	return err
}

func (w *localWire) Recv() (*pb.StreamResponse, error) {
	var head [4]byte
	if _, err := io.ReadFull(w.reader, head[:]); err != nil {
		return nil, broken(err)
	}
	length := binary.LittleEndian.Uint32(head[:])
	data := make([]byte, length&^lastMessage)
	if _, err := io.ReadFull(w.reader, data); err != nil {
		return nil, broken(err)
	}
	if length&lastMessage != 0 {
		return nil, ended(data)
	}
	message := &pb.StreamResponse{}
	return message, proto.Unmarshal(data, message)
}

// broken is the error of a connection that ended without a status.
func broken(err error) error {
	return &Error{Code: codes.Unavailable, Message: "the local stream broke: " + err.Error()}
}

// ended is the error of a stream's google.rpc.Status.
func ended(data []byte) error {
	told := &status.Status{}
	if err := proto.Unmarshal(data, told); err != nil {
		return err
	}
	if told.GetCode() == int32(codes.OK) {
		return io.EOF
	}
	for _, detail := range told.GetDetails() {
		info := &errdetails.ErrorInfo{}
		if detail.UnmarshalTo(info) == nil {
			if reason, known := pb.Reason_value["REASON_"+info.GetReason()]; known {
				return fromProto(&pb.Error{
					Code: told.GetCode(), Reason: pb.Reason(reason), Message: told.GetMessage(), Metadata: info.GetMetadata(),
				})
			}
		}
	}
	return &Error{Code: codes.Code(told.GetCode()), Message: told.GetMessage()}
}

func (w *localWire) refusal(err error) *Error {
	var told *Error
	if errors.As(err, &told) {
		return told
	}
	return &Error{Code: codes.Unavailable, Message: err.Error()}
}

func (w *localWire) close() {
	w.once.Do(func() { _ = w.conn.Close() }) // an error here has no consequence
}
