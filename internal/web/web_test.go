package web_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/view"
)

// service is a running service of the simulated account, as a person starts it.
type service struct {
	base, link, token string
	paths             []string
	scan              view.Scan
}

var demo service

// lines takes the output of the service and hands each line on.
type lines struct {
	mu   sync.Mutex
	rest string
	out  chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest += string(p)
	for {
		line, rest, whole := strings.Cut(l.rest, "\n")
		if !whole {
			return len(p), nil
		}
		l.rest = rest
		select {
		case l.out <- line:
		default: // no one waits for it
		}
	}
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run serves the simulated account for the tests.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "curfew-web")
	if err == nil {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, end := context.WithCancel(context.Background())
	out, log := &lines{out: make(chan string, 1000)}, &bytes.Buffer{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		cli.Run(ctx, cli.Process{
			Args: []string{
				"serve", "--demo", "--history", "3d", "--listen", "127.0.0.1:0",
				"--data-dir", filepath.Join(dir, "data"),
			},
			Stdin: strings.NewReader(""), Stdout: out, Stderr: log, Now: time.Now, Dir: dir,
			Lookup: func(string) (string, bool) { return "", false },
		})
	}()
	defer func() { end(); <-ended }()
	if err := demo.begin(out, filepath.Join(dir, "data", "owner-token"), ended); err != nil {
		end()
		<-ended
		fmt.Fprintln(os.Stderr, err, log)
		return 1
	}
	return m.Run()
}

// begin waits until the service has audited the account and asked for approvals.
func (s *service) begin(out *lines, tokenFile string, ended <-chan struct{}) error {
	for s.link == "" {
		select {
		case line := <-out.out:
			if strings.HasPrefix(line, "http") {
				s.link = line
			}
		case <-ended:
			return fmt.Errorf("the service ended")
		}
	}
	u, err := url.Parse(s.link)
	if err != nil {
		return err
	}
	s.base = "http://" + u.Host
	text, err := os.ReadFile(tokenFile)
	if err != nil {
		return err
	}
	s.token = strings.TrimSpace(string(text))
	deadline := time.Now().Add(5 * time.Minute)
	for {
		status, doc := s.api("GET", "/api/v1/scans/last", "")
		waits, requests := s.api("GET", "/api/v1/approvals", "")
		if status == http.StatusOK && waits == http.StatusOK && strings.Contains(requests, "sdxl-finetune") {
			if err := json.Unmarshal([]byte(doc), &s.scan); err != nil {
				return err
			}
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no audit within 5 minutes: %d %s", status, doc)
		}
		time.Sleep(50 * time.Millisecond) // between two looks, which the deadline bounds
	}
	f := s.scan.Largest(1)[0]
	s.paths = []string{
		"/", "/machines", "/machines?duty=idle&group=team&sort=name", "/mine", "/mine?of=dmitri", "/findings",
		"/findings/" + f.ID, fmt.Sprintf("/machines/%s/%s/%s/%s/%s", f.Resource.Cloud, f.Resource.Account,
			f.Resource.Region, f.Resource.Kind, f.Resource.ID), "/plan", "/costs", "/costs?by=service&since=7d",
		"/jobs", "/jobs?ended=yes", "/jobs/llm-sft", "/jobs/reward-model", "/jobs/reward-model/log",
		"/budgets", "/approvals", "/policies", "/gateways", "/fleets", "/alerts", "/audit", "/settings",
		"/why", "/why/now.running", "/why/" + f.ID,
	}
	return nil
}

// api calls the API as the owner.
func (s *service) api(method, path, body string) (int, string) {
	req, err := http.NewRequest(method, s.base+path, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for {
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		text, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			return 0, err.Error()
		}
		if res.StatusCode != http.StatusTooManyRequests {
			return res.StatusCode, string(text)
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return 0, err.Error()
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// browser is a browser without a script.
type browser struct {
	t      *testing.T
	client *http.Client
}

// page is an answer to a browser.
type page struct {
	status int
	text   string
	header http.Header
	path   string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &browser{t, &http.Client{Jar: jar}}
}

// signedIn is a browser that a token signed in.
func signedIn(t *testing.T, token string) *browser {
	t.Helper()
	b := newBrowser(t)
	if got := b.post("/sign-in", url.Values{"token": {token}}); got.status != 200 || got.path != "/" {
		t.Fatalf("sign in: %d at %s", got.status, got.path)
	}
	return b
}

// do sends a request, again where the service says that there were too many calls.
func (b *browser) do(req *http.Request) page {
	b.t.Helper()
	req.Header.Set("Accept", "text/html")
	for {
		res, err := b.client.Do(req)
		if err != nil {
			b.t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		if err := errors.Join(err, res.Body.Close()); err != nil {
			b.t.Fatal(err)
		}
		if res.StatusCode != http.StatusTooManyRequests {
			return page{res.StatusCode, string(text), res.Header, res.Request.URL.Path}
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				b.t.Fatal(err)
			}
		}
		select {
		case <-b.t.Context().Done():
			b.t.Fatal("too many calls until the end of the test")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (b *browser) get(path string) page {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodGet, demo.base+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.do(req)
}

func (b *browser) post(path string, form url.Values) page {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodPost, demo.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(req)
}

var hiddenField = regexp.MustCompile(`name="(form_token|key)" value="([^"]+)"`)

// form are the hidden fields of the forms of a page.
func (p page) form() url.Values {
	out := url.Values{}
	for _, m := range hiddenField.FindAllStringSubmatch(p.text, -1) {
		out.Set(m[1], m[2])
	}
	return out
}

// tokenOf is a token with a role.
func tokenOf(t *testing.T, name, role string) string {
	t.Helper()
	status, text := demo.api("POST", "/api/v1/tokens", fmt.Sprintf(`{"name":%q,"roles":[%q]}`, name, role))
	var doc view.NewToken
	if err := json.Unmarshal([]byte(text), &doc); status != 200 || err != nil {
		t.Fatalf("%d %s", status, text)
	}
	return doc.Secret
}

// packedSize returns the compressed size of a path in bytes.
func (b *browser) packedSize(path string) int {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodGet, demo.base+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	res, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.Header.Get("Content-Encoding") != "gzip" {
		b.t.Fatalf("%s: %v %v", path, res.Header, err)
	}
	if _, err := gzip.NewReader(bytes.NewReader(text)); err != nil {
		b.t.Fatal(err)
	}
	return len(text)
}

// newestScan returns the end of the newest audit.
func newestScan(t *testing.T) time.Time {
	t.Helper()
	_, text := demo.api("GET", "/api/v1/scans/last", "")
	var doc view.Scan
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.FinishedAt
}

var amounts = regexp.MustCompile(`\$([0-9,]+(?:\.[0-9]+)?)`)

// dollars are the amounts in a text.
func dollars(t *testing.T, text string) (out []float64) {
	t.Helper()
	for _, m := range amounts.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}
