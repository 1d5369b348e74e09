package faultproxy

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Header marks requests to the wrapped handler: "repeat" is the second arrival of a request that
// was sent once.
const Header = "X-Fault"

// HTTP is an HTTP server in front of another handler.
type HTTP struct {
	storm
	behind http.Handler
	server *httptest.Server

	calls atomic.Int64
	watch atomic.Pointer[func(n int64)]
	stale atomic.Int64

	answered sync.Map // by request: *httptest.ResponseRecorder
}

// NewHTTP starts a proxy in front of a handler.
func NewHTTP(behind http.Handler) *HTTP {
	p := &HTTP{behind: behind}
	p.server = httptest.NewServer(p)
	return p
}

// URL returns the address of the proxy.
func (p *HTTP) URL() string { return p.server.URL }

// Close stops the proxy.
func (p *HTTP) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// Watch calls a function before each call with the number of calls since; nil stops that.
func (p *HTTP) Watch(do func(n int64)) {
	p.calls.Store(0)
	if do == nil {
		p.watch.Store(nil)
		return
	}
	p.watch.Store(&do)
}

// Forget forgets all responses, so that they are not repeated.
func (p *HTTP) Forget() { p.answered.Clear() }

// Staled returns the number of stale responses.
func (p *HTTP) Staled() int64 { return p.stale.Load() }

// ServeHTTP forwards one request or injects a fault.
func (p *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if do := p.watch.Load(); do != nil {
		(*do)(p.calls.Add(1))
	}
	w.Header()["Date"] = nil // the wrapped handler may have its own clock
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	// Read-only AWS calls contain no token or time of day, so that equal requests look equal.
	question := r.Method + r.URL.RequestURI() + r.Header.Get("X-Amz-Target") + string(body)
	kind, late, hit := p.draw(question)
	if !hit {
		p.answer(w, question, p.forward(r, body, ""))
		return
	}
	switch kind {
	case Delay:
		time.Sleep(late)
		p.answer(w, question, p.forward(r, body, ""))
	case HalfOpen:
		p.forward(r, body, "")
		time.Sleep(late)
		panic(http.ErrAbortHandler)
	case Truncate:
		got := p.forward(r, body, "")
		copyHeader(w, got)
		w.Header().Set("Content-Length", strconv.Itoa(got.Body.Len()+1))
		w.WriteHeader(got.Code)
		_, _ = w.Write(got.Body.Bytes()[:got.Body.Len()/2])
		panic(http.ErrAbortHandler)
	case Empty:
		w.WriteHeader(http.StatusOK)
	case LoginPage:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w,
			"<!doctype html>\n<html lang=en>\n<title>Sign in</title>\n<h1>Welcome to the guest network</h1>\n")
	case Repeat:
		p.forward(r, body, "")
		p.answer(w, question, p.forward(r, body, "repeat"))
	case Stale:
		if old, ok := p.answered.Load(question); ok {
			p.stale.Add(1)
			give(w, old.(*httptest.ResponseRecorder))
			return
		}
		p.answer(w, question, p.forward(r, body, ""))
	default:
		panic(http.ErrAbortHandler)
	}
}

// forward carries out a request.
func (p *HTTP) forward(r *http.Request, body []byte, mark string) *httptest.ResponseRecorder {
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	again.Header.Del(Header)
	if mark != "" {
		again.Header.Set(Header, mark)
	}
	got := httptest.NewRecorder()
	p.behind.ServeHTTP(got, again)
	return got
}

func (p *HTTP) answer(w http.ResponseWriter, question string, got *httptest.ResponseRecorder) {
	if got.Code == http.StatusOK {
		p.answered.Store(question, got)
	}
	give(w, got)
}

func give(w http.ResponseWriter, got *httptest.ResponseRecorder) {
	copyHeader(w, got)
	w.WriteHeader(got.Code)
	_, _ = w.Write(got.Body.Bytes())
}

func copyHeader(w http.ResponseWriter, got *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), got.Header())
}
