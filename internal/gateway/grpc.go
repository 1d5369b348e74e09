package gateway

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
	"github.com/curfew-dev/curfew/internal/gateway/inference"
	"github.com/curfew-dev/curfew/internal/gateway/protocol"
)

// grpcService begins the paths of the protocol's calls.
const grpcService = "/inference.GRPCInferenceService/"

const grpcType = "application/grpc"

// Status codes of gRPC (https://grpc.io/docs/guides/status-codes/).
const (
	codeOK                = 0
	codeUnknown           = 2
	codeInvalidArgument   = 3
	codeDeadlineExceeded  = 4
	codeNotFound          = 5
	codePermissionDenied  = 7
	codeResourceExhausted = 8
	codeUnimplemented     = 12
	codeInternal          = 13
	codeUnavailable       = 14
	codeUnauthenticated   = 16
)

// grpcCodes are the codes for the statuses with which this gateway refuses, and back.
var grpcCodes = map[int]int{
	http.StatusOK: codeOK, http.StatusBadRequest: codeInvalidArgument, http.StatusUnauthorized: codeUnauthenticated,
	http.StatusForbidden: codePermissionDenied, http.StatusNotFound: codeNotFound,
	http.StatusRequestTimeout: codeDeadlineExceeded, http.StatusRequestEntityTooLarge: codeResourceExhausted,
	http.StatusUnsupportedMediaType: codeUnimplemented, http.StatusNotImplemented: codeUnimplemented,
	http.StatusTooManyRequests: codeResourceExhausted, http.StatusInternalServerError: codeInternal,
	http.StatusBadGateway: codeInternal, http.StatusServiceUnavailable: codeUnavailable,
	http.StatusGatewayTimeout: codeDeadlineExceeded,
}

// httpStatuses are the statuses for the codes of a model server.
var httpStatuses = map[int]int{
	codeInvalidArgument: http.StatusBadRequest, codeNotFound: http.StatusNotFound,
	codeDeadlineExceeded: http.StatusGatewayTimeout, codePermissionDenied: http.StatusForbidden,
	codeResourceExhausted: http.StatusTooManyRequests, codeUnimplemented: http.StatusNotImplemented,
	codeUnavailable: http.StatusServiceUnavailable, codeInternal: http.StatusInternalServerError,
	codeUnknown: http.StatusInternalServerError, codeUnauthenticated: http.StatusUnauthorized,
}

// isGRPC reports whether a URL is that of a gRPC server.
func isGRPC(scheme string) bool { return scheme == "grpc" || scheme == "grpcs" }

// grpcBase returns the URL at which HTTP/2 reaches a gRPC server.
func grpcBase(server string) string { return "http" + strings.TrimPrefix(server, "grpc") }

// frame puts a message into the form of gRPC: not compressed, with its length.
func frame(message []byte) []byte {
	b := make([]byte, 5, 5+len(message))
	binary.BigEndian.PutUint32(b[1:], uint32(len(message)))
	return append(b, message...)
}

// errCompressed is a message that is compressed, which this gateway has not offered to read.
var errCompressed = errors.New("compressed messages are not supported: send grpc-encoding identity")

// unframe returns the only message of a body.
func unframe(body []byte) ([]byte, error) {
	switch {
	case len(body) < 5:
		return nil, errors.New("the body is no message of gRPC")
	case body[0] != 0:
		return nil, errCompressed
	case uint64(binary.BigEndian.Uint32(body[1:])) != uint64(len(body)-5):
		return nil, errors.New("the body is not exactly one message")
	}
	return body[5:], nil
}

// grpcWriter turns an answer of this gateway's handlers into one of gRPC.
type grpcWriter struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
	// convert turns the body of a success into a message.
	convert func([]byte) ([]byte, error)
}

// Unwrap returns the writer below, for deadlines.
func (w *grpcWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *grpcWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter.
func (w *grpcWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// finish writes what the handler has answered.
func (w *grpcWriter) finish() {
	if w.status == 0 {
		return // the caller has gone
	}
	message, code, text := []byte(nil), codeOK, ""
	if w.status < 300 {
		var err error
		if message, err = w.convert(w.body.Bytes()); err != nil {
			code, text = codeInternal, err.Error()
		}
	} else {
		var known bool
		if code, known = grpcCodes[w.status]; !known {
			code = codeUnknown
		}
		var doc struct {
			Error string `json:"error"`
		}
		if text = w.body.String(); json.Unmarshal(w.body.Bytes(), &doc) == nil && doc.Error != "" {
			text = doc.Error
		}
	}
	h := w.ResponseWriter.Header()
	h.Del("Content-Length")
	h.Set("Content-Type", grpcType)
	h.Set("Trailer", "Grpc-Status, Grpc-Message")
	w.ResponseWriter.WriteHeader(http.StatusOK)
	if code == codeOK {
		_, _ = w.ResponseWriter.Write(frame(message)) // who does not read it has gone
	}
	h.Set("Grpc-Status", strconv.Itoa(code))
	if text != "" {
		h.Set("Grpc-Message", url.PathEscape(text))
	}
}

// serveGRPC answers a call of the protocol's gRPC service.
func (g *Gateway) serveGRPC(to http.ResponseWriter, r *http.Request, s *state, c caller) {
	w := &grpcWriter{ResponseWriter: to, convert: func(b []byte) ([]byte, error) { return b, nil }}
	defer w.finish()
	if e := r.Header.Get("Grpc-Encoding"); r.Method != http.MethodPost || e != "" && e != "identity" {
		refuse(w, http.StatusUnsupportedMediaType, 0, errCompressed.Error())
		return
	}
	body, release, ok := g.readBody(w, r, s)
	if !ok {
		return
	}
	defer release()
	message, err := unframe(body)
	switch {
	case errors.Is(err, errCompressed):
		refuse(w, http.StatusUnsupportedMediaType, 0, err.Error())
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	name := strings.TrimPrefix(r.URL.Path, grpcService)
	if name == "ModelInfer" {
		g.inferGRPC(w, r, s, c, message)
		return
	}
	g.askGRPC(w, r, s, c, name, message)
}

// inferGRPC answers ModelInfer.
func (g *Gateway) inferGRPC(w *grpcWriter, r *http.Request, s *state, who caller, message []byte) {
	model, version, err := protocol.ModelOf(message)
	if err != nil {
		g.counts.refused("malformed")
		refuse(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	p := s.pool(model)
	switch {
	case !who.may(model):
		g.counts.refused("model not allowed")
		refuse(w, http.StatusForbidden, 0, fmt.Sprintf("the API key is not for model %q", model))
		return
	case p == nil:
		refuse(w, http.StatusNotFound, 0, fmt.Sprintf("no pool serves model %q", model))
		return
	case !g.budget(w, who):
		return
	}
	c := &call{caller: who, pool: p, model: model, version: version, at: time.Now(), overGRPC: true}
	if p.grpc {
		c.codec, c.path = protocol.GRPC{}, grpcService+"ModelInfer\x00"+model+"\x00"+version
		g.answer(w, r, s, c, message)
		return
	}
	c.codec, c.path = protocol.V2{}, modelPath(model, version)+"/infer"
	w.convert = protocol.RESTToGRPC
	// The message is checked before it is turned into JSON, which has no room for what is wrong.
	if _, err = (protocol.GRPC{}).Parse(message); err == nil {
		message, err = protocol.GRPCToREST(message)
	}
	if err != nil {
		g.counts.refused("malformed")
		refuse(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	g.answer(w, r, s, c, message)
}

func modelPath(model, version string) string {
	path := "/v2/models/" + urlPath(model)
	if version != "" {
		path += "/versions/" + urlPath(version)
	}
	return path
}

// inferToGRPC answers a request of V2 over REST by a gRPC server.
func (g *Gateway) inferToGRPC(w http.ResponseWriter, r *http.Request, s *state, c *call, body []byte) {
	if _, v2 := c.codec.(protocol.V2); !v2 {
		refuse(w, http.StatusNotImplemented, 0, "the model server speaks gRPC, which has no V1 instances: send V2")
		return
	}
	parsed, err := protocol.V2{}.Parse(body)
	var message []byte
	if err == nil {
		message, err = protocol.ToGRPC(parsed, c.model, c.version)
	}
	if err != nil {
		g.counts.refused("malformed")
		refuse(w, http.StatusBadRequest, 0, err.Error())
		return
	}
	c.codec, c.path, c.convert = protocol.GRPC{}, grpcService+"ModelInfer\x00"+c.model+"\x00"+
		c.version, protocol.FromGRPC
	g.answer(w, r, s, c, message)
}

// callGRPC makes one call at a gRPC server and returns the message of its answer.
func (p *pool) callGRPC(ctx context.Context, server, name string, message []byte, header http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, grpcBase(server)+grpcService+name,
		bytes.NewReader(frame(message)))
	if err != nil {
		return nil, fmt.Errorf("call %s of %s: %w", name, server, err)
	}
	for h, v := range header {
		req.Header[h] = v
	}
	req.Header.Set("Content-Type", grpcType)
	req.Header.Set("Te", "trailers")
	if until, ok := ctx.Deadline(); ok {
		req.Header.Set("Grpc-Timeout", strconv.FormatInt(max(1, time.Until(until).Milliseconds()), 10)+"m")
	}
	resp, err := p.gateway.o.GRPC.RoundTrip(req)
	if err != nil {
		var dial *net.OpError
		if errors.As(err, &dial) && dial.Op == "dial" {
			return nil, &batch.NotSentError{Err: fmt.Errorf("connect to %s: %w", server, err)}
		}
		return nil, fmt.Errorf("call %s of %s: %w", name, server, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
	body, err := readAll(resp, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", server, err)
	}
	status := resp.Trailer.Get("Grpc-Status")
	text := resp.Trailer.Get("Grpc-Message")
	if status == "" { // an answer without a message has its status in the head
		status, text = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	code, err := strconv.Atoi(status)
	switch {
	case resp.StatusCode != http.StatusOK || err != nil:
		return nil, fmt.Errorf("call %s of %s: the answer has HTTP status %d and no status of gRPC", name,
			server, resp.StatusCode)
	case code != codeOK:
		if plain, err := url.PathUnescape(text); err == nil {
			text = plain
		}
		status, known := httpStatuses[code]
		if !known {
			status = http.StatusBadGateway
		}
		b, _ := json.Marshal(map[string]string{"error": text}) // strings have no error
		return nil, &upstreamError{status: status, body: b, header: http.Header{"Content-Type": {"application/json"}}}
	}
	return unframe(body)
}

// askGRPC answers the calls about servers and models.
func (g *Gateway) askGRPC(w *grpcWriter, r *http.Request, s *state, c caller, name string, message []byte) {
	model, version := "", ""
	switch name {
	case "ServerLive", "ServerReady", "ServerMetadata":
	case "ModelReady", "ModelMetadata":
		in := &inference.ModelReadyRequest{} // ModelMetadataRequest has the same fields
		if err := proto.Unmarshal(message, in); err != nil {
			refuse(w, http.StatusBadRequest, 0, "read the request: "+err.Error())
			return
		}
		model, version = in.GetName(), in.GetVersion()
	default:
		refuse(w, http.StatusNotImplemented, 0, fmt.Sprintf("the call %q is not part of the protocol", name))
		return
	}
	if model != "" && !c.may(model) {
		refuse(w, http.StatusForbidden, 0, fmt.Sprintf("the API key is not for model %q", model))
		return
	}
	p := s.pool(model)
	if p == nil && model == "" && len(s.pools) > 0 {
		p = s.pools[0]
	}
	if p == nil {
		refuse(w, http.StatusNotFound, 0, fmt.Sprintf("no pool serves model %q", model))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), metadataTime)
	defer cancel()
	out, err := p.describe(ctx, name, model, version, message)
	var upstream *upstreamError
	switch {
	case errors.As(err, &upstream):
		copyAnswer(w, upstream)
	case errors.Is(err, batch.ErrNoServer):
		refuse(w, http.StatusServiceUnavailable, time.Second, err.Error())
	case err != nil:
		refuse(w, http.StatusBadGateway, 0, err.Error())
	default:
		write(w, http.StatusOK, out)
	}
}

// describe asks a server of a pool about itself or a model, and returns the message of the answer.
func (p *pool) describe(ctx context.Context, name, model, version string, message []byte) ([]byte, error) {
	server, ok := p.anyHealthy()
	if !ok {
		return nil, batch.ErrNoServer
	}
	if p.grpc {
		return p.callGRPC(ctx, server, name, message, nil)
	}
	path, known := map[string]string{
		"ServerLive": "/v2/health/live", "ServerReady": "/v2/health/ready", "ServerMetadata": "/v2",
		"ModelReady": modelPath(model, version) + "/ready", "ModelMetadata": modelPath(model, version),
	}[name]
	if !known {
		return nil, fmt.Errorf("no call %s", name)
	}
	var doc restDescription
	status, err := p.getJSON(ctx, server+path, &doc)
	if err != nil && name != "ServerLive" && name != "ServerReady" && name != "ModelReady" {
		return nil, err
	}
	switch name {
	case "ServerLive":
		return proto.Marshal(&inference.ServerLiveResponse{Live: status == http.StatusOK})
	case "ServerReady":
		return proto.Marshal(&inference.ServerReadyResponse{Ready: status == http.StatusOK})
	case "ModelReady":
		return proto.Marshal(&inference.ModelReadyResponse{Ready: status == http.StatusOK})
	}
	if status != http.StatusOK {
		return nil, &upstreamError{status: status, body: fmt.Appendf(nil, "the upstream answered %d", status)}
	}
	if name == "ServerMetadata" {
		return proto.Marshal(&inference.ServerMetadataResponse{
			Name: doc.Name, Version: doc.Version, Extensions: doc.Extensions,
		})
	}
	return proto.Marshal(&inference.ModelMetadataResponse{
		Name: doc.Name, Versions: doc.Versions, Platform: doc.Platform, Inputs: doc.tensors(doc.Inputs),
		Outputs: doc.tensors(doc.Outputs),
	})
}

// restDescription is what a server says of itself or a model over REST.
type restDescription struct {
	Name       string       `json:"name"`
	Version    string       `json:"version"`
	Extensions []string     `json:"extensions"`
	Versions   []string     `json:"versions"`
	Platform   string       `json:"platform"`
	Inputs     []tensorInfo `json:"inputs"`
	Outputs    []tensorInfo `json:"outputs"`
}

func (restDescription) tensors(from []tensorInfo) []*inference.ModelMetadataResponse_TensorMetadata {
	var out []*inference.ModelMetadataResponse_TensorMetadata
	for _, t := range from {
		out = append(out, &inference.ModelMetadataResponse_TensorMetadata{
			Name: t.Name, Datatype: t.Datatype, Shape: t.Shape,
		})
	}
	return out
}

// anyHealthy returns a server that may get requests.
func (p *pool) anyHealthy() (string, bool) {
	for _, s := range p.queue.Servers() {
		if s.Healthy && !s.Draining {
			return s.Name, true
		}
	}
	return "", false
}

// askREST answers the paths of V2 over REST about a gRPC server or its models.
func (g *Gateway) askREST(w http.ResponseWriter, r *http.Request, p *pool) {
	ctx, cancel := context.WithTimeout(r.Context(), metadataTime)
	defer cancel()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	name, model, version := "", "", ""
	switch {
	case r.Method != http.MethodGet:
	case slices.Equal(parts, []string{"v2"}):
		name = "ServerMetadata"
	case r.URL.Path == "/v2/health/live":
		name = "ServerLive"
	case r.URL.Path == "/v2/health/ready":
		name = "ServerReady"
	case len(parts) >= 3 && parts[1] == "models":
		name, model = "ModelMetadata", parts[2]
		if parts[len(parts)-1] == "ready" {
			name, parts = "ModelReady", parts[:len(parts)-1]
		}
		if len(parts) == 5 && parts[3] == "versions" {
			version = parts[4]
		} else if len(parts) != 3 {
			name = ""
		}
	}
	if name == "" {
		refuse(w, http.StatusNotImplemented, 0, "the model server speaks gRPC, which has no call for this path")
		return
	}
	message, _ := proto.Marshal(&inference.ModelReadyRequest{Name: model, Version: version}) // texts of a URL
	out, err := p.describe(ctx, name, model, version, message)
	var upstream *upstreamError
	switch {
	case errors.As(err, &upstream):
		copyAnswer(w, upstream)
		return
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, time.Second, err.Error())
		return
	}
	writeDescription(w, name, out)
}

// writeDescription answers with what a gRPC server told.
func writeDescription(w http.ResponseWriter, name string, message []byte) {
	var doc restDescription
	ready, err := true, error(nil)
	switch name {
	case "ServerLive", "ServerReady", "ModelReady":
		m := &inference.ServerLiveResponse{} // all three have one field of the same type
		err = proto.Unmarshal(message, m)
		ready = m.GetLive()
	case "ServerMetadata":
		m := &inference.ServerMetadataResponse{}
		err = proto.Unmarshal(message, m)
		doc = restDescription{Name: m.GetName(), Version: m.GetVersion(), Extensions: m.GetExtensions()}
	default:
		m := &inference.ModelMetadataResponse{}
		err = proto.Unmarshal(message, m)
		doc = restDescription{Name: m.GetName(), Versions: m.GetVersions(), Platform: m.GetPlatform()}
		doc.Inputs, doc.Outputs = tensorInfos(m.GetInputs()), tensorInfos(m.GetOutputs())
	}
	switch {
	case err != nil:
		refuse(w, http.StatusBadGateway, 0, "read the answer: "+err.Error())
	case !ready:
		refuse(w, http.StatusServiceUnavailable, time.Second, "the upstream is not ready")
	default:
		b, _ := json.Marshal(doc) // texts and numbers have no error
		write(w, http.StatusOK, b)
	}
}

func tensorInfos(from []*inference.ModelMetadataResponse_TensorMetadata) []tensorInfo {
	out := make([]tensorInfo, len(from))
	for i, t := range from {
		out[i] = tensorInfo{Name: t.GetName(), Datatype: t.GetDatatype(), Shape: t.GetShape()}
	}
	return out
}
