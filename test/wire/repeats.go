package wire

import (
	"bytes"
	"net/http"
	"slices"
	"sync"
)

// repeats caches moto's responses to read-only calls until the next call that may change something:
// audits read the same account repeatedly, and moto takes milliseconds to compute each response.
type repeats struct {
	mu      sync.Mutex
	off     bool
	changes int // started and ended calls that may change something
	under   int // those that have not ended
	kept    map[string]upstreamAnswer
}

// upstreamAnswer is a response of moto.
type upstreamAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a upstreamAnswer) clone() upstreamAnswer {
	return upstreamAnswer{a.status, a.header.Clone(), slices.Clone(a.body)}
}

// Bypassed records that moto is called without this server from now on, so that changes are
// unknown.
func (s *Server) Bypassed() {
	s.repeats.mu.Lock()
	defer s.repeats.mu.Unlock()
	s.repeats.off, s.repeats.kept = true, nil
}

// answer returns moto's response to the same call if nothing can have changed since then, or calls
// moto.
func (p *repeats) answer(c *Call, r *http.Request, ask func() (upstreamAnswer, error)) (upstreamAnswer, error) {
	if c.Mutates() || c.Operation == "AssumeRole" { // each role has its own keys
		return ask()
	}
	key := sameCall(c, r)
	p.mu.Lock()
	kept, ok := p.kept[key]
	before := p.changes
	p.mu.Unlock()
	if ok {
		return kept.clone(), nil
	}
	a, err := ask()
	if err != nil || a.status >= 300 {
		return a, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.off && p.under == 0 && p.changes == before {
		if p.kept == nil {
			p.kept = map[string]upstreamAnswer{}
		}
		p.kept[key] = a.clone()
	}
	return a, nil
}

// changing marks the start of a call that may change something, and returns the function that ends
// it.
func (p *repeats) changing() (end func()) {
	change := func(under int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changes++
		p.under += under
		p.kept = nil
	}
	change(1)
	return func() { change(-1) }
}

// sameCall returns the parts of a call that are the same in repetitions: all except time, signature
// and number.
func sameCall(c *Call, r *http.Request) string {
	header := r.Header.Clone()
	for _, name := range []string{
		"Authorization", "X-Amz-Date", "Amz-Sdk-Invocation-Id", "Amz-Sdk-Request", "Content-Length",
	} {
		header.Del(name)
	}
	var b bytes.Buffer
	b.WriteString(c.AccessKey + " " + c.Region + " " + c.Service + " " + r.Method + " " + r.URL.RequestURI() + "\n")
	_ = header.Write(&b) // a buffer accepts everything
	b.Write(c.Body)
	return b.String()
}
