package fleets

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/curfew-dev/curfew/internal/app/fleets/keda"
	"github.com/curfew-dev/curfew/internal/plan/fleet"
)

// dial serves a watcher on loopback and connects the client of gRPC to it.
func dial(t *testing.T, w *Watcher) (*grpc.ClientConn, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	s := w.ScalerServer(ctx)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	c, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = c.Close()
		_ = s.Close()
		<-served
	})
	return c, l.Addr().String()
}

func object(id string) *keda.ScaledObjectRef {
	return &keda.ScaledObjectRef{Name: "embed", Namespace: "default", ScalerMetadata: map[string]string{"fleet": id}}
}

func TestAnswersKEDA(t *testing.T) {
	source := &stub{}
	w := watching(fleetConfig(), source)
	c, _ := dial(t, w)
	ctx := t.Context()
	call := func(name string, in, out any) codes.Code {
		return status.Code(c.Invoke(ctx, scalerService+name, in, out))
	}
	var active keda.IsActiveResponse
	var metrics keda.GetMetricsResponse
	// Before the fleet was seen its size is unknown, which is an error and never zero.
	if got := call("IsActive", object("asg/embed"), &active); got != codes.Unavailable {
		t.Errorf("unseen: %s", got)
	}
	asked := &keda.GetMetricsRequest{ScaledObjectRef: object("asg/embed"), MetricName: "replicas"}
	if got := call("GetMetrics", asked, &metrics); got != codes.Unavailable {
		t.Errorf("unseen: %s", got)
	}
	source.says(start, 150, 30, 2, 0)
	w.Look(ctx, start)
	want := int64(w.All()[0].Target)
	if got := call("IsActive", object("asg/embed"), &active); got != codes.OK || !active.GetResult() {
		t.Errorf("%s, %v", got, active.GetResult())
	}
	var spec keda.GetMetricSpecResponse
	if got := call("GetMetricSpec", object("asg/embed"), &spec); got != codes.OK || len(spec.GetMetricSpecs()) != 1 ||
		spec.GetMetricSpecs()[0].GetTargetSizeFloat() != 1 {
		t.Errorf("%s, %v", got, spec.GetMetricSpecs())
	}
	got := call("GetMetrics", asked, &metrics)
	if got != codes.OK || len(metrics.GetMetricValues()) != 1 ||
		metrics.GetMetricValues()[0].GetMetricValue() != want ||
		metrics.GetMetricValues()[0].GetMetricValueFloat() != float64(want) {
		t.Errorf("%s, %v, want %d", got, metrics.GetMetricValues(), want)
	}
	for name, c := range map[string]struct {
		id   string
		call string
		want codes.Code
	}{
		"no fleet":      {"", "IsActive", codes.InvalidArgument},
		"another fleet": {"asg/other", "IsActive", codes.NotFound},
		"another call":  {"asg/embed", "StreamMetricSpec", codes.Unimplemented},
	} {
		if got := call(c.call, object(c.id), &active); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestStreamsActivity(t *testing.T) {
	source := &stub{}
	c := fleetConfig()
	c.Bounds = fleet.Bounds{Max: 5, Zero: true}
	c.Stabilization = 30 * time.Second
	w := watching(c, source)
	conn, _ := dial(t, w)
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, scalerService+"StreamIsActive")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(object("asg/embed")); err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	at := start
	look := func(inFlight, rate float64, ready int) {
		source.says(at, inFlight, rate, ready, 0)
		w.Look(t.Context(), at)
		at = at.Add(15 * time.Second)
	}
	receive := func() bool {
		var m keda.IsActiveResponse
		if err := stream.RecvMsg(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetResult()
	}
	look(4, 2, 1)
	if !receive() {
		t.Error("not active with requests")
	}
	for range 10 {
		look(0, 0, 1)
	}
	if receive() {
		t.Error("active without requests")
	}
	look(1, 1, 0)
	if !receive() {
		t.Error("not active when a request waits")
	}
	w.Set(Configured{}) // the policy is gone
	look(1, 1, 0)
	if err := stream.RecvMsg(&keda.IsActiveResponse{}); status.Code(err) != codes.NotFound {
		t.Errorf("the fleet is gone: %v", err)
	}
}

func TestRefusesBrokenCalls(t *testing.T) {
	w := NewWatcher(slog.New(slog.DiscardHandler))
	_, address := dial(t, w)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	for name, body := range map[string][]byte{
		"nothing": nil, "half a length": {0, 0}, "compressed": {1, 0, 0, 0, 0},
		"too large": {0, 0xff, 0xff, 0xff, 0xff},
		"too short": {0, 0, 0, 0, 9, 1}, "no message": {0, 0, 0, 0, 1, 0xff},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+scalerService+"IsActive",
			bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", grpcType)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if got := resp.Trailer.Get("Grpc-Status"); got != "3" && got != "12" {
			t.Errorf("%s: status %q", name, got)
		}
	}
}
