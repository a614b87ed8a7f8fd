package gradwire

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// distrusted says whether a connection failed because of the server's certificate: trying again does not help.
func (e *Error) distrusted() bool {
	return e.Reason == pb.Reason_REASON_UNSPECIFIED && strings.Contains(e.Message, "x509:")
}

// advised is the error of opening a session, with what to do about it where that is known.
func (o *options) advised(err error) error {
	var told *Error
	if !errors.As(err, &told) {
		return err
	}
	with := *told
	if with.Reason == pb.Reason_REASON_UNSPECIFIED && with.Code == codes.Unavailable {
		with.Reason = ReasonUnavailable
	}
	has := func(text string) bool { return strings.Contains(told.Message, text) }
	advice := ""
	switch {
	case with.Reason == pb.Reason_REASON_UNAUTHENTICATED && o.token == "":
		advice = "No token was given: use WithToken. `gradwire token NAME` makes one."
	case with.Reason == pb.Reason_REASON_UNAUTHENTICATED:
		advice = "The token of WithToken is unknown to this server, or has expired."
	case told.distrusted():
		advice = "The server's certificate is not trusted: give the authority that signed it by WithCA, and connect to a name " +
			"that the certificate contains."
	case has("first record does not look like a TLS handshake"):
		advice = "The server seems not to use TLS: leave out WithTLS and WithCA."
	case has("server preface") && !o.secure():
		advice = "The server seems to use TLS: give the authority that signed its certificate by WithCA, or use WithTLS(nil) " +
			"for a public one."
	case has("connection refused"):
		advice = "No server listens there: start `gradwire serve`, or check the host and the port."
	case has("name resolver error"), has("no such host"):
		advice = "The host's name cannot be resolved: check its spelling, or give its IP address."
	}
	if advice != "" {
		with.Message += ". " + advice
	}
	return &with
}
