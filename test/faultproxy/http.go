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

// Header marks what reaches the handler behind: "repeat" is the second arrival of a request
// that was sent once.
const Header = "X-Fault"

// HTTP is an HTTP server before another handler.
type HTTP struct {
	storm
	behind http.Handler
	server *httptest.Server

	calls atomic.Int64
	watch atomic.Pointer[func(n int64)]
	stale atomic.Int64

	answered sync.Map // by question: *httptest.ResponseRecorder
}

// NewHTTP starts a proxy before a handler.
func NewHTTP(behind http.Handler) *HTTP {
	p := &HTTP{behind: behind}
	p.server = httptest.NewServer(p)
	return p
}

// URL is where the proxy listens.
func (p *HTTP) URL() string { return p.server.URL }

// Close stops the proxy.
func (p *HTTP) Close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// Watch calls before each call, with how many there were since; nil ends it.
func (p *HTTP) Watch(do func(n int64)) {
	p.calls.Store(0)
	if do == nil {
		p.watch.Store(nil)
		return
	}
	p.watch.Store(&do)
}

// Forget forgets all answers, so that none of them is given again.
func (p *HTTP) Forget() { p.answered.Clear() }

// Staled returns how many stale answers were given.
func (p *HTTP) Staled() int64 { return p.stale.Load() }

// ServeHTTP lets one request through, or not.
func (p *HTTP) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if do := p.watch.Load(); do != nil {
		(*do)(p.calls.Add(1))
	}
	w.Header()["Date"] = nil // what is behind may have a time of its own
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	// AWS calls that only ask have no token or time of day in them, so that the same
	// question looks the same again.
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
