package gradwire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

type options struct {
	transport credentials.TransportCredentials
	token     string
	lease     time.Duration
	patience  time.Duration
	client    string
	device    string
	dial      []grpc.DialOption
	local     bool
}

// Option changes how Connect opens a session.
type Option func(*options) error

// WithTLS encrypts the connection. A nil config trusts the system's authorities.
func WithTLS(config *tls.Config) Option {
	return func(o *options) error {
		o.transport = credentials.NewTLS(config)
		return nil
	}
}

// WithCA encrypts the connection and trusts the authorities of a PEM file.
func WithCA(path string) Option {
	return func(o *options) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(data) {
			return errors.New("gradwire: no certificate in " + path)
		}
		o.transport = credentials.NewTLS(&tls.Config{RootCAs: pool})
		return nil
	}
}

// WithToken authenticates every call with "authorization: Bearer <token>". An empty token is none.
func WithToken(token string) Option {
	return func(o *options) error {
		// gRPC would try a header again that it cannot send, and its error would show the token.
		invisible := func(r rune) bool { return r < '!' || r > '~' }
		if len(token) > 4096 || strings.ContainsFunc(token, invisible) {
			return refusal(ReasonArgumentValue, "", "a token is 1 to 4096 visible ASCII characters; this one is something else")
		}
		o.token = token
		return nil
	}
}

// WithLease asks for a lease: how long the session lives without traffic. The session renews it until Close.
func WithLease(lease time.Duration) Option {
	return func(o *options) error { o.lease = lease; return nil }
}

// WithPatience sets how long a broken connection is tried again before the session fails. The default is 120 seconds.
func WithPatience(patience time.Duration) Option {
	return func(o *options) error { o.patience = patience; return nil }
}

// WithDeviceType asks for the type of a device that the session needs, such as "cuda". A cluster opens it at a server
// that has one. If no server has, the error is ReasonDeviceUnavailable.
func WithDeviceType(deviceType string) Option {
	return func(o *options) error { o.device = deviceType; return nil }
}

// WithClientName sets the name that the server's log shows.
func WithClientName(name string) Option {
	return func(o *options) error { o.client = name; return nil }
}

// WithLocalStream says whether the stream uses a Unix socket if the server is on this machine and of this user: the default,
// unless the environment has GRADWIRE_LOCAL_STREAM=0. Only Linux has such sockets.
func WithLocalStream(local bool) Option {
	return func(o *options) error { o.local = local; return nil }
}

// WithDialOptions adds options of gRPC, for example interceptors.
func WithDialOptions(dial ...grpc.DialOption) Option {
	return func(o *options) error { o.dial = append(o.dial, dial...); return nil }
}

func (o *options) dialOptions() []grpc.DialOption {
	quick := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}
	all := []grpc.DialOption{
		grpc.WithTransportCredentials(o.transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: 5 * time.Second}),
	}
	if o.token != "" {
		all = append(all, grpc.WithPerRPCCredentials(bearer{o.token, o.secure()}))
	}
	return append(all, o.dial...)
}

// secure says whether connections are encrypted.
func (o *options) secure() bool {
	_, plain := o.transport.(interface{ gradwirePlain() })
	return !plain
}

// plainText is the default: a connection without encryption.
type plainText struct {
	credentials.TransportCredentials
}

func (plainText) gradwirePlain() {}

func newPlainText() credentials.TransportCredentials {
	return plainText{insecure.NewCredentials()}
}

type bearer struct {
	token  string
	secure bool
}

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity allows a token without TLS only where the caller chose no TLS: a server on the same machine.
func (b bearer) RequireTransportSecurity() bool { return b.secure }
