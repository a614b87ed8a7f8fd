package gradwire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// servers are the addresses of a cluster's servers, with a connection to the one in use. Calls go to that one.
type servers struct {
	options *options
	given   []string

	mu      sync.Mutex
	address string
	next    int // of the given addresses
	conns   map[string]*grpc.ClientConn
	closed  bool
}

// newServers prepares connections to "host:port,host:port". The first call connects.
func newServers(addresses string, options *options) (*servers, error) {
	v := &servers{options: options, next: 1, conns: map[string]*grpc.ClientConn{}}
	for _, each := range strings.Split(addresses, ",") {
		v.given = append(v.given, strings.TrimSpace(each))
	}
	v.address = v.given[0]
	_, err := v.dial(v.address)
	return v, err
}

// dial returns the connection to an address. Callers hold mu, except newServers.
func (v *servers) dial(address string) (*grpc.ClientConn, error) {
	if known := v.conns[address]; known != nil {
		return known, nil
	}
	options := v.options.dialOptions()
	if host, _, err := net.SplitHostPort(v.given[0]); err == nil && !slices.Contains(v.given, address) &&
		v.options.secure() && v.options.transport.Info().ServerName == "" {
		// A server that another one named must prove the name that the program gave.
		options = append(options, grpc.WithAuthority(host))
	}
	made, err := grpc.NewClient(address, options...)
	if err != nil {
		return nil, fmt.Errorf("gradwire: %w", err)
	}
	v.conns[address] = made
	return made, nil
}

// current returns the connection in use, with its address.
func (v *servers) current() (*grpc.ClientConn, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.conns[v.address], v.address
}

// failed chooses the server of later calls after one at `address` failed: the one that has the session, or the next if
// `address` was not reached.
func (v *servers) failed(address string, failure *Error) {
	switch {
	case failure.Reason == pb.Reason_REASON_SESSION_MOVED:
		v.move(address, failure.Metadata["endpoint"])
	case failure.Reason == pb.Reason_REASON_UNSPECIFIED && failure.Code == codes.Unavailable:
		v.move(address, "")
	}
}

// move uses `endpoint` from now on, or the next given address if it is empty. It does nothing if `address` is no longer
// in use.
func (v *servers) move(address, endpoint string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed || address != v.address {
		return
	}
	if endpoint != "" {
		if _, err := v.dial(endpoint); err == nil {
			v.address = endpoint
			return
		}
	}
	endpoint = v.given[v.next%len(v.given)]
	v.next++
	if _, err := v.dial(endpoint); err == nil {
		v.address = endpoint
	}
}

func (v *servers) close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.closed = true
	var all error
	for _, each := range v.conns {
		all = errors.Join(all, each.Close())
	}
	return all
}

// Invoke makes a unary call at the server in use.
func (v *servers) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	conn, _ := v.current()
	return conn.Invoke(ctx, method, args, reply, opts...)
}

// NewStream begins a streaming call at the server in use.
func (v *servers) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	conn, _ := v.current()
	return conn.NewStream(ctx, desc, method, opts...)
}
