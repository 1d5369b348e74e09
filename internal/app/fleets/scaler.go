package fleets

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/curfew-dev/curfew/internal/app/fleets/keda"
	"github.com/curfew-dev/curfew/internal/app/runtime"
)

// The external scaler of KEDA (https://keda.sh/docs/latest/concepts/external-scalers/).
const (
	scalerService = "/externalscaler.ExternalScaler/"
	// scalerMetric is the one metric; its target is 1, so that its value is the number of replicas.
	scalerMetric = "replicas"
	// maxMessage bounds a request.
	maxMessage = 64 << 10
	grpcType   = "application/grpc"
)

// Status codes of gRPC (https://grpc.io/docs/guides/status-codes/).
const (
	grpcOK              = 0
	grpcInvalidArgument = 3
	grpcNotFound        = 5
	grpcUnimplemented   = 12
	grpcUnavailable     = 14
)

// callError is an answer of gRPC other than a message.
type callError struct {
	code    int
	message string
}

func (e *callError) Error() string { return e.message }

// ScalerHandler serves KEDA's external scaler. A ScaledObject names its fleet in the metadata of its
// trigger: fleet: asg/embed. Where the size of a fleet is unknown it answers UNAVAILABLE, on which
// KEDA changes nothing.
func (w *Watcher) ScalerHandler() http.Handler {
	mux := http.NewServeMux()
	unary := func(call string, answer func(body []byte) (proto.Message, error)) {
		mux.HandleFunc("POST "+scalerService+call, func(rw http.ResponseWriter, r *http.Request) {
			body, err := readMessage(r)
			var out proto.Message
			if err == nil {
				out, err = answer(body)
			}
			begin(rw)
			if err == nil {
				err = writeMessage(rw, out)
			}
			end(rw, err)
		})
	}
	unary("IsActive", func(body []byte) (proto.Message, error) {
		s, err := w.referred(body)
		return &keda.IsActiveResponse{Result: s.Target > 0}, err
	})
	unary("GetMetricSpec", func(body []byte) (proto.Message, error) {
		var ref keda.ScaledObjectRef
		if err := decode(body, &ref); err != nil {
			return nil, err
		}
		_, err := w.named(&ref)
		return &keda.GetMetricSpecResponse{MetricSpecs: []*keda.MetricSpec{{
			MetricName: scalerMetric, TargetSize: 1, TargetSizeFloat: 1,
		}}}, err
	})
	unary("GetMetrics", func(body []byte) (proto.Message, error) {
		var req keda.GetMetricsRequest
		if err := decode(body, &req); err != nil {
			return nil, err
		}
		s, err := w.known(req.GetScaledObjectRef())
		return &keda.GetMetricsResponse{MetricValues: []*keda.MetricValue{{
			MetricName: scalerMetric, MetricValue: int64(s.Target), MetricValueFloat: float64(s.Target),
		}}}, err
	})
	mux.HandleFunc("POST "+scalerService+"StreamIsActive", w.streamIsActive)
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		begin(rw)
		end(rw, &callError{grpcUnimplemented, "there is no call " + r.URL.Path})
	})
	return mux
}

// streamIsActive tells at once, and after each change, whether a fleet has replicas.
func (w *Watcher) streamIsActive(rw http.ResponseWriter, r *http.Request) {
	body, err := readMessage(r)
	var ref keda.ScaledObjectRef
	if err == nil {
		err = decode(body, &ref)
	}
	if err == nil {
		_, err = w.named(&ref)
	}
	begin(rw)
	flush := http.NewResponseController(rw)
	told, last := false, false
	for err == nil {
		changed := w.Changed()
		var s Status
		if s, err = w.named(&ref); err != nil {
			break
		}
		if active := s.Target > 0; s.Known && (!told || active != last) {
			told, last = true, active
			if err = writeMessage(rw, &keda.IsActiveResponse{Result: active}); err == nil {
				err = flush.Flush()
			}
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
	end(rw, err)
}

// referred returns the fleet that a request refers to, and an error where its size is unknown.
func (w *Watcher) referred(body []byte) (Status, error) {
	var ref keda.ScaledObjectRef
	if err := decode(body, &ref); err != nil {
		return Status{}, err
	}
	return w.known(&ref)
}

func (w *Watcher) known(ref *keda.ScaledObjectRef) (Status, error) {
	s, err := w.named(ref)
	if err == nil && !s.Known {
		err = &callError{grpcUnavailable, "the size of fleet " + s.ID + " is unknown"}
	}
	return s, err
}

func (w *Watcher) named(ref *keda.ScaledObjectRef) (Status, error) {
	id := ref.GetScalerMetadata()["fleet"]
	if id == "" {
		return Status{}, &callError{grpcInvalidArgument, "the metadata of the trigger names no fleet"}
	}
	s, ok := w.One(id)
	if !ok {
		return Status{}, &callError{grpcNotFound, fmt.Sprintf("no policy names a fleet %.300q", id)}
	}
	return s, nil
}

// readMessage reads the one message of a call.
func readMessage(r *http.Request) ([]byte, error) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), grpcType) {
		return nil, &callError{grpcInvalidArgument, "the content type is not " + grpcType}
	}
	var head [5]byte
	if _, err := io.ReadFull(r.Body, head[:]); err != nil {
		return nil, &callError{grpcInvalidArgument, "the message has no length"}
	}
	size := binary.BigEndian.Uint32(head[1:])
	switch {
	case head[0] != 0:
		return nil, &callError{grpcUnimplemented, "compressed messages are not supported"}
	case size > maxMessage:
		return nil, &callError{grpcInvalidArgument, fmt.Sprintf("a message of %d bytes is over %d", size, maxMessage)}
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, &callError{grpcInvalidArgument, "the message ends early"}
	}
	return body, nil
}

func decode(body []byte, m proto.Message) error {
	if err := proto.Unmarshal(body, m); err != nil {
		return &callError{grpcInvalidArgument, "the message cannot be read"}
	}
	return nil
}

// begin sends the head of an answer.
func begin(rw http.ResponseWriter) {
	rw.Header().Set("Content-Type", grpcType)
	rw.Header().Set("Trailer", "Grpc-Status, Grpc-Message")
	rw.WriteHeader(http.StatusOK)
}

// writeMessage sends a message, not compressed, with its length.
func writeMessage(rw io.Writer, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return fmt.Errorf("write an answer: %w", err)
	}
	head := make([]byte, 5, 5+len(b))
	binary.BigEndian.PutUint32(head[1:], uint32(len(b)))
	_, err = rw.Write(append(head, b...))
	return err
}

// end sends the status of a call.
func end(rw http.ResponseWriter, err error) {
	code, message := grpcOK, ""
	if err != nil {
		code, message = grpcUnavailable, err.Error()
		if refused := (*callError)(nil); errors.As(err, &refused) {
			code = refused.code
		}
	}
	rw.Header().Set("Grpc-Status", strconv.Itoa(code))
	if message != "" {
		rw.Header().Set("Grpc-Message", url.PathEscape(message))
	}
}

// scalerHeaderTimeout bounds the head of a request.
const scalerHeaderTimeout = 10 * time.Second

// ScalerServer returns the server of KEDA's external scaler: HTTP/2 without TLS. Its streams end
// with ctx.
func (w *Watcher) ScalerServer(ctx context.Context) *http.Server {
	handler := w.ScalerHandler()
	s := &http.Server{
		ReadHeaderTimeout: scalerHeaderTimeout, MaxHeaderBytes: 16 << 10, Protocols: new(http.Protocols),
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			bounded, stop := context.WithCancel(r.Context())
			defer context.AfterFunc(ctx, stop)()
			defer stop()
			handler.ServeHTTP(rw, r.WithContext(bounded))
		}),
	}
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// ListenScaler serves the external scaler for KEDA until the returned function is called.
func (w *Watcher) ListenScaler(ctx context.Context, address string) (end func(), err error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, runtime.Invalid("--scaler-listen %s: %w", address, err)
	}
	streams, stop := context.WithCancel(ctx)
	s := w.ScalerServer(streams)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			w.log.Error("the external scaler is no longer served", "error", err)
		}
	}()
	w.log.Info("listening for KEDA", "address", l.Addr().String())
	return func() {
		stop()
		_ = s.Close() // streams have ended, and other calls are short
		<-done
	}, nil
}
