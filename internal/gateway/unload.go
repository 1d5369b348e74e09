package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// unloader speaks to the model control of a kind of server.
type unloader interface {
	// load and unload return the path and the body of a POST.
	load(model string) (path string, body any)
	unload(model string) (path string, body any)
	// loaded reads whether a model is loaded.
	loaded(ctx context.Context, p *pool, server, model string) (bool, error)
}

// unloaders are the kinds of servers that give up the memory of a model without ending.
var unloaders = map[string]unloader{"llama.cpp": llamaControl{}, "ollama": ollamaControl{}, "triton": tritonControl{}}

// tritonControl is Triton's model repository extension in model control mode explicit
// (docs.nvidia.com/deeplearning/triton-inference-server, model management).
type tritonControl struct{}

func (tritonControl) load(model string) (string, any) {
	return "/v2/repository/models/" + urlPath(model) + "/load", struct{}{}
}

func (tritonControl) unload(model string) (string, any) {
	return "/v2/repository/models/" + urlPath(model) + "/unload", struct{}{}
}

func (tritonControl) loaded(ctx context.Context, p *pool, server, model string) (bool, error) {
	status, _, err := p.get(ctx, server+modelPath(model, "")+"/ready")
	return status == http.StatusOK, err
}

// llamaControl is the router mode of llama-server (llama.cpp, tools/server/README.md).
type llamaControl struct{}

func (llamaControl) load(model string) (string, any) {
	return "/models/load", map[string]string{"model": model}
}

func (llamaControl) unload(model string) (string, any) {
	return "/models/unload", map[string]string{"model": model}
}

func (llamaControl) loaded(ctx context.Context, p *pool, server, model string) (bool, error) {
	_, body, err := p.get(ctx, server+"/models")
	if err != nil {
		return false, err
	}
	var doc struct {
		Data []struct {
			ID     string
			Status struct{ Value string }
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return false, fmt.Errorf("read the models of %s: %w", server, err)
	}
	for _, m := range doc.Data {
		if m.ID == model {
			return m.Status.Value == "loaded", nil
		}
	}
	return false, fmt.Errorf("%s has no model %q", server, model)
}

// ollamaControl is Ollama's keep_alive of a request without a prompt (ollama, docs/api.md).
type ollamaControl struct{}

func (ollamaControl) load(model string) (string, any) {
	return "/api/generate", map[string]any{"model": model, "stream": false, "keep_alive": -1}
}

func (ollamaControl) unload(model string) (string, any) {
	return "/api/generate", map[string]any{"model": model, "stream": false, "keep_alive": 0}
}

func (ollamaControl) loaded(ctx context.Context, p *pool, server, model string) (bool, error) {
	_, body, err := p.get(ctx, server+"/api/ps")
	if err != nil {
		return false, err
	}
	var doc struct {
		Models []struct{ Name, Model string }
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return false, fmt.Errorf("read the models of %s: %w", server, err)
	}
	for _, m := range doc.Models {
		if m.Model == model || m.Name == model || m.Model == model+":latest" {
			return true, nil
		}
	}
	return false, nil
}

// get reads a document of a server.
func (p *pool) get(ctx context.Context, from string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	resp, err := p.gateway.o.Transport.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was read to its end, or is of no use
	body, err = readAll(resp, 1<<20)
	return resp.StatusCode, body, err
}

// maxLoad bounds the time of a call that loads or unloads a model.
const maxLoad = 30 * time.Minute

func (p *pool) control(ctx context.Context, server string, call func(model string) (string, any)) error {
	for _, model := range p.config.Models {
		path, content := call(model)
		body, err := json.Marshal(content)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, maxLoad)
		err = p.postJSON(ctx, server+path, body)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// isLoaded reports whether a server has all models of the pool.
func (p *pool) isLoaded(ctx context.Context, server string) bool {
	for _, model := range p.config.Models {
		if loaded, err := unloaders[p.config.Sleep.Unload].loaded(ctx, p, server, model); err != nil || !loaded {
			return false
		}
	}
	return true
}

// wakeServers looks which servers answer, and loads the models of those without them.
func (p *pool) wakeServers(ctx context.Context) {
	for server := range p.urls {
		healthy := p.healthy(ctx, server)
		if ctx.Err() != nil {
			return
		}
		p.sleeper.mu.Lock()
		unloaded := p.sleeper.unloaded[server]
		p.sleeper.mu.Unlock()
		if healthy && unloaded && !p.loadModels(ctx, server) {
			continue
		}
		p.setHealthy(server, healthy)
	}
}

// loadModels loads the models of a server and gives it requests again.
func (p *pool) loadModels(ctx context.Context, server string) bool {
	if !p.isLoaded(ctx, server) {
		p.sleeper.mu.Lock()
		if p.sleeper.waking != nil {
			p.sleeper.waking.cold = true
		}
		p.sleeper.mu.Unlock()
		err := p.control(ctx, server, unloaders[p.config.Sleep.Unload].load)
		if err != nil && ctx.Err() == nil {
			p.gateway.o.Log.Error("models were not loaded", "pool", p.name, "upstream", server, "error", err.Error())
		}
		if err != nil || !p.isLoaded(ctx, server) { // a load may go on after the answer
			return false
		}
	}
	s := p.sleeper
	s.mu.Lock()
	delete(s.unloaded, server)
	_, drained := s.drained[server]
	p.queue.SetPaused(server, drained)
	s.mu.Unlock()
	p.plain.wake()
	return true
}

// unloadIdle unloads the models of a pool that no one has asked for long enough. Servers are paused
// first, so that none loses a request.
func (p *pool) unloadIdle(ctx context.Context, now time.Time) {
	c := p.config.Sleep
	if c.Unload == "" {
		return
	}
	after := c.UnloadAfter
	setDefault(&after, defaultUnloadAfter)
	for server := range p.urls {
		s := p.sleeper
		s.mu.Lock()
		due := s.waking == nil && s.count == 0 && now.Sub(s.quiet) >= after && !s.unloaded[server] && p.takes(server)
		if due {
			s.unloaded[server] = true
			p.queue.SetPaused(server, true)
		}
		s.mu.Unlock()
		if !due {
			continue
		}
		if p.busy(server) || p.servesOthers(ctx, server) {
			p.keepModels(server)
			continue
		}
		if err := p.control(ctx, server, unloaders[c.Unload].unload); err != nil && ctx.Err() == nil {
			p.gateway.o.Log.Error("models were not unloaded", "pool", p.name, "upstream", server, "error", err.Error())
			p.keepModels(server)
			continue
		}
		p.gateway.o.Log.Info("models unloaded", "pool", p.name, "upstream", server, "models", p.config.Models)
	}
}

// servesOthers reports whether a server has requests that this gateway did not send, or cannot say.
func (p *pool) servesOthers(ctx context.Context, server string) bool {
	load, err := p.readLoad(ctx, server)
	if err != nil || load == nil {
		return false // it tells nothing of its requests: those of this gateway are all that are known
	}
	return load.Running != nil && *load.Running > 0 || load.Waiting != nil && *load.Waiting > 0
}

// keepModels gives a server requests again whose models stay, and waits as long as before.
func (p *pool) keepModels(server string) {
	s := p.sleeper
	s.mu.Lock()
	delete(s.unloaded, server)
	_, drained := s.drained[server]
	p.queue.SetPaused(server, drained)
	s.quiet = time.Now()
	s.mu.Unlock()
	p.plain.wake()
}

// configureUnload takes the models of servers as unloaded at the start, so that the first request asks
// whether they are.
func (p *pool) configureUnload(servers []string, start bool) {
	s := p.sleeper
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.config.Sleep.Unload == "" {
		clear(s.unloaded)
	}
	for _, server := range servers {
		if start && p.config.Sleep.Unload != "" {
			s.unloaded[server] = true
		}
		_, drained := s.drained[server]
		p.queue.SetPaused(server, drained || s.unloaded[server])
	}
}

// asked notes a request of the pool.
func (p *pool) asked(now time.Time) {
	p.sleeper.mu.Lock()
	defer p.sleeper.mu.Unlock()
	p.sleeper.quiet = now
}

// noteUse keeps a pool awake whose servers work.
func (p *pool) noteUse(now time.Time) {
	if slices.ContainsFunc(sortedKeys(p.urls), p.busy) {
		p.asked(now)
	}
}
