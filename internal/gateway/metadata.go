package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/curfew-dev/curfew/internal/gateway/batch"
	"github.com/curfew-dev/curfew/internal/gateway/inference"
	"github.com/curfew-dev/curfew/internal/gateway/protocol"
)

// Times for which an answer about a model counts.
const (
	metadataTTL   = 10 * time.Minute
	metadataRetry = 10 * time.Second
	metadataTime  = 5 * time.Second
	maxMetadata   = 1 << 20
	maxKnown      = 4096
)

// metadata remembers which models take batches.
type metadata struct {
	mu    sync.Mutex
	known map[string]*modelInfo // by path
}

// modelInfo is what a server tells of a model.
type modelInfo struct {
	until  time.Time
	asking bool
	reason string // why it is not batched; empty where it is
	inputs []string
}

func newMetadata() *metadata { return &metadata{known: map[string]*modelInfo{}} }

// provenReason returns why it is not proven that the rows of a request may share a batch; empty
// where it is. V1 instances are rows by definition. For V2 the model's metadata has to say that
// every tensor begins with a dimension of any size, and has at least one more: a tensor with one
// dimension of any size may as well be one row of any length.
func (p *pool) provenReason(ctx context.Context, c *call) string {
	if p.config.Batch == batchNever {
		return "batching is off for the pool"
	}
	if why, refused := p.unbatchable.Load(c.model); refused {
		return "an answer could not be divided: " + why.(string)
	}
	_, v1 := c.codec.(protocol.V1)
	if v1 || p.config.Batch == batchAlways {
		return ""
	}
	path := modelPath(c.model, c.version)
	info := p.models.get(path, func() *modelInfo { return p.ask(context.WithoutCancel(ctx), c.model, c.version) })
	if info.reason != "" {
		return info.reason
	}
	for _, name := range c.parsed.Names {
		if !slices.Contains(info.inputs, name) {
			return fmt.Sprintf("the model has no input %.64q", name)
		}
	}
	return ""
}

// get returns what is known of a model, and asks again in the background when that is old.
func (m *metadata) get(path string, ask func() *modelInfo) modelInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	info := m.known[path]
	if info == nil {
		if len(m.known) >= maxKnown {
			clear(m.known)
		}
		info = &modelInfo{reason: "the model's metadata is not known yet"}
		m.known[path] = info
	}
	if !info.asking && time.Now().After(info.until) {
		info.asking = true
		go func() {
			next := ask()
			m.mu.Lock()
			defer m.mu.Unlock()
			m.known[path] = next
		}()
	}
	return *info
}

// tensorInfo is a tensor of a model's metadata.
type tensorInfo struct {
	Name     string  `json:"name"`
	Datatype string  `json:"datatype"`
	Shape    []int64 `json:"shape"`
}

// ask reads the metadata of a model, and Triton's configuration of it where there is one.
func (p *pool) ask(ctx context.Context, name, version string) *modelInfo {
	failed := func(why string) *modelInfo {
		return &modelInfo{until: time.Now().Add(metadataRetry), reason: why}
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTime)
	defer cancel()
	server, ok := p.anyHealthy()
	if !ok {
		return failed(batch.ErrNoServer.Error())
	}
	path := modelPath(name, version)
	var model restDescription
	if p.grpc {
		// texts of a request
		request, _ := proto.Marshal(&inference.ModelMetadataRequest{Name: name, Version: version})
		answer, err := p.callGRPC(ctx, server, "ModelMetadata", request, nil)
		m := &inference.ModelMetadataResponse{}
		if err == nil {
			err = proto.Unmarshal(answer, m)
		}
		if err != nil {
			return failed("the model's metadata: " + err.Error())
		}
		model.Inputs, model.Outputs = tensorInfos(m.GetInputs()), tensorInfos(m.GetOutputs())
	} else {
		status, err := p.getJSON(ctx, server+path, &model)
		switch {
		case err != nil:
			return failed("the model's metadata: " + err.Error())
		case status != http.StatusOK:
			return failed(fmt.Sprintf("the model's metadata: the upstream answered %d", status))
		}
	}
	if len(model.Inputs) == 0 || len(model.Outputs) == 0 {
		return failed("the model's metadata names no tensors")
	}
	info := &modelInfo{until: time.Now().Add(metadataTTL)}
	for _, t := range append(slices.Clone(model.Inputs), model.Outputs...) {
		if len(t.Shape) < 2 || t.Shape[0] != -1 {
			info.reason = fmt.Sprintf("tensor %.64q does not begin with a batch dimension", t.Name)
			return info
		}
	}
	for _, t := range model.Inputs {
		info.inputs = append(info.inputs, t.Name)
	}
	var triton struct {
		MaxBatch *int `json:"max_batch_size"`
	}
	if p.grpc {
		return info // Triton tells its configuration by a call of its own
	}
	if status, err := p.getJSON(ctx, server+path+"/config", &triton); err == nil &&
		status == http.StatusOK && triton.MaxBatch != nil && *triton.MaxBatch < 2 {
		info.reason = "the model's configuration has max_batch_size " + fmt.Sprint(*triton.MaxBatch)
	}
	return info
}

// getJSON reads a small JSON document of a model server.
func (p *pool) getJSON(ctx context.Context, url string, to any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := p.gateway.o.Transport.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
	b, err := readAll(resp, maxMetadata)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp.StatusCode, err
	}
	return resp.StatusCode, json.Unmarshal(b, to)
}

// isError reports whether a document is an object with an error and no result.
func isError(body []byte) bool {
	if !bytes.Contains(body, []byte(`"error"`)) {
		return false
	}
	var doc struct {
		Error                               json.RawMessage `json:"error"`
		Outputs, Predictions, Choices, Data json.RawMessage
	}
	return json.Unmarshal(body, &doc) == nil && doc.Error != nil && string(doc.Error) != "null" &&
		doc.Outputs == nil && doc.Predictions == nil && doc.Choices == nil && doc.Data == nil
}
