package protocol

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/curfew-dev/curfew/internal/gateway/inference"
)

// textRequest is a gRPC request of texts, raw or typed.
func textRequest(raw bool, texts ...string) []byte {
	in := &inference.ModelInferRequest_InferInputTensor{
		Name: "t", Datatype: "BYTES", Shape: []int64{int64(len(texts))},
	}
	m := &inference.ModelInferRequest{ModelName: "m", Inputs: []*inference.ModelInferRequest_InferInputTensor{in}}
	if raw {
		m.RawInputContents = [][]byte{rawTexts(texts...)}
	} else {
		in.Contents = &inference.InferTensorContents{}
		for _, t := range texts {
			in.Contents.BytesContents = append(in.Contents.BytesContents, []byte(t))
		}
	}
	b, _ := proto.Marshal(m)
	return b
}

func rawTexts(texts ...string) []byte {
	var b []byte
	for _, t := range texts {
		b = append(b, byte(len(t)), 0, 0, 0)
		b = append(b, t...)
	}
	return b
}

func TestTextsKeepTheirRowsOverGRPC(t *testing.T) {
	for _, raw := range []bool{true, false} {
		a, err := GRPC{}.Parse(textRequest(raw, "one", ""))
		if err != nil || a.Reason != "" || a.Rows != 2 {
			t.Fatal(err, a)
		}
		b, _ := GRPC{}.Parse(textRequest(raw, "three"))
		if a.Key != b.Key {
			t.Fatal("keys differ")
		}
		merged := &inference.ModelInferRequest{}
		if err := proto.Unmarshal(GRPC{}.Merge([]*Request{a, b}), merged); err != nil ||
			merged.GetInputs()[0].GetShape()[0] != 3 {
			t.Fatal(err, merged)
		}
		answer, _ := proto.Marshal(&inference.ModelInferResponse{
			Outputs: []*inference.ModelInferResponse_InferOutputTensor{
				{Name: "y", Datatype: "BYTES", Shape: []int64{3, 1}},
			},
			RawOutputContents: [][]byte{rawTexts("1", "22", "333")},
		})
		parts, err := GRPC{}.Split([]*Request{a, b}, answer)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{string(rawTexts("1", "22")), string(rawTexts("333"))} {
			m := &inference.ModelInferResponse{}
			if err := proto.Unmarshal(parts[i], m); err != nil || string(m.GetRawOutputContents()[0]) != want {
				t.Errorf("part %d: %v %v", i, err, m)
			}
		}
	}
	one, _ := GRPC{}.Parse(textRequest(true, "x"))
	two, _ := GRPC{}.Parse(textRequest(false, "x"))
	if one.Key == two.Key {
		t.Error("raw and typed contents share a batch")
	}
}

func TestGRPCTimeouts(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"200m": 200 * time.Millisecond, "1H": time.Hour, "5u": 5 * time.Microsecond,
		"99999999n": 99999999, "2S": 2 * time.Second,
	} {
		if got, ok := GRPCTimeout(text); !ok || time.Duration(got) != want {
			t.Errorf("%s: %d %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "m", "-1m", "1", "1x", "123456789m"} {
		if got, ok := GRPCTimeout(text); ok {
			t.Errorf("%q: %d", text, got)
		}
	}
}

// FuzzGRPC checks that a merged batch of an accepted message with itself has twice its rows, and
// that an answer of any bytes is divided completely or refused.
func FuzzGRPC(f *testing.F) {
	f.Add(textRequest(true, "a", "bc"))
	f.Add(textRequest(false, "a"))
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := GRPC{}.Parse(body)
		if err == nil && r.Reason == "" {
			merged, err := GRPC{}.Parse(GRPC{}.Merge([]*Request{r, r}))
			if err != nil || merged.Rows != 2*r.Rows || merged.Key != r.Key {
				t.Fatalf("%x: %v %+v", body, err, merged)
			}
		}
		if _, err := GRPCToREST(body); err == nil {
			_, _ = FromGRPC(body)
		}
		a, _ := GRPC{}.Parse(textRequest(true, "a"))
		b, _ := GRPC{}.Parse(textRequest(true, "b", "c"))
		if parts, err := (GRPC{}).Split([]*Request{a, b}, body); err == nil && len(parts) != 2 {
			t.Fatalf("%d parts", len(parts))
		}
	})
}
