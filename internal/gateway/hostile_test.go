package gateway

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// raw writes bytes to a server and returns the status lines of all that it answers.
func raw(t *testing.T, address, request string) []string {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, _ = io.WriteString(c, request)
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	var out []string
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			return out
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		out = append(out, resp.Status[:3])
		if resp.Close {
			return out
		}
	}
}

// TestSmuggledRequestsReachNoServer: no reading of a request by a proxy before the gateway makes a
// second one out of it.
func TestSmuggledRequestsReachNoServer(t *testing.T) {
	m := newModel(t)
	_, s := startGateway(t, onePool(m.URL))
	address := strings.TrimPrefix(s.URL, "http://")
	hidden := "POST /v2/models/hidden/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
	for name, request := range map[string]string{
		"length and chunks": "POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: " +
			fmt.Sprint(5+len(hidden)) + "\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden,
		"chunks twice": "POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" +
			"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
		"bad chunk":                 "POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + hidden,
		"folded":                    "POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n 0\r\nX:\r\n " + hidden + "\r\n",
		"bare line feeds in a name": "POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nX\n: 1\r\n\r\n" + hidden,
		"two hosts":                 "POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n" + hidden,
		"no host":                   "POST /v2/models/sum/infer HTTP/1.1\r\n\r\n",
	} {
		answers := raw(t, address, request)
		for _, status := range answers {
			if status[0] != '4' && status[0] != '5' {
				t.Errorf("%s: %s", name, status)
			}
		}
		if len(answers) > 1 {
			t.Errorf("%s: two requests were read: %s", name, answers)
		}
	}
	for _, r := range m.seen() {
		t.Errorf("a request reached the server: %s", r.path)
	}
}

// TestNeighborsOfBadRequestsAreUnharmed: bad requests among good ones fail alone, and none of them
// holds memory.
func TestNeighborsOfBadRequestsAreUnharmed(t *testing.T) {
	m := newModel(t)
	c := onePool(m.URL)
	c.MaxBodyMiB, c.QueueMiB, c.OwnerHeader = 4, 64, "Curfew-Owner"
	_, s := startGateway(t, c)
	v2 := s.URL + "/v2/models/sum/infer"
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	for range 64 {
		_, _ = z.Write(make([]byte, 1<<20))
	}
	_ = z.Close()
	bad := []struct {
		body    string
		headers []string
	}{
		{`{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[1]}]}`, nil},
		{`{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[1,NaN]}]}`, nil},
		{`{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[1,2]},` +
			`{"name":"x","datatype":"FP64","shape":[1,2],"data":[3,4]}]}`, nil},
		{`{"inputs":[{"name":"x","name":"y","datatype":"FP64","shape":[1,2],"data":[1,2]}]}`, nil},
		{`{"inputs":[{"name":"x","datatype":"FP64","shape":[0,2],"data":[]}]}`, nil},
		{`{"inputs":[{"name":"x","datatype":"FP64","shape":[9223372036854775807,2],"data":[1,2]}]}`, nil},
		{`{"inputs":[{"name":"x","datatype":"FP64","shape":[-1,2],"data":[1,2]}]}`, nil},
		{strings.Repeat(`{"inputs":`, 100_000), nil},
		{bomb.String(), []string{"Content-Encoding", "gzip"}},
		{strings.Repeat(" ", 5<<20), nil},
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	good := make(chan string, 1000)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			body := row("good", float64(i), 1)
			a, err := tryPost(v2, strings.NewReader(body))
			direct, _ := sums([]byte(body))
			if err != nil || a.status != 200 || !sameJSON(t, a.body, string(direct)) {
				good <- fmt.Sprint(a, err)
				return
			}
		}
	}()
	for range 5 {
		for i, x := range bad {
			a, err := tryPost(v2, strings.NewReader(x.body), x.headers...)
			if err == nil && (a.status < 400 || a.status > 499) {
				t.Errorf("bad request %d: %d %s", i, a.status, a.body)
			}
		}
	}
	close(stop)
	<-done
	select {
	case text := <-good:
		t.Errorf("a good request among bad ones: %s", text)
	default:
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
		t.Errorf("%d MiB more are held after the bad requests", grown>>20)
	}
}

// TestRefusedBodiesLeaveLittleToCollect: the memory of a body that is too large serves the next one.
func TestRefusedBodiesLeaveLittleToCollect(t *testing.T) {
	m := newModel(t)
	c := onePool(m.URL)
	c.MaxBodyMiB, c.QueueMiB, c.OwnerHeader = 4, 64, "Curfew-Owner"
	_, s := startGateway(t, c)
	send := func() {
		t.Helper()
		large := io.LimitReader(blanks{}, 5<<20) // of unknown length: it is sent in chunks
		a, err := tryPost(s.URL+"/v2/models/sum/infer", large)
		if err == nil && a.status != http.StatusRequestEntityTooLarge {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	send()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const bodies = 20
	for range bodies {
		send()
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > bodies*(4<<20) {
		t.Errorf("%d bodies of 4 MiB took %d MiB", bodies, took>>20)
	}
}

// blanks is an endless body.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestSlowSendersHoldNoMemory: connections that promise much and send little take little, and others
// are served.
func TestSlowSendersHoldNoMemory(t *testing.T) {
	m := newModel(t)
	c := onePool(m.URL)
	c.MaxBodyMiB, c.QueueMiB, c.OwnerHeader = 16, 64, "Curfew-Owner"
	g, s := startGateway(t, c)
	address := strings.TrimPrefix(s.URL, "http://")
	for range 100 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "POST /v2/models/sum/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 16000000\r\n\r\n{")
	}
	waitFor(t, "the slow senders", func() bool { return g.reading.Load() >= 100*(64<<10) })
	if n := g.reading.Load(); n > 100*(64<<10) {
		t.Errorf("%d bytes are reserved for 100 bytes", n)
	}
	if a := post(t, s.URL+"/v2/models/sum/infer", row("ok", 1, 2)); a.status != 200 {
		t.Errorf("next to slow senders: %+v", a)
	}
}
