package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// DefaultAccount is the account of keys that do not come from an assumed role, as in moto.
const DefaultAccount = "123456789012"

// Reply is a service's response: XML for the ec2, query and rest-xml protocols, Fields for the
// others. Root is the name of the XML document unless it is "<Operation>Response". Raw replaces
// both, byte for byte. Header is added.
type Reply struct {
	Fields map[string]any
	XML    []*Node
	Root   string
	Raw    []byte
	Header http.Header
}

// Answer responds to a call; without a reply or an error the call is forwarded to moto. An error of
// type *Failure is the service's own; any other is a mistake of the test.
type Answer func(ctx context.Context, c *Call) (*Reply, error)

// Server is an AWS endpoint for all services and regions.
type Server struct {
	Recorder Recorder
	// State is the part of the account's state that moto cannot store.
	State *State
	// Metrics stores CloudWatch's metrics.
	Metrics *Metrics
	// Pending delays slow changes until they are settled.
	Pending *Pending
	// Launches launches machines, if there is a moto to store them.
	Launches *Launches
	// Connections are the sessions of Systems Manager.
	Connections *Connections

	upstream string
	client   *http.Client
	answers  map[string]Answer
	fallback Answer
	patches  patches
	faults   faults
	repeats  repeats

	mu       sync.RWMutex
	accounts map[string]string

	http *http.Server
	url  string
	done chan error
}

// Options configure the backends of a Server.
type Options struct {
	// Upstream is moto's URL. Without one, the responses to unknown calls are empty.
	Upstream string
	// Now is the clock for time-dependent responses (which metrics are listed).
	Now func() time.Time
	// Answers replace the server's own, by "service:Operation".
	Answers map[string]Answer
}

// New returns a server that is not listening yet; it is an http.Handler.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{upstream: strings.TrimSuffix(o.Upstream, "/"), accounts: map[string]string{},
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}}
	s.State, s.Metrics, s.Pending = newState(), newMetrics(o.Now), newPending(s)
	s.Launches, s.Connections = newLaunches(s), newConnections(s, o.Now)
	s.answers = s.Metrics.answers()
	if s.upstream != "" {
		s.fallback = nil
	} else {
		s.fallback = empty
	}
	for name, a := range s.State.answers() {
		s.answers[name] = a
	}
	if s.upstream != "" {
		s.answers["sagemaker:ListTrainingJobs"] = s.listTrainingJobs
		s.answers["sagemaker:StopTrainingJob"] = s.Pending.stopTrainingJob
		for name, a := range s.Launches.answers() {
			s.answers[name] = a
		}
		for name, a := range s.Connections.answers() {
			s.answers[name] = a
		}
	}
	for name, a := range o.Answers {
		s.answers[name] = a
	}
	return s
}

// Listen starts to serve on a loopback port; 0 selects a free one.
func (s *Server) Listen(port int) error {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("listen on loopback: %w", err)
	}
	s.url = "http://" + l.Addr().String()
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute}
	s.done = make(chan error, 1)
	go func() { s.done <- s.http.Serve(l) }()
	return nil
}

// URL returns the endpoint for the SDK.
func (s *Server) URL() string { return s.url }

// Close stops listening and ends the calls in flight.
func (s *Server) Close() error {
	if s.http == nil {
		return nil
	}
	err := s.http.Close()
	if served := <-s.done; served != nil && !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	s.client.CloseIdleConnections()
	return err
}

// ServeHTTP handles one call: it is parsed, recorded, subjected to faults, and then answered by the
// server itself or by moto.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header()["Date"] = nil // tests have their own time
	c, err := identify(r)
	if err != nil {
		http.Error(w, "wire: "+err.Error(), http.StatusNotImplemented)
		return
	}
	c.Account = s.accountOf(c.AccessKey)
	status := 0
	defer func() { s.Recorder.add(c, status) }()
	if f, hit := s.faults.next(c); hit {
		switch f.Kind {
		case Reset:
			panic(http.ErrAbortHandler)
		case ServerError:
			status = writePage(w, http.StatusInternalServerError, "Internal Server Error")
			return
		case NotFound:
			status = writePage(w, http.StatusNotFound, "Not Found")
			return
		case Truncated, Garbled, SecondPage:
			status = s.answerBroken(w, r, c, f.Kind)
			return
		case Empty, LoginPage:
			settle()
			status = http.StatusOK
			if f.Kind == LoginPage {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				fmt.Fprint(w, "<!doctype html>\n<html lang=en>\n<title>Sign in</title>\n<h1>Welcome to the guest "+
					"network</h1>\n")
			}
			return
		case Hollow:
			settle()
			status = http.StatusOK
			writeReply(w, c, &Reply{})
			return
		case Never:
			<-r.Context().Done()
			return
		case Lost:
			s.answer(discarded{header: http.Header{}}, r, c)
			panic(http.ErrAbortHandler)
		case Deaf:
			settle()
			status = http.StatusOK
			writeReply(w, c, &Reply{XML: []*Node{T("return", true)}})
			return
		case Slow:
			select {
			case <-time.After(f.Delay):
			case <-r.Context().Done():
				return
			}
		default:
			settle()
			fail := failure(f.Kind, c)
			status = fail.Status
			writeFailure(w, c, fail)
			return
		}
	}
	status = s.answer(w, r, c)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, c *Call) (status int) {
	if c.Mutates() {
		defer s.repeats.changing()()
	}
	answer := s.answers[c.Name()]
	if answer == nil {
		answer = s.fallback
	}
	if answer == nil {
		return s.forward(w, r, c)
	}
	reply, err := answer(r.Context(), c)
	if reply == nil && err == nil {
		if s.upstream != "" {
			return s.forward(w, r, c)
		}
		reply, err = empty(r.Context(), c)
	}
	settle()
	var fail *Failure
	switch {
	case errors.As(err, &fail):
		writeFailure(w, c, fail)
		return fail.Status
	case err != nil:
		http.Error(w, "wire: "+err.Error(), http.StatusInternalServerError)
		return http.StatusInternalServerError
	}
	writeReply(w, c, reply)
	return http.StatusOK
}

// discarded is a response that is discarded.
type discarded struct{ header http.Header }

func (d discarded) Header() http.Header       { return d.header }
func (discarded) Write(b []byte) (int, error) { return len(b), nil }
func (discarded) WriteHeader(int)             {}

// settle lets a client finish with its request. An answer that is faster than any network
// races with smithy-go 1.28, which closes the request's body when the answer begins; Client
// and curfew's own client do not mind, others do.
func settle() { time.Sleep(2 * time.Millisecond) }

// forward forwards the call to moto and corrects its response.
func (s *Server) forward(w http.ResponseWriter, r *http.Request, c *Call) (status int) {
	a, err := s.repeats.answer(c, r, func() (upstreamAnswer, error) { return s.upstreamCall(r, c.Body) })
	if err != nil {
		http.Error(w, "wire: "+err.Error(), http.StatusBadGateway)
		return http.StatusBadGateway
	}
	status, header, body := a.status, a.header, a.body
	if status < 300 {
		s.learn(c, body)
		s.Pending.learn(c, body)
		body = hideDisabled(c, s.patches.apply(c, body))
	}
	for k, v := range header {
		if k != "Content-Length" && k != "Connection" && k != "Date" && k != "Server" {
			w.Header()[k] = v
		}
	}
	if c.Method == http.MethodHead {
		w.Header().Set("Content-Length", header.Get("Content-Length"))
	}
	w.WriteHeader(status)
	w.Write(body)
	return status
}

func (s *Server) upstreamCall(r *http.Request, body []byte) (upstreamAnswer, error) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, s.upstream+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return upstreamAnswer{}, fmt.Errorf("forward: %w", err)
	}
	req.Header = r.Header.Clone()
	req.Header.Del("Content-Encoding")
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "gzip" {
		req.Header.Set("Content-Encoding", e)
	}
	req.Header.Del("Accept-Encoding")
	req.Host = strings.TrimPrefix(s.upstream, "http://")
	res, err := s.client.Do(req)
	if err != nil {
		return upstreamAnswer{}, fmt.Errorf("forward: %w", err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		return upstreamAnswer{}, fmt.Errorf("read forwarded answer: %w", err)
	}
	return upstreamAnswer{res.StatusCode, res.Header, out}, nil
}

// learn records the account of keys from an assumed role.
func (s *Server) learn(c *Call, body []byte) {
	if c.Name() != "sts:AssumeRole" {
		return
	}
	doc, err := parseXML(body)
	if err != nil {
		return
	}
	key := doc.Find("AccessKeyId")
	arn := strings.Split(c.Form.Get("RoleArn"), ":")
	if key == nil || len(arn) < 5 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts[key.Text] = arn[4]
}

// SignedBy registers keys of an account.
func (s *Server) SignedBy(accessKey, account string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accounts[accessKey] = account
}

func (s *Server) accountOf(accessKey string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if a, ok := s.accounts[accessKey]; ok {
		return a
	}
	return DefaultAccount
}
