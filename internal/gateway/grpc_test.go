package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpcmeta "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/curfew-dev/curfew/internal/gateway/inference"
)

// grpcModel is a model server of grpc-go that adds up the two numbers of each row.
type grpcModel struct {
	mu     sync.Mutex
	rows   []int
	raw    bool // answers with raw contents
	fail   func(*inference.ModelInferRequest) error
	hold   chan struct{}
	header []grpcmeta.MD
}

// unary is one method of the service for grpc-go.
func unary[I any, P interface {
	*I
	proto.Message
}](name string, f func(context.Context, *I) (proto.Message, error)) grpc.MethodDesc {
	return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error,
		_ grpc.UnaryServerInterceptor) (any, error) {
		in := new(I)
		if err := decode(P(in)); err != nil {
			return nil, err
		}
		return f(ctx, in)
	}}
}

// startGRPCModel serves the model and returns its address.
func startGRPCModel(t *testing.T, m *grpcModel) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	tensors := func(name string, width int64) []*inference.ModelMetadataResponse_TensorMetadata {
		return []*inference.ModelMetadataResponse_TensorMetadata{
			{Name: name, Datatype: "FP64", Shape: []int64{-1, width}},
		}
	}
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "inference.GRPCInferenceService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			unary("ServerLive", func(context.Context, *inference.ServerLiveRequest) (proto.Message, error) {
				return &inference.ServerLiveResponse{Live: true}, nil
			}),
			unary("ServerReady", func(context.Context, *inference.ServerReadyRequest) (proto.Message, error) {
				return &inference.ServerReadyResponse{Ready: true}, nil
			}),
			unary("ModelReady", func(_ context.Context, r *inference.ModelReadyRequest) (proto.Message, error) {
				return &inference.ModelReadyResponse{Ready: r.GetName() == "sum"}, nil
			}),
			unary("ServerMetadata", func(context.Context, *inference.ServerMetadataRequest) (proto.Message, error) {
				return &inference.ServerMetadataResponse{Name: "stand-in", Version: "7"}, nil
			}),
			unary("ModelMetadata", func(_ context.Context, r *inference.ModelMetadataRequest) (proto.Message, error) {
				if r.GetName() != "sum" {
					return nil, status.Error(codes.NotFound, "no model "+r.GetName())
				}
				return &inference.ModelMetadataResponse{
					Name: "sum", Inputs: tensors("x", 2), Outputs: tensors("y", 1),
				}, nil
			}),
			unary("ModelInfer", m.infer),
		},
	}, m)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

func (m *grpcModel) infer(ctx context.Context, r *inference.ModelInferRequest) (proto.Message, error) {
	if m.hold != nil {
		<-m.hold
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	head, _ := grpcmeta.FromIncomingContext(ctx)
	m.header = append(m.header, head)
	if m.fail != nil {
		if err := m.fail(r); err != nil {
			return nil, err
		}
	}
	in := r.GetInputs()[0]
	n := int(in.GetShape()[0])
	m.rows = append(m.rows, n)
	numbers := in.GetContents().GetFp64Contents()
	if raw := r.GetRawInputContents(); len(raw) > 0 {
		for i := range 2 * n {
			numbers = append(numbers, math.Float64frombits(binary.LittleEndian.Uint64(raw[0][8*i:])))
		}
	}
	out := &inference.ModelInferResponse{ModelName: "sum", Id: r.GetId()}
	y := &inference.ModelInferResponse_InferOutputTensor{Name: "y", Datatype: "FP64", Shape: []int64{int64(n), 1}}
	var sums []float64
	for i := range n {
		sums = append(sums, numbers[2*i]+numbers[2*i+1])
	}
	if m.raw {
		var raw []byte
		for _, s := range sums {
			raw = binary.LittleEndian.AppendUint64(raw, math.Float64bits(s))
		}
		out.RawOutputContents = [][]byte{raw}
	} else {
		y.Contents = &inference.InferTensorContents{Fp64Contents: sums}
	}
	out.Outputs = []*inference.ModelInferResponse_InferOutputTensor{y}
	return out, nil
}

// startHTTP2 serves a gateway by HTTP/1 and by HTTP/2 without TLS.
func startHTTP2(t *testing.T, c Config) (*httptest.Server, *grpc.ClientConn) {
	t.Helper()
	g, first := startGateway(t, c)
	first.Close()
	s := httptest.NewUnstartedServer(g.Handler())
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	conn, err := grpc.NewClient(strings.TrimPrefix(s.URL, "http://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return s, conn
}

// rowMessage is a request of rows whose numbers are raw or typed.
func rowMessage(id string, raw bool, numbers ...float64) *inference.ModelInferRequest {
	in := &inference.ModelInferRequest_InferInputTensor{
		Name: "x", Datatype: "FP64", Shape: []int64{int64(len(numbers) / 2), 2},
	}
	m := &inference.ModelInferRequest{
		ModelName: "sum", Id: id, Inputs: []*inference.ModelInferRequest_InferInputTensor{in},
	}
	if !raw {
		in.Contents = &inference.InferTensorContents{Fp64Contents: numbers}
		return m
	}
	var b []byte
	for _, v := range numbers {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	m.RawInputContents = [][]byte{b}
	return m
}

const inferCall = grpcService + "ModelInfer"

// sumsOf returns the numbers of an answer.
func sumsOf(m *inference.ModelInferResponse) []float64 {
	if raw := m.GetRawOutputContents(); len(raw) > 0 {
		var out []float64
		for b := raw[0]; len(b) > 0; b = b[8:] {
			out = append(out, math.Float64frombits(binary.LittleEndian.Uint64(b)))
		}
		return out
	}
	return m.GetOutputs()[0].GetContents().GetFp64Contents()
}

// TestGRPCBatchesEqualDirectAnswers sends random rows with a client of grpc-go through batches to a
// gRPC server and to one of REST, and compares every bit.
func TestGRPCBatchesEqualDirectAnswers(t *testing.T) {
	for _, kind := range []string{"gRPC", "gRPC raw", "REST"} {
		m := &grpcModel{raw: kind == "gRPC raw"}
		upstream := "grpc://" + startGRPCModel(t, m)
		if kind == "REST" {
			upstream = newModel(t).URL
		}
		each := 160 // 10,240 rows; the other kinds have fewer
		if kind != "gRPC" {
			each = 30
		}
		s, conn := startHTTP2(t, onePool(upstream))
		var wg sync.WaitGroup
		for client := range 32 {
			r := rand.New(rand.NewPCG(uint64(client), 5))
			wg.Go(func() {
				for i := range each {
					a, b, c := r.NormFloat64(), r.NormFloat64()*1e-7, math.Trunc(r.NormFloat64()*1e6)
					id := fmt.Sprintf("%d-%d", client, i)
					out := &inference.ModelInferResponse{}
					if err := conn.Invoke(t.Context(), inferCall,
						rowMessage(id, client%2 == 0, a, b, c, 0.5), out); err != nil {
						t.Errorf("%s: %v", kind, err)
						return
					}
					got := sumsOf(out)
					if len(got) != 2 || got[0] != a+b || got[1] != c+0.5 || out.GetId() != id {
						t.Errorf("%s: %v, want [%v %v]: %v", kind, got, a+b, c+0.5, out)
					}
				}
			})
		}
		wg.Wait()
		d := readStats(t, s.URL).Models[0]
		if d.MeanBatch == nil || *d.MeanBatch <= 2 || d.Predictions != int64(64*each) {
			t.Errorf("%s: %+v", kind, d)
		}
	}
}

// TestRESTReachesGRPCServer sends V2 over REST to a gRPC server.
func TestRESTReachesGRPCServer(t *testing.T) {
	for _, mode := range []string{batchAlways, batchNever} {
		m := &grpcModel{raw: true}
		c := onePool("grpc://" + startGRPCModel(t, m))
		c.Pools[0].Batch = mode
		s, _ := startHTTP2(t, c)
		body := row("a\"b", 0.1, 0.2)
		direct, _ := sums([]byte(body))
		if a := post(t, s.URL+"/v2/models/sum/infer", body); a.status != 200 || !sameJSON(t, a.body, string(direct)) {
			t.Errorf("%s: %+v, want %s", mode, a, direct)
		}
		if a := post(t, s.URL+"/v1/models/sum:predict", `{"instances":[[1,2]]}`); a.status != 501 {
			t.Errorf("V1: %+v", a)
		}
		for path, want := range map[string]string{
			"/v2/health/live": "", "/v2/health/ready": "", "/v2": "stand-in", "/v2/models/sum": `"shape":[-1,2]`,
			"/v2/models/sum/ready": "",
		} {
			if a := get(t, s.URL+path, ""); a.status != 200 || !strings.Contains(a.body, want) {
				t.Errorf("%s: %+v", path, a)
			}
		}
		if a := get(t, s.URL+"/v2/models/other", ""); a.status != 404 || !strings.Contains(a.body, "no model other") {
			t.Errorf("%+v", a)
		}
	}
}

func TestGRPCCallsAboutServers(t *testing.T) {
	for kind, upstream := range map[string]string{
		"gRPC": "grpc://" + startGRPCModel(t, &grpcModel{}), "REST": newModel(t).URL,
	} {
		_, conn := startHTTP2(t, onePool(upstream))
		live, ready := &inference.ServerLiveResponse{}, &inference.ServerReadyResponse{}
		model, meta := &inference.ModelReadyResponse{}, &inference.ModelMetadataResponse{}
		for name, x := range map[string]struct{ in, out proto.Message }{
			"ServerLive":    {&inference.ServerLiveRequest{}, live},
			"ServerReady":   {&inference.ServerReadyRequest{}, ready},
			"ModelReady":    {&inference.ModelReadyRequest{Name: "sum"}, model},
			"ModelMetadata": {&inference.ModelMetadataRequest{Name: "sum"}, meta},
		} {
			if err := conn.Invoke(t.Context(), grpcService+name, x.in, x.out); err != nil {
				t.Errorf("%s %s: %v", kind, name, err)
			}
		}
		if !live.GetLive() || !ready.GetReady() || !model.GetReady() || len(meta.GetInputs()) != 1 ||
			meta.GetInputs()[0].GetShape()[1] != 2 {
			t.Errorf("%s: %v %v %v %v", kind, live, ready, model, meta)
		}
		err := conn.Invoke(t.Context(), grpcService+"RepositoryModelLoad", &inference.ServerLiveRequest{}, live)
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func TestGRPCErrors(t *testing.T) {
	m := &grpcModel{}
	m.fail = func(r *inference.ModelInferRequest) error {
		switch r.GetInputs()[0].GetContents().GetFp64Contents()[0] {
		case 404:
			return status.Error(codes.NotFound, "weights: 50% of ä lost")
		case 500:
			return status.Error(codes.Internal, "boom")
		}
		return nil
	}
	c := onePool("grpc://" + startGRPCModel(t, m))
	c.Keys = []Key{{Name: "ana", Hash: hashOf("k"), Models: []string{"sum"}}}
	_, conn := startHTTP2(t, c)
	ctx := grpcmeta.AppendToOutgoingContext(t.Context(), "authorization", "Bearer k", "cookie", "secret")
	call := func(ctx context.Context, m *inference.ModelInferRequest) error {
		return conn.Invoke(ctx, inferCall, m, &inference.ModelInferResponse{})
	}
	short := rowMessage("a", false, 1, 2)
	short.Inputs[0].Shape = []int64{3, 2}
	other := rowMessage("a", false, 1, 2)
	other.ModelName = "other"
	odd := rowMessage("a", true, 1, 2)
	odd.RawInputContents[0] = odd.RawInputContents[0][:15]
	many := rowMessage("a", false, make([]float64, 200)...)
	for name, x := range map[string]struct {
		err  error
		want codes.Code
	}{
		"no key":      {call(t.Context(), rowMessage("a", false, 1, 2)), codes.Unauthenticated},
		"good":        {call(ctx, rowMessage("a", false, 1, 2)), codes.OK},
		"shape":       {call(ctx, short), codes.InvalidArgument},
		"raw":         {call(ctx, odd), codes.InvalidArgument},
		"no inputs":   {call(ctx, &inference.ModelInferRequest{ModelName: "sum"}), codes.InvalidArgument},
		"other model": {call(ctx, other), codes.PermissionDenied},
		"many rows":   {call(ctx, many), codes.ResourceExhausted},
		"not found":   {call(ctx, rowMessage("a", false, 404, 2)), codes.NotFound},
		"internal":    {call(ctx, rowMessage("a", false, 500, 2)), codes.Internal},
	} {
		if status.Code(x.err) != x.want {
			t.Errorf("%s: %v, want %s", name, x.err, x.want)
		}
		if name == "not found" && status.Convert(x.err).Message() != "weights: 50% of ä lost" {
			t.Errorf("message %q", status.Convert(x.err).Message())
		}
	}
	for _, h := range m.header {
		if len(h.Get("authorization"))+len(h.Get("cookie")) > 0 {
			t.Errorf("credentials reached the model server: %v", h)
		}
	}
	m.hold = make(chan struct{})
	defer close(m.hold)
	timed, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := call(timed, rowMessage("a", false, 1, 2)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a deadline: %v", err)
	}
}

// TestGRPCFrames sends frames that no client of gRPC sends.
func TestGRPCFrames(t *testing.T) {
	s, _ := startHTTP2(t, onePool("grpc://"+startGRPCModel(t, &grpcModel{})))
	good, _ := proto.Marshal(rowMessage("a", true, 1, 2))
	for name, x := range map[string]struct {
		body []byte
		want string
	}{
		"good":       {frame(good), "0"},
		"empty":      {nil, "3"},
		"short":      {[]byte{0, 0}, "3"},
		"length":     {append([]byte{0, 0xff, 0xff, 0xff, 0xff}, good...), "3"},
		"two":        {append(frame(good), frame(good)...), "3"},
		"compressed": {append([]byte{1, 0, 0, 0, 1}, 0), "12"},
		"no message": {frame([]byte{0xff, 0xff, 0xff}), "3"},
	} {
		req, _ := http.NewRequest(http.MethodPost, s.URL+inferCall, bytes.NewReader(x.body))
		req.Header.Set("Content-Type", grpcType)
		resp, err := testTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body := make([]byte, 1<<16)
		for {
			if _, err := resp.Body.Read(body); err != nil {
				break
			}
		}
		_ = resp.Body.Close()
		if got := resp.Trailer.Get("Grpc-Status"); got != x.want {
			t.Errorf("%s: status %q, want %s (%s)", name, got, x.want, resp.Trailer.Get("Grpc-Message"))
		}
	}
}
