package gradwire_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	gradwire "github.com/gradwire/gradwire/client/go"
	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

func fromEnvironment(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Skipf("it needs a server; set %s, or run make test-sdks", name)
	}
	return value
}

// dead is an address at which no server listens.
func dead(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestATokenThatNoHeaderHoldsIsRefusedAtOnce(t *testing.T) {
	for _, token := range []string{"wröng", "of a file\n", strings.Repeat("a", 4097)} {
		begun := time.Now()
		_, err := gradwire.Connect(t.Context(), "localhost:1", gradwire.WithToken(token))
		var told *gradwire.Error
		if !errors.As(err, &told) || told.Reason != gradwire.ReasonArgumentValue || strings.Contains(err.Error(), token) {
			t.Error(err)
		}
		if time.Since(begun) > 2*time.Second {
			t.Error("it was tried again")
		}
	}
}

func TestTLSAndTokens(t *testing.T) {
	address, ca := fromEnvironment(t, "GRADWIRE_SECURE"), fromEnvironment(t, "GRADWIRE_SECURE_CA")
	other, token := fromEnvironment(t, "GRADWIRE_SECURE_OTHER_CA"), fromEnvironment(t, "GRADWIRE_SECURE_TOKEN")
	for _, each := range []struct {
		name    string
		options []gradwire.Option
		reason  gradwire.Reason
		told    string // part of the sentence that says what to do
	}{
		{"right", []gradwire.Option{gradwire.WithCA(ca), gradwire.WithToken(token)}, 0, ""},
		{"no token", []gradwire.Option{gradwire.WithCA(ca)}, pb.Reason_REASON_UNAUTHENTICATED, "WithToken"},
		{"wrong token", []gradwire.Option{gradwire.WithCA(ca), gradwire.WithToken("wrong")}, pb.Reason_REASON_UNAUTHENTICATED, "WithToken"},
		{"wrong authority", []gradwire.Option{gradwire.WithCA(other), gradwire.WithToken(token)}, pb.Reason_REASON_UNAVAILABLE, "WithCA"},
		{"no TLS", []gradwire.Option{gradwire.WithToken(token)}, pb.Reason_REASON_UNAVAILABLE, "WithTLS"},
	} {
		t.Run(each.name, func(t *testing.T) {
			options := append(each.options, gradwire.WithPatience(200*time.Millisecond))
			session, err := gradwire.Connect(t.Context(), address, options...)
			if err == nil {
				value, err := session.Ones([]int{2}).Sum().Item(t.Context())
				if err := errors.Join(err, session.Close()); each.name != "right" || value != 2 || err != nil {
					t.Fatal(value, err)
				}
				return
			}
			var refusal *gradwire.Error
			if !errors.As(err, &refusal) || refusal.Reason != each.reason || !strings.Contains(err.Error(), each.told) {
				t.Fatal(err)
			}
		})
	}
}

func TestADeadSeedIsPassedOver(t *testing.T) {
	session, err := gradwire.Connect(t.Context(), dead(t)+", "+fromEnvironment(t, "GRADWIRE_ADDRESS"))
	if err != nil {
		t.Fatal(err)
	}
	if value, err := session.Ones([]int{3}).Sum().Item(t.Context()); err != nil || value != 3 {
		t.Fatal(value, err)
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestASessionThatMovesIsFollowed(t *testing.T) {
	address := fromEnvironment(t, "GRADWIRE_MOVING")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	session, err := gradwire.Connect(ctx, address, gradwire.WithLocalStream(false))
	if err != nil {
		t.Fatal(err)
	}
	sum := session.Zeros([]int{})
	for range 2000 {
		sum.AddInPlace(1)
	}
	if value, err := sum.Item(ctx); err != nil || value != 2000 {
		t.Fatal(value, err)
	}
	if session.Reconnects() == 0 {
		t.Fatal("the session did not move")
	}
	large := make([]float32, 1<<20)
	large[len(large)-1] = 7
	if values, err := gradwire.Values[float32](ctx, gradwire.FromSlice(session, large)); err != nil || values[len(large)-1] != 7 {
		t.Fatal(err)
	}
	if err := session.Close(); err != nil {
		t.Fatal(err)
	}
}
