package gradwire

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "github.com/gradwire/gradwire/client/go/gradwirepb"
)

// vectors are those of tests/conformance/golden.json.
type vectors struct {
	PreparedCalls []struct {
		Number  uint32
		Op      string
		Args    []map[string]json.RawMessage
		Named   map[string]map[string]json.RawMessage
		Outputs []uint64
		Words   string
	} `json:"prepared_calls"`
	Programs []struct{ Bytes, Sha256 string }
	Errors   []struct {
		Bytes, Reason, Message string
		Code                   uint32
		Metadata               map[string]string
	}
}

func golden(t *testing.T) (read vectors) {
	t.Helper()
	folder := os.Getenv("GRADWIRE_CONFORMANCE")
	if folder == "" {
		folder = filepath.Join("..", "..", "tests", "conformance")
	}
	data, err := os.ReadFile(filepath.Join(folder, "golden.json"))
	if err != nil {
		t.Skip("needs the folder tests/conformance: ", err)
	}
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

func parse[T any](t *testing.T, data json.RawMessage) (value T) {
	t.Helper()
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	return value
}

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWordsOfPreparedCalls(t *testing.T) {
	session := &Session{sink: &recorder{}}
	add := func(call *Call, name string, given map[string]json.RawMessage) {
		for kind, value := range given {
			switch kind {
			case "tensor":
				call.Tensor(name, &Tensor{session: session, id: parse[uint64](t, value)})
			case "tensors":
				var list []*Tensor
				for _, id := range parse[[]uint64](t, value) {
					list = append(list, &Tensor{session: session, id: id})
				}
				call.Tensors(name, list)
			case "float":
				call.Float(name, parse[float64](t, value))
			case "integer":
				call.Integer(name, parse[int](t, value))
			case "integers":
				call.Integers(name, parse[[]int](t, value))
			case "boolean":
				call.Boolean(name, parse[bool](t, value))
			case "index":
				return // this SDK does not prepare calls with an index
			default:
				t.Fatal("unknown kind", kind)
			}
		}
	}
	for _, vector := range golden(t).PreparedCalls {
		t.Run(vector.Op, func(t *testing.T) {
			call := NewCall(session, vector.Op)
			for _, each := range vector.Args {
				add(call, "", each)
			}
			var names []string
			for name := range vector.Named {
				names = append(names, name)
			}
			sort.Strings(names)
			for _, name := range names {
				add(call, name, vector.Named[name])
			}
			if vector.Op == "getitem" {
				call.Index("", []IndexItem{At(0)})
				if _, can := call.key(nil, 0, 1); can {
					t.Error("an index would be prepared, but has no words")
				}
				return
			}
			var made []*Tensor
			for _, id := range vector.Outputs {
				made = append(made, &Tensor{session: session, id: id})
			}
			if found := hex.EncodeToString(call.words(nil, vector.Number, made)); found != vector.Words {
				t.Errorf("%s instead of %s", found, vector.Words)
			}
		})
	}
}

func TestHashesOfPrograms(t *testing.T) {
	for _, vector := range golden(t).Programs {
		data := unhex(t, vector.Bytes)
		program := &pb.Program{}
		if err := proto.Unmarshal(data, program); err != nil {
			t.Fatal(err)
		}
		again, err := proto.MarshalOptions{Deterministic: true}.Marshal(program)
		if err != nil {
			t.Fatal(err)
		}
		if hash := sha256.Sum256(again); hex.EncodeToString(hash[:]) != vector.Sha256 {
			t.Errorf("%x", hash)
		}
	}
}

func TestTrailersOfRefusals(t *testing.T) {
	for _, vector := range golden(t).Errors {
		trailer := metadata.Pairs("gradwire-error-bin", string(unhex(t, vector.Bytes)))
		told := fromStatus(os.ErrInvalid, trailer)
		if told.Reason.String() != "REASON_"+vector.Reason || told.Message != vector.Message {
			t.Errorf("%+v", told)
		}
		if uint32(told.Code) != vector.Code || told.Op != vector.Metadata["op"] || len(told.Shape) != 2 {
			t.Errorf("%+v", told)
		}
	}
}
